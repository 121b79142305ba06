/** What the plot and the summary show of each line of figures. */

const MIB_KIB = 1024
const TABLES_SHOWN = {
  large: ['event', 'event_key', 'tracking_event', 'audience_member'],
  small: [
    'tracked_activity',
    'endpoint_delivery',
    'member_edit',
    'erased_member',
    'erased_person',
    'delivery_hour',
  ],
}
const PROCESSES = ['service-1', 'service-2', 'driver', 'postgres']

const sizeOf = (line, table) => {
  const sizes = line.tables?.[table]
  return sizes === undefined ? null : (sizes[0] + sizes[1]) / MIB_KIB
}
const tables = (names, value) => names.map((name) => ({ name, value: (line) => value(line, name) }))
const processes = (names, field, scale = 1) =>
  names.map((name) => ({ name, value: (line) => scaled(line.processes[name]?.[field], scale) }))
const scaled = (value, scale) => (value === null || value === undefined ? null : value / scale)
const percentile = (kind, index) => (line) => line.ms[kind]?.[index] ?? null
const answers = (status) => (line) => line.statuses[status] ?? 0
const walPerMinute = (line, before) =>
  before?.walMiB == null || line.walMiB === null ? null : ((line.walMiB - before.walMiB) * 60) / line.seconds

/**
 * Each series has a name and a function of a line and the line before it. A value of null is not known.
 * @type {Array<{title: string, unit: string, isLogarithmic?: boolean, series: Array<{name: string, value: Function}>}>}
 */
export const PANELS = [
  {
    title: 'Acknowledged events',
    unit: 'per second',
    series: ['line', 'chat', 'tracking'].map((name) => ({ name, value: ({ rates }) => rates[name] })),
  },
  {
    title: 'Answer times, p50',
    unit: 'ms',
    series: ['line', 'large', 'tracking', 'update', 'page', 'stream'].map((name) => ({
      name,
      value: percentile(name, 0),
    })),
  },
  {
    title: 'Answer times, p99',
    unit: 'ms, logarithmic',
    isLogarithmic: true,
    series: ['line', 'large', 'tracking', 'update', 'page'].map((name) => ({
      name,
      value: percentile(name, 1),
    })),
  },
  {
    title: 'Repeated attempts',
    unit: 'per minute',
    series: [
      { name: 'no answer', value: answers(0) },
      { name: '503', value: answers(503) },
      { name: '500', value: answers(500) },
      { name: '429', value: answers(429) },
    ],
  },
  {
    title: 'Endpoints received',
    unit: 'per second',
    series: [
      { name: 'events of LINE', value: ({ rates }) => rates.forwarded },
      { name: 'changes of members', value: ({ rates }) => rates.changes },
    ],
  },
  {
    title: 'Longest time until acknowledged',
    unit: 's',
    series: [{ name: 'with repetitions', value: ({ longestMs }) => longestMs / 1000 }],
  },
  { title: 'Memory', unit: 'MiB of RSS', series: processes(PROCESSES, 'rss') },
  {
    title: 'File descriptors',
    unit: 'open',
    series: [
      ...processes(['service-1', 'service-2', 'driver'], 'fds'),
      ...processes(['postgres'], 'fds', 10).map((series) => ({ ...series, name: 'postgres ÷ 10' })),
    ],
  },
  { title: 'Processor', unit: 'cores', series: processes(PROCESSES, 'cpu') },
  { title: 'Large tables with indexes', unit: 'MiB', series: tables(TABLES_SHOWN.large, sizeOf) },
  { title: 'Small tables with indexes', unit: 'MiB', series: tables(TABLES_SHOWN.small, sizeOf) },
  {
    title: 'Rows',
    unit: 'thousands',
    series: tables(
      ['event', 'event_key', 'tracking_event', 'tracked_activity', 'erased_person'],
      (line, name) => scaled(line.tables?.[name]?.[2], 1000),
    ),
  },
  {
    title: 'Dead rows, as far as PostgreSQL knows',
    unit: 'thousands',
    series: tables(['audience_member', 'endpoint_delivery', 'event_key', 'tracked_activity'], (line, name) =>
      scaled(line.tables?.[name]?.[3], 1000),
    ),
  },
  {
    title: 'Backlog',
    unit: 'rows',
    series: [
      { name: 'deliveries to endpoints', value: ({ backlog }) => backlog?.deliveries ?? null },
      { name: 'profiles due', value: ({ backlog }) => backlog?.profiles ?? null },
    ],
  },
  {
    title: 'Partitions',
    unit: 'number',
    series: ['event', 'tracking_event'].map((name) => ({
      name,
      value: ({ partitions }) => partitions?.[name] ?? null,
    })),
  },
  {
    title: 'Database and WAL',
    unit: 'MiB',
    series: [
      { name: 'database', value: ({ databaseMiB }) => databaseMiB ?? null },
      { name: 'WAL per minute', value: walPerMinute },
    ],
  },
  {
    title: 'Connections and checkpoints',
    unit: 'number',
    series: [
      { name: 'connections', value: ({ connections }) => connections },
      { name: 'minutes with a checkpoint', value: ({ checkpointed }) => (checkpointed ? 1 : 0) },
    ],
  },
  {
    title: 'Load average and maintenance',
    unit: 'processes; 0.1 s',
    series: [
      { name: 'load average (machine)', value: ({ load }) => load },
      { name: 'maintenance', value: ({ maintenance }) => maintenance.longestMs / 100 },
    ],
  },
]

/** A line that covers less than half a minute has too few requests for a rate. */
const isWhole = ({ seconds }) => seconds > 30

/**
 * The lines that cover a minute, each with what happened in it.
 * @returns {Array<{line: object, before: object | undefined}>}
 */
export function wholeMinutes(lines) {
  return lines.map((line, i) => ({ line, before: lines[i - 1] })).filter(({ line }) => isWhole(line))
}
