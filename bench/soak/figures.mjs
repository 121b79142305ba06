/** One line of figures a minute, and their trends. README.md has the meaning and the unit of each field. */
import { appendFileSync, writeFileSync } from 'node:fs'
import { loadavg } from 'node:os'
import { join } from 'node:path'
import { findServer } from '../../dist/src/postgres/embedded/postmaster.js'
import { readPostgres, readProcess } from '../processes.mjs'

const KIB = 1024
const HOUR_MINUTES = 60

/** A line that covers less than half a minute has too few requests for a rate. */
const wholeMinutes = (lines) => lines.filter(({ seconds }) => seconds > 30)

const PROCESSES = ['service-1', 'service-2', 'driver', 'postgres']
const seriesOf = (names, value) =>
  Object.fromEntries(names.map((name) => [name, (line) => value(line, name)]))
const ofProcesses = (field) => seriesOf(PROCESSES, ({ processes }, name) => processes[name]?.[field])
const sizes = (...names) =>
  seriesOf(names, ({ tables }, name) => tables && (tables[name][0] + tables[name][1]) / KIB)
const times = (part) =>
  seriesOf(['line', 'large', 'tracking', 'update', 'page', 'stream'], ({ ms }, kind) => ms[kind]?.[part])

/** Each subject: title, unit, and a function of a line per curve. A value of null is not known. */
const SUBJECTS = [
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

function shown(value) {
  if (value === null) return '-'
  return value >= 100 ? String(Math.round(value)) : String(Number(value.toPrecision(3)))
}

/** Partitions count as their table. */
const SELECT_TABLES = `
  select coalesce(p.relname, c.relname) as name, count(p.relname)::int as partitions,
         coalesce(sum(pg_table_size(c.oid)), 0)::float8 / 1024 as heap,
         coalesce(sum(pg_indexes_size(c.oid)), 0)::float8 / 1024 as indexes,
         coalesce(sum(s.n_dead_tup), 0)::float8 as dead
    from pg_class c
    left join pg_inherits i on i.inhrelid = c.oid
    left join pg_class p on p.oid = i.inhparent
    left join pg_stat_user_tables s on s.relid = c.oid
   where c.relkind = 'r' and c.relnamespace = 'public'::regnamespace
   group by 1`

const SELECT_SERVER = `
  select (pg_current_wal_lsn() - '0/0')::float8 as wal, pg_database_size(current_database())::float8 as size,
         (select count(*)::int from pg_stat_activity where backend_type = 'client backend') as connections,
         (select count(*)::int from endpoint_delivery) as deliveries,
         (select count(*)::int from audience_member where profile_due_at <= now()) as profiles`

export class Figures {
  #parts
  #file
  #lastMs = Date.now()
  #before = {}
  #cpu = new Map()
  #latencies = {}
  #statuses = {}
  lines = []

  /** @param parts of the run, whose figures are read */
  constructor(parts, directory) {
    this.#parts = parts
    this.#file = join(directory, 'figures.jsonl')
    writeFileSync(this.#file, '')
    parts.client.onResponse = (kind, status, tookMs) => {
      this.#statuses[status] = (this.#statuses[status] ?? 0) + 1
      if (status < 200 || status >= 300) return
      this.#latencies[kind] ??= []
      this.#latencies[kind].push(tookMs)
    }
  }

  /** Writes the line of the time since the last one. */
  async write() {
    const nowMs = Date.now()
    const seconds = (nowMs - this.#lastMs) / 1000
    this.#lastMs = nowMs
    const { maintenance, receiver, events } = this.#parts
    const line = {
      minute: this.lines.length + 1,
      at: new Date(nowMs).toISOString().slice(0, 19),
      seconds: rounded(seconds),
      rates: this.#rates(seconds),
      repeated: receiver.received.repeated,
      refused: receiver.received.refused,
      ms: mapValues(this.#latencies, percentiles),
      statuses: this.#statuses,
      processes: this.#processes(seconds),
      // PostgreSQL may have been killed within the last seconds.
      ...(await this.#database().catch(() => ({}))),
      maintenance: mapValues(maintenance.take(), Math.round),
      load: rounded(loadavg()[0]),
      heapMiB: rounded(process.memoryUsage().heapUsed / KIB / KIB),
      events: events.splice(0),
    }
    this.#latencies = {}
    this.#statuses = {}
    this.lines.push(line)
    appendFileSync(this.#file, `${JSON.stringify(line)}\n`)
    const { line: lineRate, chat, tracking } = line.rates
    const marks = line.events.map(({ kind }) => kind).join(', ')
    const rate = `${Math.round(lineRate + chat + tracking)} events/s, LINE p99 ${line.ms.line?.[1] ?? '-'} ms`
    console.log(`minute ${line.minute}  ${rate}  database ${line.databaseMiB ?? '-'} MiB  ${marks}`)
  }

  /** The maximum of each curve, and its medians in the first and in the last hour, or in the halves of a shorter run. */
  summarize() {
    const minutes = wholeMinutes(this.lines)
    const span = Math.min(HOUR_MINUTES, Math.ceil(minutes.length / 2))
    const trends = SUBJECTS.flatMap(([title, unit, series]) =>
      Object.entries(series).map(([name, value]) => {
        const values = minutes.map((line) => value(line) ?? null)
        const known = values.filter((one) => one !== null)
        const max = known.length === 0 ? null : Math.max(...known)
        return {
          title,
          name,
          unit,
          max,
          first: median(values.slice(0, span)),
          last: median(values.slice(-span)),
        }
      }),
    )
    const rows = trends.map(({ title, name, unit, max, first, last }) => {
      const numbers = [max, first, last].map((value) => shown(value).padStart(10)).join('')
      return `${`${title}, ${name}`.padEnd(56)}${numbers}  ${unit}`
    })
    const head = `medians of the first and of the last ${span} minutes`.padEnd(60)
    return { text: ['', `${head}maximum     first      last`, ...rows].join('\n'), trends }
  }

  /** Per second since the last line. */
  #rates(seconds) {
    const { load, receiver } = this.#parts
    const now = {
      ...load.acknowledged,
      forwarded: receiver.received.line,
      changes: receiver.received.members,
    }
    const before = this.#before
    this.#before = now
    return mapValues(now, (count, kind) => rounded((count - (before[kind] ?? 0)) / seconds))
  }

  #processes(seconds) {
    const { services, dataDirectory } = this.#parts
    const postmaster = findServer(join(dataDirectory, 'postgres'))
    const pids = {
      'service-1': services[0].pid,
      'service-2': services[1].pid,
      driver: process.pid,
      postgres: postmaster,
    }
    return mapValues(pids, (pid, name) => {
      const read = name === 'postgres' ? readPostgres(pid) : readProcess(pid)
      if (read === null) return null
      const before = this.#cpu.get(pid) ?? 0
      this.#cpu.set(pid, read.cpuSeconds)
      // The sum of PostgreSQL's processes falls when one of them ends before its parent has counted it.
      const cpu = rounded(Math.max(0, read.cpuSeconds - before) / seconds, 100)
      return { rss: rounded(read.rssMiB), fds: read.fds, cpu }
    })
  }

  async #database() {
    const { database } = this.#parts
    const [{ wal, size, connections, deliveries, profiles }] = await database.query(SELECT_SERVER)
    const tables = (await database.query(SELECT_TABLES)).sort((a, b) => a.name.localeCompare(b.name))
    const byName = (rows, value) => Object.fromEntries(rows.map((row) => [row.name, value(row)]))
    return {
      backlog: { deliveries, profiles },
      connections,
      walMiB: rounded(wal / KIB / KIB),
      databaseMiB: rounded(size / KIB / KIB),
      partitions: byName(
        tables.filter(({ partitions }) => partitions > 0),
        ({ partitions }) => partitions,
      ),
      // [KiB of the table, KiB of its indexes, dead rows]
      tables: byName(tables, ({ heap, indexes, dead }) => [heap, indexes, dead]),
    }
  }
}

function percentiles(times) {
  times.sort((a, b) => a - b)
  const at = (part) => rounded(times[Math.floor(times.length * part)])
  return [at(0.5), at(0.99), rounded(times.at(-1))]
}

function median(values) {
  const known = values.filter((value) => value !== null).sort((a, b) => a - b)
  return known[Math.floor(known.length / 2)] ?? null
}

const rounded = (value, steps = 10) => Math.round(value * steps) / steps

const mapValues = (object, map) =>
  Object.fromEntries(Object.entries(object).map(([key, value]) => [key, map(value, key)]))
