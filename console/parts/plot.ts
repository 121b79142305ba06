/** uPlot with the colours and the language of the page. */
import uPlot from 'uplot'
import 'uplot/dist/uPlot.min.css'
import type { Series } from './chart.tsx'

const BAR_WIDTH = 0.8
const FONT = '12px system-ui, sans-serif'

export function createChart(
  element: HTMLElement,
  {
    times,
    series,
    height,
    language,
    hasDays,
  }: { times: number[]; series: Series[]; height: number; language: string; hasDays: boolean },
): uPlot {
  const style = getComputedStyle(document.documentElement)
  const colour = (name: string) => style.getPropertyValue(name).trim()
  const axis: uPlot.Axis = {
    stroke: colour('--muted'),
    font: FONT,
    grid: { stroke: colour('--line'), width: 1 },
    ticks: { stroke: colour('--line'), width: 1 },
  }
  const count = new Intl.NumberFormat(`${language}-u-nu-latn`, { notation: 'compact' })
  const day = new Intl.DateTimeFormat(`${language}-u-ca-gregory-nu-latn`, { month: 'short', day: 'numeric' })
  const hour = new Intl.DateTimeFormat(`${language}-u-ca-gregory-nu-latn`, {
    month: 'short',
    day: 'numeric',
    hour: '2-digit',
  })
  const options: uPlot.Options = {
    width: element.clientWidth,
    height,
    legend: { show: false },
    cursor: { y: false, points: { size: 6 } },
    scales: { x: { time: true }, y: { range: (_, low, high) => rangeOf(series, low, high) } },
    axes: [
      {
        ...axis,
        values: (_, splits) => splits.map((at) => (hasDays ? day : hour).format(at * 1000)),
        space: 90,
      },
      { ...axis, values: (_, splits) => splits.map((value) => count.format(value)), size: 48 },
    ],
    series: [
      {},
      ...series.map(
        ({ label, colour: name, kind, isDashed }): uPlot.Series => ({
          label,
          stroke: colour(name),
          width: kind === 'bars' ? 0 : 2,
          points: { show: false },
          ...(isDashed ? { dash: [5, 4] } : {}),
          ...(kind === 'bars'
            ? {
                fill: colour(name),
                paths: uPlot.paths.bars?.({ size: [BAR_WIDTH, 40] }) as uPlot.Series.PathBuilder,
              }
            : {}),
        }),
      ),
    ],
  }
  return new uPlot(options, [times, ...series.map(({ values }) => values)] as uPlot.AlignedData, element)
}

/** Bars begin at zero. Lines show how they change. */
function rangeOf(series: Series[], low: number, high: number): [number, number] {
  if (series.some(({ kind }) => kind === 'bars')) return [0, Math.max(4, high * 1.1)]
  const margin = Math.max(2, (high - low) * 0.15)
  return [Math.max(0, low - margin), high + margin]
}
