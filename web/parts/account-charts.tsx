/** The charts of an account: deliveries by the hour, and followers by the day beside LINE's own counts. */
import { useMemo } from 'preact/hooks'
import type { AccountDay, DeliveryHour } from '../../src/watch/fleet.ts'
import { serverNowMs } from '../clock.ts'
import { useRead } from '../operations.ts'
import { useLocalized } from '../texts.ts'
import { everyDay, hoursUntilNow, timeOfDay } from './axis.ts'
import { Chart, type Series } from './chart.tsx'
import { Panel } from './page.tsx'

const HOURS_MAX = 24 * 7

export function AccountCharts({ id }: { id: string }) {
  const { data } = useRead('account.charts', id)
  if (data === undefined) return null
  return (
    <div class="columns">
      <DeliveryChart hours={data.hours} />
      <FollowerChart days={data.days} />
    </div>
  )
}

function DeliveryChart({ hours }: { hours: DeliveryHour[] }) {
  const { t } = useLocalized()
  const { series: names, deliveriesChart: title } = t.account
  const { times, series } = useMemo(() => {
    const byTime = new Map(hours.map((hour) => [Date.parse(hour.hour) / 1000, hour]))
    const times = hoursUntilNow([...byTime.keys()], serverNowMs(), HOURS_MAX)
    const bars = (label: string, colour: string, value: (hour: DeliveryHour) => number): Series => ({
      label,
      colour,
      kind: 'bars',
      values: times.map((time) => {
        const hour = byTime.get(time)
        return (hour && value(hour)) || null
      }),
    })
    return {
      times,
      series: [
        bars(names.accepted, '--series-1', ({ deliveries }) => deliveries),
        bars(names.refused, '--series-2', ({ refused }) => refused),
        bars(names.failed, '--series-3', ({ failed }) => failed),
      ],
    }
  }, [hours, names])
  return (
    <Panel title={title}>
      {hours.length === 0 ? (
        <p class="muted">{t.account.noHours}</p>
      ) : (
        <Chart title={title} unit="hour" times={times} series={series} />
      )}
    </Panel>
  )
}

function FollowerChart({ days }: { days: AccountDay[] }) {
  const { t } = useLocalized()
  const { series: names, followersChart: title } = t.account
  const { times, series } = useMemo(() => {
    const byTime = new Map(days.map((day) => [timeOfDay(day.day), day]))
    const times = everyDay(days.map(({ day }) => day))
    const line = (
      label: string,
      colour: string,
      value: (day: AccountDay) => number | null,
      isDashed: boolean,
    ): Series => ({
      label,
      colour,
      kind: 'line',
      isDashed,
      values: times.map((time) => {
        const day = byTime.get(time)
        return day === undefined ? null : value(day)
      }),
    })
    return {
      times,
      series: [
        line(names.following, '--series-1', ({ following }) => following, false),
        line(names.lineFollowers, '--series-1', lineFollowing, true),
        line(names.blocked, '--series-2', ({ blocked }) => blocked, false),
        line(names.lineBlocks, '--series-2', ({ lineBlocks }) => lineBlocks, true),
      ],
    }
  }, [days, names])
  return (
    <Panel title={title}>
      {days.length === 0 ? (
        <p class="muted">{t.account.noDays}</p>
      ) : (
        <Chart title={title} unit="day" times={times} series={series} />
      )}
    </Panel>
  )
}

/** LINE counts everybody who ever followed, so people who blocked the account are subtracted. */
function lineFollowing({ lineFollowers, lineBlocks }: AccountDay): number | null {
  return lineFollowers === null || lineBlocks === null ? null : lineFollowers - lineBlocks
}
