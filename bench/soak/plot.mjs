/** Draws the figures of a run as SVG: a small panel per subject, with the kills as vertical lines. */

const COLUMNS = 3
const WIDTH = 400
const HEIGHT = 200
/** Around the curves: title and legend above, minutes below, numbers on the left. */
const MARGIN = { top: 42, right: 12, bottom: 22, left: 46 }
const COLOURS = ['#1f77b4', '#d95f02', '#2ca02c', '#7b3fa0', '#8c564b', '#17a2b8']
const KILLS = { service: '#e6a100', postgres: '#cc2936' }
const TICKS = 4
const MIB_KIB = 1024

/** A line that covers less than half a minute has too few requests for a rate. */
export const wholeMinutes = (lines) => lines.filter(({ seconds }) => seconds > 30)

const PROCESSES = ['service-1', 'service-2', 'driver', 'postgres']
const seriesOf = (names, value) =>
  Object.fromEntries(names.map((name) => [name, (line) => value(line, name)]))
const ofProcesses = (field) => seriesOf(PROCESSES, ({ processes }, name) => processes[name]?.[field])
const sizes = (...names) =>
  seriesOf(names, ({ tables }, name) => tables && (tables[name][0] + tables[name][1]) / MIB_KIB)
const times = (part) =>
  seriesOf(['line', 'large', 'tracking', 'update', 'page', 'stream'], ({ ms }, kind) => ms[kind]?.[part])

/** Each panel: title, unit, and a function of a line per curve. A value of null is not known. */
export const PANELS = [
  [
    'Acknowledged events',
    'per second',
    seriesOf(['line', 'chat', 'tracking'], ({ rates }, name) => rates[name]),
  ],
  ['Response times, p50', 'ms', times(0)],
  ['Response times, p99', 'ms', times(1)],
  [
    'Failed attempts',
    'per minute',
    seriesOf(['0', '503', '500', '429'], ({ statuses }, status) => statuses[status] ?? 0),
  ],
  ['Endpoints received', 'per second', seriesOf(['forwarded', 'changes'], ({ rates }, name) => rates[name])],
  ['Memory', 'MiB of RSS', ofProcesses('rss')],
  ['File descriptors', 'open', ofProcesses('fds')],
  ['Processor', 'cores', ofProcesses('cpu')],
  ['Large tables with indexes', 'MiB', sizes('event', 'event_key', 'tracking_event', 'audience_member')],
  [
    'Small tables with indexes',
    'MiB',
    sizes('tracked_activity', 'endpoint_delivery', 'member_edit', 'erased_person'),
  ],
  [
    'Dead rows',
    'thousands',
    seriesOf(
      ['audience_member', 'endpoint_delivery', 'event_key'],
      ({ tables }, name) => tables && tables[name][2] / 1000,
    ),
  ],
  ['Backlog', 'rows', seriesOf(['deliveries', 'profiles'], ({ backlog }, name) => backlog?.[name])],
  [
    'Partitions',
    'number',
    seriesOf(['event', 'tracking_event'], ({ partitions }, name) => partitions?.[name]),
  ],
  ['Database and WAL written', 'MiB', seriesOf(['databaseMiB', 'walMiB'], (line, name) => line[name])],
  ['Maintenance, longest run', 'ms', { maintenance: ({ maintenance }) => maintenance.longestMs }],
]

export function shown(value) {
  if (value === null) return '-'
  return value >= 100 ? String(Math.round(value)) : String(Number(value.toPrecision(3)))
}

/**
 * @param {object[]} lines of figures
 * @returns {string} an SVG document
 */
export function plot(lines) {
  const last = Math.max(1, lines.length)
  const kills = lines.flatMap(({ events }) => events).filter(({ kind }) => kind in KILLS)
  const panels = PANELS.map((panel, i) => {
    const at = `${(i % COLUMNS) * WIDTH} ${Math.floor(i / COLUMNS) * HEIGHT}`
    return `<g transform="translate(${at})">${drawPanel(panel, wholeMinutes(lines), kills, last)}</g>`
  })
  const [width, height] = [COLUMNS * WIDTH, Math.ceil(PANELS.length / COLUMNS) * HEIGHT]
  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${height}" font-family="sans-serif" font-size="10">
<title>Figures of a soak by minute. Vertical lines: kills of service-1 (yellow) and of PostgreSQL (red)</title>
<rect width="100%" height="100%" fill="#fff"/>
${panels.join('\n')}
</svg>
`
}

function drawPanel([title, unit, series], minutes, kills, last) {
  const curves = Object.values(series).map((value) =>
    minutes.flatMap((line) => (value(line) == null ? [] : [{ minute: line.minute, value: value(line) }])),
  )
  const top = Math.max(0, ...curves.flat().map(({ value }) => value)) || 1
  const x = (minute) => (MARGIN.left + (minute / last) * (WIDTH - MARGIN.left - MARGIN.right)).toFixed(1)
  const y = (value) =>
    (HEIGHT - MARGIN.bottom - (value / top) * (HEIGHT - MARGIN.top - MARGIN.bottom)).toFixed(1)
  const parts = Array.from({ length: TICKS + 1 }, (_, i) => i / TICKS)
  return [
    `<text x="${MARGIN.left}" y="14" font-size="12" font-weight="bold">${title}, ${unit}</text>`,
    ...Object.keys(series).map(
      (name, i) => `<text x="${MARGIN.left + i * 58}" y="30" fill="${COLOURS[i]}">${name}</text>`,
    ),
    ...parts.map(
      (part) => horizontal(y(part * top)) + label(MARGIN.left - 4, y(part * top), shown(part * top)),
    ),
    ...parts.map((part) => label(x(part * last), HEIGHT - 6, shown(part * last))),
    ...kills.map(({ kind, s }) => vertical(x(s / 60), KILLS[kind])),
    ...curves.map((points, i) => {
      const path = points.map(({ minute, value }) => `${x(minute)},${y(value)}`).join(' ')
      return `<polyline points="${path}" fill="none" stroke="${COLOURS[i]}" stroke-width="1.3"/>`
    }),
  ].join('')
}

const label = (x, y, text) => `<text x="${x}" y="${y}" fill="#555" text-anchor="end">${text}</text>`
const horizontal = (y) => `<path d="M${MARGIN.left} ${y}H${WIDTH - MARGIN.right}" stroke="#e4e4e4"/>`
const vertical = (x, colour) =>
  `<path d="M${x} ${MARGIN.top}V${HEIGHT - MARGIN.bottom}" stroke="${colour}" stroke-opacity="0.45"/>`
