/** Follows of each day upwards and blocks downwards, with LINE's own count of new followers. */
import { useMemo } from 'preact/hooks'
import { DAY_MS, type Period } from '../../src/line-api/line-day.ts'
import { type Result, useRead } from '../operations.ts'
import { useLocalized } from '../texts.ts'
import { timeOfDay } from './axis.ts'
import { Chart, type Series } from './chart.tsx'
import { Panel } from './page.tsx'
import { Loaded } from './states.tsx'

export type ReportRow = Result<'report.show'>['rows'][number]

/** More bars than these are too narrow, so a bar is a week. */
const DAYS_MAX = 100

/** @param scope an account, an organization, or neither for all */
export function ReportChart({
  period: { from, to },
  scope,
}: {
  period: Period
  scope: { account?: string | null; organization?: string | null }
}) {
  const { t } = useLocalized()
  const by = Date.parse(to) - Date.parse(from) < DAYS_MAX * DAY_MS ? 'day' : 'week'
  const report = useRead('report.show', null, { from, to, by, ...scope })
  const title = by === 'day' ? t.report.perDay : t.report.perWeek
  return (
    <Panel title={title}>
      <Loaded query={report}>{({ rows }) => <Bars title={title} rows={rows} />}</Loaded>
    </Panel>
  )
}

function Bars({ title, rows }: { title: string; rows: ReportRow[] }) {
  const { t } = useLocalized()
  const { figures } = t.report
  const isCounted = rows.some(
    ({ newFollowers, lineNewFollowers }) => (newFollowers ?? lineNewFollowers) !== null,
  )
  const times = useMemo(() => rows.map(({ day, week }) => timeOfDay(day ?? week ?? '')), [rows])
  const series = useMemo(
    (): Series[] => [
      // The bar of new followers covers the lower part, so that both are stacked.
      {
        ...{
          label: figures.returns,
          values: rows.map(({ returns }) => returns),
          colour: '--series-3',
          kind: 'bars',
        },
        drawn: rows.map(({ returns, newFollowers }) => returns && returns + (newFollowers ?? 0)),
      },
      {
        ...{ label: figures.newFollowers, colour: '--series-1', kind: 'bars' },
        values: rows.map(({ newFollowers }) => newFollowers),
      },
      {
        ...{
          label: figures.blocks,
          values: rows.map(({ blocks }) => blocks),
          colour: '--series-2',
          kind: 'bars',
        },
        drawn: rows.map(({ blocks }) => blocks && -blocks),
      },
      {
        ...{ label: figures.lineNewFollowers, colour: '--muted', kind: 'line', isDashed: true },
        values: rows.map(({ lineNewFollowers }) => lineNewFollowers),
      },
    ],
    [rows, t],
  )
  if (!isCounted) return <p class="muted">{t.report.notCounted}</p>
  return <Chart title={title} unit="day" times={times} series={series} />
}
