/** uPlot with the colours and the language of the page. */
import uPlot from 'uplot'
import 'uplot/dist/uPlot.min.css'
import {
  COUNT_STEPS,
  countLabelsOf,
  countRange,
  labelsOf,
  lonePoints,
  spanOf,
  ticksOf,
  type Unit,
} from './axis.ts'
import type { Series } from './chart.tsx'

const BAR_WIDTH = 0.8
/** Pixels between labels, and between a label and its axis. */
const LABEL_GAP = 20
const POINT_SIZE = 6
/** Half a label of a time extends beyond each end of the axis. */
const Y_AXIS_MIN_WIDTH = 56
const PADDING_RIGHT = 32
const FONT = '12px system-ui, sans-serif'

interface Drawing {
  times: number[]
  series: Series[]
  unit: Unit
  locale: string
}

export function createChart(
  element: HTMLElement,
  { height, ...drawing }: Drawing & { height: number },
): uPlot {
  const { times, series, unit, locale } = drawing
  // The value of the property depends on the colour scheme, which a canvas does not know.
  const colour = (name: string) => {
    element.style.color = `var(${name})`
    return getComputedStyle(element).color
  }
  const axis: uPlot.Axis = {
    stroke: colour('--muted'),
    font: FONT,
    grid: { stroke: colour('--line'), width: 1 },
    ticks: { stroke: colour('--line'), width: 1 },
  }
  const widthOf = labelMeasure()
  const options: uPlot.Options = {
    width: element.clientWidth,
    height,
    padding: [null, PADDING_RIGHT, null, null],
    legend: { show: false },
    cursor: { y: false, points: { size: 6 } },
    scales: {
      // uPlot would put a single time at the start of a day.
      x: { time: true, range: (_, low, high) => spanOf(low, times.length === 1 ? low : high, unit) },
      y: { range: (_, low, high) => countRange(low, high) },
    },
    axes: [
      {
        ...axis,
        splits: (chart, _, low, high) => splitsOf(chart, drawing, [low, high], widthOf),
        values: (_, splits) => labelsOf(splits, unit, locale),
      },
      {
        ...axis,
        incrs: COUNT_STEPS,
        values: (_, splits) => countLabelsOf(splits, locale),
        size: (_, labels) => Math.max(Y_AXIS_MIN_WIDTH, widthOf(labels ?? [])),
      },
    ],
    series: [{}, ...series.map((one) => plotSeries(one, colour(one.colour)))],
  }
  return new uPlot(
    options,
    [times, ...series.map(({ values, drawn }) => drawn ?? values)] as uPlot.AlignedData,
    element,
  )
}

/** The times that get a label. uPlot would label times between the points, and write them with the same day. */
function splitsOf(
  { bbox, width }: uPlot,
  { times, unit, locale }: Drawing,
  [low, high]: [number, number],
  widthOf: (labels: string[]) => number,
): number[] {
  const visible = times.filter((time) => time >= low && time <= high)
  const labelWidth = widthOf(labelsOf(visible, unit, locale))
  const half = (labelWidth - LABEL_GAP) / 2
  const [left, plotWidth] = [bbox.left / devicePixelRatio, bbox.width / devicePixelRatio]
  const fitting = visible.filter((time) => {
    const middle = left + ((time - low) / (high - low)) * plotWidth
    return middle >= half && middle <= width - half
  })
  return ticksOf(fitting, unit, Math.floor(plotWidth / labelWidth))
}

function plotSeries({ label, kind, isDashed, values }: Series, colour: string): uPlot.Series {
  if (kind === 'bars') {
    const paths = uPlot.paths.bars?.({ size: [BAR_WIDTH, 40] }) as uPlot.Series.PathBuilder
    return { label, stroke: colour, fill: colour, width: 0, points: { show: false }, paths }
  }
  return {
    label,
    stroke: colour,
    width: 2,
    points: { show: true, size: POINT_SIZE, fill: colour, filter: () => lonePoints(values) },
    ...(isDashed ? { dash: [5, 4] } : {}),
  }
}

/** Returns a function that measures the longest label with its gap, in pixels. Labels of some languages are twice as long. */
function labelMeasure(): (labels: string[]) => number {
  const context = document.createElement('canvas').getContext('2d')
  if (context !== null) context.font = FONT
  return (labels) =>
    LABEL_GAP + Math.ceil(Math.max(0, ...labels.map((label) => context?.measureText(label).width ?? 0)))
}
