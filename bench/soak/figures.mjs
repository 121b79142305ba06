/** One line of figures a minute. README.md has the meaning and the unit of each field. */
import { appendFileSync } from 'node:fs'
import { loadavg } from 'node:os'
import { join } from 'node:path'
import { findServer } from '../../dist/src/postgres/embedded/lock-file.js'
import { readPostgres, readProcess } from '../processes.mjs'

const KIB = 1024
/** A larger table is not counted. The planner's estimate is as old as the last vacuum. */
const COUNTED_MAX = 256 * KIB * KIB
const TABLES = new Set([
  ...[
    'event',
    'event_key',
    'tracking_event',
    'tracked_activity',
    'audience_member',
    'audience_tag',
    'member_edit',
  ],
  ...[
    'erased_member',
    'erased_person',
    'unsent_message',
    'endpoint_delivery',
    'change_mark',
    'delivery_hour',
  ],
])

/** Partitions count as their table. */
const SELECT_TABLES = `
  select coalesce(p.relname, c.relname) as name, count(p.relname)::int as partitions,
         coalesce(sum(pg_table_size(c.oid)), 0)::float8 as heap, coalesce(sum(pg_indexes_size(c.oid)), 0)::float8 as indexes,
         coalesce(sum(s.n_dead_tup), 0)::float8 as dead, sum(greatest(c.reltuples, 0))::float8 as estimate
    from pg_class c
    left join pg_inherits i on i.inhrelid = c.oid
    left join pg_class p on p.oid = i.inhparent
    left join pg_stat_user_tables s on s.relid = c.oid
   where c.relkind = 'r' and c.relnamespace = 'public'::regnamespace
   group by 1`

const SELECT_SERVER = `
  select (pg_current_wal_lsn() - '0/0')::float8 as wal, (select checkpoint_lsn::text from pg_control_checkpoint()) as checkpoint,
         (select count(*)::int from pg_stat_activity where backend_type = 'client backend') as connections,
         (select count(*)::int from endpoint_delivery) as backlog,
         (select count(*)::int from audience_member where profile_due_at <= now()) as profiles,
         (select coalesce(extract(epoch from max(clock_timestamp() - xact_start)), 0)::float8
            from pg_stat_activity where backend_type = 'client backend') as oldest,
         pg_database_size(current_database())::float8 as size`

export class Figures {
  #parts
  #file
  #startedMs = Date.now()
  #minute = 0
  #lastMs = Date.now()
  #before = null
  #cpu = new Map()
  #checkpoint = null
  lines = []

  /** @param parts of the run, whose figures are read */
  constructor(parts, directory) {
    this.#parts = parts
    this.#file = join(directory, 'figures.jsonl')
  }

  /** Writes the line of the time since the last one. */
  async write() {
    const nowMs = Date.now()
    const seconds = (nowMs - this.#lastMs) / 1000
    this.#lastMs = nowMs
    this.#minute += 1
    const { requests, load, maintenance, events } = this.#parts
    const { latencies, statuses, longestMs } = requests.take()
    const line = {
      minute: this.#minute,
      at: new Date(nowMs).toISOString().slice(0, 19),
      seconds: rounded(seconds),
      ...this.#rates(seconds),
      ms: Object.fromEntries([...latencies].map(([kind, times]) => [kind, percentiles(times)])),
      longestMs: Math.round(longestMs),
      statuses,
      dropped: load.takeDropped(),
      inFlight: load.inFlight,
      processes: this.#processes(seconds),
      ...(await this.#database()),
      maintenance: mapValues(maintenance.take(), Math.round),
      load: rounded(loadavg()[0]),
      heapMiB: rounded(process.memoryUsage().heapUsed / KIB / KIB),
      events: events.splice(0),
    }
    this.lines.push(line)
    appendFileSync(this.#file, `${JSON.stringify(line)}\n`)
    console.log(describe(line, nowMs - this.#startedMs))
  }

  /** Acknowledged per second since the last line. */
  #rates(seconds) {
    const { senders, clients, receiver } = this.#parts
    const now = { ...senders.acknowledged, ...clients.acknowledged, forwarded: receiver.received.line }
    now.changes = receiver.received.members
    const before = this.#before ?? mapValues(now, () => 0)
    this.#before = now
    const rates = Object.fromEntries(
      Object.entries(now).map(([kind, count]) => [kind, rounded((count - before[kind]) / seconds)]),
    )
    return { rates, repeated: receiver.received.repeated, refused: receiver.received.refused }
  }

  #processes(seconds) {
    const { services, dataDirectory } = this.#parts
    const read = Object.fromEntries(services.map(({ name, pid }) => [name, { pid, ...readProcess(pid) }]))
    read.driver = { pid: process.pid, ...readProcess(process.pid) }
    const postmaster = findServer(join(dataDirectory, 'postgres'))
    read.postgres = { pid: postmaster, ...readPostgres(postmaster) }
    return mapValues(read, ({ pid, rssMiB = null, fds = null, cpuSeconds = null }) => {
      const before = this.#cpu.get(pid) ?? 0
      if (pid !== null) this.#cpu.set(pid, cpuSeconds)
      // The sum of PostgreSQL's processes falls when one of them ends before its parent has counted it.
      const cpu = cpuSeconds === null ? null : rounded(Math.max(0, cpuSeconds - before) / seconds, 100)
      return { rss: rssMiB === null ? null : rounded(rssMiB), fds, cpu }
    })
  }

  async #database() {
    const { database } = this.#parts
    try {
      const [server] = await database.query(SELECT_SERVER)
      const rows = await database.query(SELECT_TABLES)
      const isNew = this.#checkpoint !== null && server.checkpoint !== this.#checkpoint
      this.#checkpoint = server.checkpoint
      const kept = rows.filter(({ name }) => TABLES.has(name))
      // Counted, because PostgreSQL's own numbers of live rows are lost in a crash.
      for (const table of kept) {
        if (table.heap > COUNTED_MAX) {
          table.rows = table.estimate
          continue
        }
        const [{ count }] = await database.query(`select count(*)::float8 from ${table.name}`)
        table.rows = count
      }
      return {
        backlog: { deliveries: server.backlog, profiles: server.profiles },
        connections: server.connections,
        oldestTransactionMs: Math.round(server.oldest * 1000),
        walMiB: rounded(server.wal / KIB / KIB),
        checkpointed: isNew,
        databaseMiB: rounded(server.size / KIB / KIB),
        partitions: Object.fromEntries(
          rows.filter(({ partitions }) => partitions > 0).map(({ name, partitions }) => [name, partitions]),
        ),
        // [table KiB, indexes KiB, rows, dead rows]
        tables: Object.fromEntries(
          kept.map(({ name, heap, indexes, rows, dead }) => [name, [heap / KIB, indexes / KIB, rows, dead]]),
        ),
      }
    } catch {
      // PostgreSQL was killed within the last seconds.
      return { backlog: null, connections: null, walMiB: null, partitions: null, tables: null }
    }
  }
}

function percentiles(times) {
  times.sort((a, b) => a - b)
  const at = (part) => rounded(times[Math.floor(times.length * part)])
  return [at(0.5), at(0.99), rounded(times.at(-1))]
}

const rounded = (value, steps = 10) => Math.round(value * steps) / steps

const mapValues = (object, map) =>
  Object.fromEntries(Object.entries(object).map(([key, value]) => [key, map(value)]))

function describe({ minute, rates, ms, statuses, processes, backlog, databaseMiB, events }, elapsedMs) {
  const sum = Math.round(rates.line + rates.chat + rates.tracking)
  const rss = Object.entries(processes).map(([name, { rss }]) => `${name} ${rss ?? '-'} MiB`)
  const p99 = ms.line === undefined ? '-' : ms.line[1]
  const marks = events.map(({ kind }) => kind).join(', ')
  return [
    `minute ${String(minute).padStart(3)} (${(elapsedMs / 3_600_000).toFixed(2)} h)`,
    `${sum} events/s, LINE p99 ${p99} ms`,
    `503: ${statuses[503] ?? 0}`,
    `backlog ${backlog?.deliveries ?? '-'}`,
    `${rss.join(', ')}`,
    `database ${databaseMiB ?? '-'} MiB`,
    marks,
  ].join('  ')
}
