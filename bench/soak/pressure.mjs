/** `npm run soak -- --pressure`: each kind of pressure in turn, under open-loop load on two accounts, with books. */
import { randomBytes } from 'node:crypto'
import { mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { performance } from 'node:perf_hooks'
import { setTimeout as sleep } from 'node:timers/promises'
import { addAccount, addOrganization } from '../../dist/src/accounts/provisioning.js'
import { randomUserId } from '../../dist/tools/simulator/events.js'
import { openDatabase } from '../database.mjs'
import { startService, urlOf } from '../targets.mjs'
import { KINDS } from './pressure-kinds.mjs'
import { OpenLoad, percentile } from './pressure-load.mjs'

/** Idle, pressure and the time after it each take this part of a kind's time. */
const PARTS = 3
const NORMAL_WINDOW_MS = 1_000
const NORMAL_LIMIT_MS = 30_000
const POLL_MS = 100
/** Of p99: half a second is normal on a machine with other programs. */
const SLOW_FACTOR = 5
const NORMAL_FLOOR_MS = 250

/** Exit status: 0 if all books are right and every kind was normal again in time. */
export async function pressure({ durationMs, directory }) {
  mkdirSync(directory, { recursive: true })
  const { server, database, close } = await openDatabase()
  const url = urlOf(server)
  let service
  try {
    await database.query('create table other_program (content text)')
    const organizationId = await addOrganization(database, 'pressure')
    const rows = []
    const partMs = durationMs / KINDS.length / PARTS
    for (const kind of KINDS) {
      const accounts = [await add(database, organizationId), await add(database, organizationId)]
      service ??= await startService({ DATABASE_URL: url })
      const row = await measure(kind, partMs, { url, accounts, service, database })
      rows.push(row)
      console.log(line(row))
    }
    writeFileSync(join(directory, 'pressure.json'), `${JSON.stringify(rows, null, 2)}\n`)
    return rows.every(({ wrong, normalMs }) => wrong.length === 0 && normalMs !== null) ? 0 : 1
  } finally {
    service?.child.kill('SIGKILL')
    await close()
  }
}

async function add(database, organizationId) {
  const account = { channelSecret: randomBytes(16).toString('hex'), botUserId: randomUserId() }
  const { id } = await addAccount(database, organizationId, {
    name: 'pressure',
    channel_secret: account.channelSecret,
    bot_user_id: account.botUserId,
  })
  return { ...account, id, organizationId, newPerson: randomUserId() }
}

async function measure(
  { name, isFree, waitsOnce = false, apply },
  partMs,
  { url, accounts, service, database },
) {
  const loads = accounts.map((account) => new OpenLoad(`http://127.0.0.1:${service.port}`, account))
  // The first second compiles code and fills caches.
  await sleep(NORMAL_WINDOW_MS)
  for (const load of loads) load.take()
  await sleep(partMs)
  const idle = loads.map((load) => percentile(load.take().samples, 0.99))

  const end = await apply({ url, accounts, service: service.child })
  for (const load of loads) load.sendsNewPerson = true
  await sleep(partMs)
  const endingMs = performance.now()
  await end()
  const normalMs = await untilNormal(loads, idle, endingMs)
  await sleep(Math.max(0, partMs - (performance.now() - endingMs)))

  await Promise.all(loads.map((load) => load.finish()))
  const [first, other] = loads.map((load) => {
    const { samples, failedAttempts } = load.take()
    return { during: samples.filter(({ atMs }) => atMs < endingMs), failedAttempts }
  })
  return {
    name,
    isFree,
    waitsOnce,
    idleMs: idle[1],
    firstMs: percentile(first.during, 0.99),
    otherMs: percentile(other.during, 0.99),
    failedAttempts: [first.failedAttempts, other.failedAttempts],
    normalMs,
    wrong: await findWrong(database, accounts, loads),
  }
}

/** Milliseconds until a whole second in which all is acknowledged in time, with nothing open from before. Null: not within the limit. */
async function untilNormal(loads, idle, sinceMs) {
  const isNormal = (load, no, fromMs) => {
    const limitMs = Math.max(SLOW_FACTOR * idle[no], NORMAL_FLOOR_MS)
    const window = load.samples.filter(({ atMs }) => atMs >= fromMs)
    // Half of the deliveries that were due: the generator may be late, too.
    const isServed = window.length >= (load.startedPerSecond * NORMAL_WINDOW_MS) / 2000
    return isServed && load.oldestOpenMs > performance.now() - limitMs && percentile(window, 0.99) <= limitMs
  }
  while (performance.now() - sinceMs < NORMAL_LIMIT_MS) {
    await sleep(POLL_MS)
    const fromMs = performance.now() - NORMAL_WINDOW_MS
    if (fromMs >= sinceMs && loads.every((load, no) => isNormal(load, no, fromMs)))
      return performance.now() - sinceMs
  }
  return null
}

/** Compares what is stored with what was acknowledged: all deliveries are, so the counts are equal. */
async function findWrong(database, accounts, loads) {
  const wrong = []
  for (const [no, { id }] of accounts.entries()) {
    const stored = await database.query(
      `select m.user_id, m.event_count::int as counted, count(e.*)::int as events
         from audience_member m left join event e on e.channel_oa_id = m.channel_oa_id and e.user_id = m.user_id
        where m.channel_oa_id = $1 group by 1, 2`,
      [id],
    )
    const { book } = loads[no]
    if (stored.length !== book.size) wrong.push(`${stored.length} members instead of ${book.size}`)
    for (const { user_id: person, counted, events } of stored) {
      const acknowledged = book.get(person)
      if (counted !== acknowledged || events !== acknowledged)
        wrong.push(`${person}: ${acknowledged} acknowledged, ${events} stored, ${counted} counted`)
    }
  }
  return wrong
}

function line({ name, idleMs, firstMs, otherMs, failedAttempts, normalMs, wrong }) {
  const seconds =
    normalMs === null ? 'not normal within 30 s' : `normal after ${(normalMs / 1000).toFixed(1)} s`
  return [
    name.padEnd(42),
    `p99 idle ${idleMs.toFixed(0)} ms, first account ${firstMs.toFixed(0)}, other ${otherMs.toFixed(0)} (${(otherMs / idleMs).toFixed(1)} ×)`,
    `failed attempts ${failedAttempts.join(' and ')}`,
    seconds,
    wrong.length === 0 ? 'books right' : `WRONG: ${wrong.slice(0, 5).join('; ')}`,
  ].join('; ')
}
