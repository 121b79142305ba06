/** Loads the charts of the rows that the table of the fleet shows. */
import { useEffect, useState } from 'preact/hooks'
import type { FleetCharts } from '../../src/watch/fleet.ts'
import { get, type Json } from '../api.ts'
import { useInterval, useSettled } from '../hooks.ts'

type Charts = Json<FleetCharts>

/** Rows that are visible for a shorter time while the page scrolls are not loaded. */
const SETTLED_MS = 100
const REFRESH_MS = 60_000

/** Returns the charts loaded so far, by account. @param ids accounts of the visible rows */
export function useFleetCharts(ids: string[]): Map<string, Charts> {
  const [charts, setCharts] = useState(new Map<string, Charts>())
  const add = (added: Charts[]) =>
    setCharts((before) => new Map([...before, ...added.map((chart) => [chart.id, chart] as const)]))
  const load = (wanted: string[], signal?: AbortSignal) => {
    if (wanted.length === 0) return
    // A row is readable without its charts. The next refresh retries.
    get<{ charts: Charts[] }>(`/api/fleet/charts?ids=${wanted.join(',')}`, signal).then(
      (response) => add(response.charts),
      () => undefined,
    )
  }
  const missing = useSettled(ids.filter((id) => !charts.has(id)).join(','), SETTLED_MS)
  useEffect(() => {
    const abort = new AbortController()
    load(missing.split(',').filter(Boolean), abort.signal)
    return () => abort.abort()
  }, [missing])
  useInterval(REFRESH_MS, () => load(ids))
  return charts
}
