/** The charts of an account: deliveries by the hour, and followers by the day beside LINE's own counts. */
import { useMemo } from 'preact/hooks'
import type { AccountDay, DeliveryHour } from '../../src/watch/fleet.ts'
import { serverNowMs } from '../clock.ts'
import { useRead } from '../operations.ts'
import { useLocalized } from '../texts.ts'
import { everyDay, hoursUntilNow, timeOfDay, type Unit } from './axis.ts'
import { Chart, type Series } from './chart.tsx'
import { Panel } from './page.tsx'

const HOURS_MAX = 24 * 7

export function AccountCharts({ id }: { id: string }) {
  const { t } = useLocalized()
  const { data } = useRead('account.charts', id)
  if (data === undefined) return null
  const { series: names } = t.account
  return (
    <div class="columns">
      <ChartPanel<DeliveryHour>
        title={t.account.deliveriesChart}
        empty={t.account.noHours}
        unit="hour"
        rows={data.hours}
        timeOf={({ hour }) => Date.parse(hour) / 1000}
        axisOf={(stored) => hoursUntilNow(stored, serverNowMs(), HOURS_MAX)}
        series={[
          { label: names.accepted, colour: '--series-1', value: ({ deliveries }) => deliveries || null },
          { label: names.refused, colour: '--series-2', value: ({ refused }) => refused || null },
          { label: names.failed, colour: '--series-3', value: ({ failed }) => failed || null },
        ]}
      />
      <ChartPanel<AccountDay>
        title={t.account.followersChart}
        empty={t.account.noDays}
        unit="day"
        rows={data.days}
        timeOf={({ day }) => timeOfDay(day)}
        axisOf={everyDay}
        series={[
          { label: names.following, colour: '--series-1', value: ({ following }) => following },
          { label: names.lineFollowers, colour: '--series-1', value: lineFollowing, isDashed: true },
          { label: names.blocked, colour: '--series-2', value: ({ blocked }) => blocked },
          {
            label: names.lineBlocks,
            colour: '--series-2',
            value: ({ lineBlocks }) => lineBlocks,
            isDashed: true,
          },
        ]}
      />
    </div>
  )
}

interface ChartProps<Row> {
  title: string
  /** shown without data */
  empty: string
  unit: Unit
  rows: Row[]
  timeOf: (row: Row) => number
  /** Returns the times of the axis. @param stored times of the rows */
  axisOf: (stored: number[]) => number[]
  series: Array<Omit<Series, 'values' | 'kind'> & { value: (row: Row) => number | null }>
}

/** Hours are bars, and days are points of a line. */
function ChartPanel<Row>({ title, empty, unit, rows, ...chart }: ChartProps<Row>) {
  const { language } = useLocalized()
  const { times, series } = useMemo(() => {
    const byTime = new Map(rows.map((row) => [chart.timeOf(row), row]))
    const times = chart.axisOf([...byTime.keys()])
    const series = chart.series.map(({ value, ...one }): Series => {
      const values = times.map((time) => {
        const row = byTime.get(time)
        return row === undefined ? null : value(row)
      })
      return { ...one, values, kind: unit === 'hour' ? 'bars' : 'line' }
    })
    return { times, series }
  }, [rows, language])
  return (
    <Panel title={title}>
      {rows.length === 0 ? (
        <p class="muted">{empty}</p>
      ) : (
        <Chart title={title} unit={unit} times={times} series={series} />
      )}
    </Panel>
  )
}

/** LINE counts everybody who ever followed, so people who blocked the account are subtracted. */
function lineFollowing({ lineFollowers, lineBlocks }: AccountDay): number | null {
  return lineFollowers === null || lineBlocks === null ? null : lineFollowers - lineBlocks
}
