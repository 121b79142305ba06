/** The periods of the report. Days are those of LINE (UTC+9), such as 2026-11-01, and both ends are inclusive. */

export const PERIODS = ['thisWeek', 'lastWeek', 'thisMonth', 'lastMonth', 'last28', 'days'] as const
export type PeriodName = (typeof PERIODS)[number]

export interface Period {
  from: string
  to: string
}

const DAY_MS = 86_400_000

export const lineDay = (ms: number): string => new Date(ms + 9 * 3_600_000).toISOString().slice(0, 10)

export const plusDays = (day: string, days: number): string =>
  new Date(Date.parse(day) + days * DAY_MS).toISOString().slice(0, 10)

/** A week begins on Monday, and ends with today while it lasts. @param given of `days` */
export function periodOf(name: PeriodName, today: string, given: Period): Period {
  const monday = plusDays(today, -((new Date(today).getUTCDay() + 6) % 7))
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
