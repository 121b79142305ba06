/** The periods of the report. Days are those of LINE (UTC+9), such as 2026-11-01, and both ends are inclusive. */
import { mondayOf, type Period, plusDays } from '../../src/line-api/line-day.ts'

export const PERIODS = ['thisWeek', 'lastWeek', 'thisMonth', 'lastMonth', 'last28', 'days'] as const
export type PeriodName = (typeof PERIODS)[number]

/** A week begins on Monday, and ends with today while it lasts. @param given of `days` */
export function periodOf(name: PeriodName, today: string, given: Period): Period {
  const monday = mondayOf(today)
  const first = `${today.slice(0, 8)}01`
  const lastOfMonthBefore = plusDays(first, -1)
  switch (name) {
    case 'thisWeek':
      return { from: monday, to: today }
    case 'lastWeek':
      return { from: plusDays(monday, -7), to: plusDays(monday, -1) }
    case 'thisMonth':
      return { from: first, to: today }
    case 'lastMonth':
      return { from: `${lastOfMonthBefore.slice(0, 8)}01`, to: lastOfMonthBefore }
    case 'last28':
      return { from: plusDays(today, -27), to: today }
    case 'days':
      return given
  }
}
