/** Charts over time, drawn by uPlot, which is loaded only where a chart is shown. A table shows the same numbers. */
import { useEffect, useRef } from 'preact/hooks'
import type uPlotClass from 'uplot'
import { useLocalized } from '../texts.ts'
import { labelsOf, type Unit } from './axis.ts'
import { type Column, Table } from './table.tsx'

export interface Series {
  label: string
  values: Array<number | null>
  /** where the bars end, such as below zero; by default, at the values */
  drawn?: Array<number | null>
  /** a custom property of the style sheet */
  colour: string
  kind: 'bars' | 'line'
  isDashed?: boolean
}

const HEIGHT = 220

export function Chart({
  title,
  times,
  series,
  unit,
}: {
  title: string
  unit: Unit
  /** seconds since 1970 */
  times: number[]
  series: Series[]
}) {
  const { locale } = useLocalized()
  const place = useRef<HTMLDivElement>(null)
  useEffect(() => {
    let chart: uPlotClass | null = null
    let isGone = false
    const draw = async () => {
      const { createChart } = await import('./plot.ts')
      chart?.destroy()
      if (!isGone && place.current !== null)
        chart = createChart(place.current, { times, series, height: HEIGHT, locale, unit })
    }
    void draw()
    // A canvas keeps its colours, so a change of the colour scheme draws it again.
    const scheme = matchMedia('(prefers-color-scheme: dark)')
    scheme.addEventListener('change', draw)
    const observer = new ResizeObserver(([entry]) => {
      if (entry) chart?.setSize({ width: Math.floor(entry.contentRect.width), height: HEIGHT })
    })
    if (place.current !== null) observer.observe(place.current)
    return () => {
      isGone = true
      scheme.removeEventListener('change', draw)
      observer.disconnect()
      chart?.destroy()
    }
  }, [times, series, locale])
  return (
    <figure class="chart">
      <figcaption class="legend">
        {series.map(({ label, colour, isDashed }) => (
          <span key={label} class={`key ${colour.slice(2)} ${isDashed ? 'dashed' : ''}`}>
            {label}
          </span>
        ))}
      </figcaption>
      <div ref={place} class="plot" role="img" aria-label={title} />
      <Numbers unit={unit} times={times} series={series} />
    </figure>
  )
}

/** The numbers of the chart, for people who cannot see it. */
function Numbers({ unit, times, series }: { unit: Unit; times: number[]; series: Series[] }) {
  const { t, locale, number } = useLocalized()
  const labels = labelsOf(times, unit, locale, { year: 'numeric' })
  const shown = times
    .map((time, i) => ({ time, i }))
    .filter(({ i }) => series.some(({ values }) => (values[i] ?? null) !== null))
  const textOf = (value: number | null = null) => (value === null ? '–' : number(value))
  return (
    <details>
      <summary>{t.account.chartTable}</summary>
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: the keyboard could not scroll it otherwise */}
      <div class="numbers" tabIndex={0}>
        <Table
          rows={shown.toReversed()}
          keyOf={({ time }) => time}
          headerClass=""
          columns={[
            [t.events.occurred, ({ i }) => labels[i]],
            ...series.map(
              ({ label, values }): Column<(typeof shown)[number]> => [
                label,
                ({ i }) => textOf(values[i]),
                'numeric',
              ],
            ),
          ]}
        />
      </div>
    </details>
  )
}
