/** Attempts of an endpoint per hour, and how long they took. */
import { useMemo } from 'preact/hooks'
import { serverNowMs } from '../clock.ts'
import type { Result } from '../operations.ts'
import { useLocalized } from '../texts.ts'
import { hoursUntilNow } from './axis.ts'
import { Chart, type Series } from './chart.tsx'
import { Panel } from './page.tsx'

const HOURS = 25

export function EndpointChart({ hours }: Pick<Result<'endpoint.show'>, 'hours'>) {
  const { t } = useLocalized()
  const { chart } = t.endpoints
  // A refresh returns equal hours as a new array, and the chart would be drawn again.
  const text = JSON.stringify(hours)
  const { times, attempts, durations } = useMemo(() => {
    const byTime = new Map(hours.map((row) => [Date.parse(row.hour) / 1000, row]))
    const times = hoursUntilNow([...byTime.keys()], serverNowMs(), HOURS)
    const rows = times.map((time) => byTime.get(time))
    // The bar of accepted attempts covers the lower part, so that both are stacked.
    const attempts: Series[] = [
      {
        ...{ label: chart.refused, colour: '--series-2', kind: 'bars' },
        values: rows.map((row) => row?.refused || null),
        drawn: rows.map((row) => (row?.refused ? row.refused + row.accepted : null)),
      },
      {
        ...{ label: t.endpoints.accepted, colour: '--series-1', kind: 'bars' },
        values: rows.map((row) => row?.accepted || null),
      },
    ]
    const durations: Series[] = [
      {
        ...{ label: chart.milliseconds, colour: '--series-3', kind: 'line' },
        values: rows.map((row) => row?.durationMs ?? null),
      },
    ]
    return { times, attempts, durations }
  }, [text, t])
  if (hours.length === 0)
    return (
      <Panel title={chart.attempts}>
        <p class="muted">{chart.empty}</p>
      </Panel>
    )
  return (
    <div class="columns">
      <Panel title={chart.attempts}>
        <Chart title={chart.attempts} unit="hour" times={times} series={attempts} />
        <p class="muted small-text">{chart.counted}</p>
      </Panel>
      <Panel title={chart.duration}>
        <Chart title={chart.duration} unit="hour" times={times} series={durations} />
      </Panel>
    </div>
  )
}
