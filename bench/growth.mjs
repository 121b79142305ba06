/** Whether an event costs more once millions are stored: the same flushes on an empty and on a full database. */
import { performance } from 'node:perf_hooks'
import { findAccount } from '../dist/src/accounts/account.js'
import { addAccount, addOrganization } from '../dist/src/accounts/provisioning.js'
import { flush } from '../dist/src/intake/flush.js'
import { readLineEvent } from '../dist/src/intake/line/line-payload.js'
import { lineSource } from '../dist/src/intake/line/line-source.js'
import { runMaintenance } from '../dist/src/upkeep/maintenance.js'
import { randomUserId, textMessage } from '../dist/tools/simulator/events.js'
import { openDatabase } from './database.mjs'
import { median } from './load.mjs'

const BATCH = 32
const PEOPLE = 10_000

export async function run({ smoke }) {
  const stored = smoke ? 5_000 : 20_000_000
  const { database, close } = await openDatabase()
  try {
    await database.session((session) =>
      runMaintenance(session, {
        retentionDays: 90,
        deduplicationDays: 400,
        trackingRetentionDays: 7,
        auditRetentionDays: 400,
      }),
    )
    const { id } = await addAccount(database, await addOrganization(database, 'bench'), { name: 'bench' })
    const { credentialsVersion } = await findAccount(database, id)
    const admission = { accountId: id, credentialsVersion, source: lineSource }
    const people = Array.from({ length: PEOPLE }, randomUserId)
    const empty = await measureSettled(database, admission, people, smoke)
    console.log(`storing ${stored} events, all of this week …`)
    await database.session((session) => store(session, stored))
    const full = await measureSettled(database, admission, people, smoke)
    console.log(`  at about 0 stored events    ${empty.toFixed(1)} µs an event`)
    console.log(`  at ${String(stored).padStart(8)} stored events  ${full.toFixed(1)} µs an event`)
    console.log(`  full / empty   ${(full / empty).toFixed(2)}`)
  } finally {
    await close()
  }
}

/** Measures after VACUUM, ANALYZE and a checkpoint, and after a warm-up round. */
async function measureSettled(database, admission, people, smoke) {
  await database.session(async (session) => {
    await session.query('vacuum analyze')
    await session.query('checkpoint')
  })
  await measure(database, admission, people, smoke)
  return measure(database, admission, people, smoke)
}

/** Microseconds per event, the median of nine rounds. */
async function measure(database, admission, people, smoke) {
  const rounds = []
  for (let round = 0; round < (smoke ? 2 : 9); round += 1) {
    const batches = Array.from({ length: smoke ? 3 : 60 }, () => batchOf(admission, people))
    const started = performance.now()
    for (const batch of batches) await flush(database.pipeline, batch)
    rounds.push(((performance.now() - started) * 1000) / (batches.length * BATCH))
  }
  return median(rounds)
}

function batchOf(admission, people) {
  const events = Array.from({ length: BATCH }, () =>
    textMessage(people[Math.floor(Math.random() * PEOPLE)], 'Good morning, is the shop open today?'),
  )
  return events.map((event) => ({ admission, event: readLineEvent(event, Date.now()) }))
}

/** Keys like ULIDs of the last hours, and events of members and of people who are not members. */
async function store(session, count) {
  const firstMs = Date.now() - count * 6
  await session.query(
    `insert into event_key (channel_oa_id, key)
     select 1, (lpad(to_hex(${firstMs} + i::bigint * 6), 12, '0') || substr(md5(i::text), 1, 20))::uuid
       from generate_series(1, ${count}) i`,
  )
  await session.query(
    `insert into event (channel_oa_id, source, kind, key, occurred_at, user_id, message_id, payload)
     select 1, 'line', 'message', (lpad(to_hex(${firstMs} + i::bigint * 6), 12, '0') || substr(md5(i::text), 1, 20))::uuid,
            now(), 'U' || md5((i % 100000)::text), i::text, repeat('x', 300)
       from generate_series(1, ${count}) i`,
  )
}
