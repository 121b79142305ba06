/** Draws the figures of a run as SVG: a grid of small panels with the kills, on white. */
import { PANELS, wholeMinutes } from './series.mjs'
import { shown } from './summary.mjs'

const COLUMNS = 3
const PANEL = { width: 400, height: 222 }
/** Around the area of the curves: title and legend above, minutes below, numbers on the left. */
const MARGIN = { top: 56, right: 12, bottom: 22, left: 46 }
const AREA = {
  width: PANEL.width - MARGIN.left - MARGIN.right,
  height: PANEL.height - MARGIN.top - MARGIN.bottom,
}
const HEADER = 34
const COLOURS = ['#1f77b4', '#d95f02', '#2ca02c', '#7b3fa0', '#8c564b', '#17a2b8']
const KILLS = {
  service: { colour: '#e6a100', text: 'kill of service-1' },
  postgres: { colour: '#cc2936', text: 'kill of PostgreSQL' },
}
const TICKS = 4
/** About, at this font size. */
const CHARACTER_WIDTH = 5.9

/**
 * @param {object[]} lines of figures
 * @returns {string} an SVG document
 */
export function plot(lines) {
  const minutes = wholeMinutes(lines)
  const last = Math.max(1, ...lines.map(({ minute }) => minute))
  const kills = lines.flatMap(({ events }) => events).filter(({ kind }) => kind in KILLS)
  const panels = PANELS.map((panel, i) => {
    const x = (i % COLUMNS) * PANEL.width
    const y = HEADER + Math.floor(i / COLUMNS) * PANEL.height
    return `<g transform="translate(${x} ${y})">${drawPanel(panel, minutes, kills, last)}</g>`
  })
  const width = COLUMNS * PANEL.width
  const height = HEADER + Math.ceil(PANELS.length / COLUMNS) * PANEL.height
  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${height}" width="${width}" height="${height}" font-family="sans-serif" font-size="10">
<title>Figures of a soak, minute by minute</title>
<rect width="100%" height="100%" fill="#fff"/>
${drawHeader()}
${panels.join('\n')}
</svg>
`
}

function drawHeader() {
  const legend = Object.values(KILLS).map(
    ({ colour, text }, i) =>
      `<line x1="${MARGIN.left + i * 170}" x2="${MARGIN.left + 18 + i * 170}" y1="16" y2="16" stroke="${colour}" stroke-width="2"/>` +
      label(MARGIN.left + 24 + i * 170, 20, text, '#333'),
  )
  return legend.join('') + label(MARGIN.left + 2 * 170, 20, 'horizontal axis: minutes', '#333')
}

function drawPanel({ title, unit, isLogarithmic = false, series }, minutes, kills, last) {
  const curves = series.map(({ value }) =>
    minutes.map(({ line, before }) => ({ minute: line.minute, value: value(line, before) })),
  )
  const known = curves.flat().flatMap(({ value }) => (value === null ? [] : [value]))
  const scale = isLogarithmic ? logarithmicScale(known) : linearScale(known)
  const x = (minute) => MARGIN.left + (minute / last) * AREA.width
  const y = (value) => MARGIN.top + AREA.height * (1 - scale.share(value))
  const grid = scale.ticks.map(
    (tick) =>
      `<line x1="${MARGIN.left}" x2="${MARGIN.left + AREA.width}" y1="${y(tick).toFixed(1)}" y2="${y(tick).toFixed(1)}" stroke="#e4e4e4"/>` +
      label(MARGIN.left - 4, y(tick) + 3, shown(tick), '#555', 'end'),
  )
  const marks = kills.map(({ kind, s }) => {
    const at = x(s / 60).toFixed(1)
    return `<line x1="${at}" x2="${at}" y1="${MARGIN.top}" y2="${MARGIN.top + AREA.height}" stroke="${KILLS[kind].colour}" stroke-opacity="0.45"/>`
  })
  const paths = curves.map((points, i) => {
    const path = pathOf(points, x, y)
    return path === '' ? '' : `<path d="${path}" fill="none" stroke="${COLOURS[i]}" stroke-width="1.3"/>`
  })
  const axis = ticksOf(last).map((minute) =>
    label(x(minute), PANEL.height - 8, String(minute), '#555', 'middle'),
  )
  return [
    `<text x="${MARGIN.left}" y="14" font-size="12" font-weight="bold" fill="#111">${escaped(title)}</text>`,
    label(PANEL.width - MARGIN.right, 14, unit, '#555', 'end'),
    ...drawLegend(series),
    ...grid,
    ...marks,
    ...paths,
    ...axis,
  ].join('')
}

/** In two lines if one is too short. */
function drawLegend(series) {
  let x = MARGIN.left
  let y = 28
  return series.map(({ name }, i) => {
    const width = 24 + name.length * CHARACTER_WIDTH
    if (x + width > PANEL.width) {
      x = MARGIN.left
      y += 13
    }
    const text =
      `<line x1="${x}" x2="${x + 10}" y1="${y}" y2="${y}" stroke="${COLOURS[i]}" stroke-width="2.5"/>` +
      label(x + 13, y + 3, name, '#333')
    x += width
    return text
  })
}

/** Interrupted where a value is not known. */
function pathOf(points, x, y) {
  let isDrawing = false
  return points
    .map(({ minute, value }) => {
      const command = isDrawing ? 'L' : 'M'
      isDrawing = value !== null
      return value === null ? '' : `${command}${x(minute).toFixed(1)} ${y(value).toFixed(1)}`
    })
    .join('')
}

function linearScale(values) {
  const ticks = ticksOf(Math.max(...values, 0) || 1)
  const top = Math.max(ticks.at(-1), ...values)
  return { ticks, share: (value) => value / top }
}

function logarithmicScale(values) {
  const positive = values.filter((value) => value > 0)
  const lowest = Math.floor(Math.log10(Math.min(...positive, 10)))
  const highest = Math.max(lowest + 1, Math.ceil(Math.log10(Math.max(...positive, 10))))
  const ticks = Array.from({ length: highest - lowest + 1 }, (_, i) => 10 ** (lowest + i))
  const share = (value) => Math.max(0, (Math.log10(Math.max(value, 1e-9)) - lowest) / (highest - lowest))
  return { ticks, share }
}

/** From 0 in round steps of 1, 2 or 5. */
function ticksOf(top) {
  const rough = top / TICKS
  const power = 10 ** Math.floor(Math.log10(rough))
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((one) => one >= rough * 0.999)
  return Array.from({ length: Math.floor(top / step + 0.001) + 1 }, (_, i) =>
    Number((i * step).toPrecision(6)),
  )
}

function label(x, y, text, colour, anchor = 'start') {
  return `<text x="${x.toFixed(1)}" y="${y.toFixed(1)}" fill="${colour}" text-anchor="${anchor}">${escaped(text)}</text>`
}

const escaped = (text) => text.replaceAll('&', '&amp;').replaceAll('<', '&lt;')
