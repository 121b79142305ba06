/** The charts of an account: deliveries by the hour, and followers by the day. */
import { useMemo } from 'preact/hooks'
import { lineDay, plusDays } from '../../src/line-api/line-day.ts'
import type { DeliveryHour } from '../../src/watch/fleet.ts'
import { serverNowMs } from '../clock.ts'
import { useRead } from '../operations.ts'
import { useLocalized } from '../texts.ts'
import { hoursUntilNow } from './axis.ts'
import { Chart, type Series } from './chart.tsx'
import { Panel } from './page.tsx'
import { ReportChart } from './report-chart.tsx'

const HOURS_MAX = 24 * 7
const DAYS = 30

export function AccountCharts({ id }: { id: string }) {
  const { data } = useRead('account.charts', id)
  const today = lineDay(serverNowMs())
  if (data === undefined) return null
  return (
    <div class="columns">
      <Deliveries hours={data.hours} />
      <ReportChart period={{ from: plusDays(today, 1 - DAYS), to: today }} scope={{ account: id }} />
    </div>
  )
}

function Deliveries({ hours }: { hours: DeliveryHour[] }) {
  const { t } = useLocalized()
  const { series: names } = t.account
  const { times, series } = useMemo(() => {
    const byTime = new Map(hours.map((row) => [Date.parse(row.hour) / 1000, row]))
    const times = hoursUntilNow([...byTime.keys()], serverNowMs(), HOURS_MAX)
    const bars = (label: string, colour: string, name: 'deliveries' | 'refused' | 'failed'): Series => ({
      ...{ label, colour, kind: 'bars' },
      values: times.map((time) => byTime.get(time)?.[name] || null),
    })
    const series = [
      bars(names.accepted, '--series-1', 'deliveries'),
      bars(names.refused, '--series-2', 'refused'),
      bars(names.failed, '--series-3', 'failed'),
    ]
    return { times, series }
  }, [hours, t])
  return (
    <Panel title={t.account.deliveriesChart}>
      {hours.length === 0 ? (
        <p class="muted">{t.account.noHours}</p>
      ) : (
        <Chart title={t.account.deliveriesChart} unit="hour" times={times} series={series} />
      )}
    </Panel>
  )
}
