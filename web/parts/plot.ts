/** uPlot with the colours and the language of the page. */
import uPlot from 'uplot'
import 'uplot/dist/uPlot.min.css'
import { countLabelsOf, labelsOf, spanOf, ticksOf, type Unit } from './axis.ts'
import type { Series } from './chart.tsx'

const BAR_WIDTH = 0.8
const Y_AXIS_WIDTH = 56
const LABEL_WIDTH = 90
const FONT = '12px system-ui, sans-serif'

export function createChart(
  element: HTMLElement,
  {
    times,
    series,
    height,
    language,
    unit,
  }: { times: number[]; series: Series[]; height: number; language: string; unit: Unit },
): uPlot {
  const style = getComputedStyle(document.documentElement)
  const colour = (name: string) => style.getPropertyValue(name).trim()
  const axis: uPlot.Axis = {
    stroke: colour('--muted'),
    font: FONT,
    grid: { stroke: colour('--line'), width: 1 },
    ticks: { stroke: colour('--line'), width: 1 },
  }
  const locale = `${language}-u-ca-gregory-nu-latn`
  const options: uPlot.Options = {
    width: element.clientWidth,
    height,
    legend: { show: false },
    cursor: { y: false, points: { size: 6 } },
    scales: {
      x: { time: true, range: (_, low, high) => spanOf(low, high, unit) },
      y: { range: (_, low, high) => rangeOf(series, low, high) },
    },
    axes: [
      {
        ...axis,
        // uPlot would label times between the points, and write them with the same day.
        splits: ({ width }, _, low, high) => {
          const visible = times.filter((time) => time >= low && time <= high)
          return ticksOf(visible, unit, Math.floor((width - Y_AXIS_WIDTH) / LABEL_WIDTH))
        },
        values: (_, splits) => labelsOf(splits, unit, locale),
      },
      { ...axis, values: (_, splits) => countLabelsOf(splits, locale), size: Y_AXIS_WIDTH },
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
