/** How long the facts of 1,000 accounts take: with few events, and with ten millions stored. */
import { performance } from 'node:perf_hooks'
import { runMaintenance } from '../dist/src/maintenance/maintenance.js'
import { listFleet } from '../dist/src/operator/fleet.js'
import { openDatabase } from './database.mjs'
import { median } from './load.mjs'

const ACCOUNTS = 1_000
const ROUNDS = 21

export async function run({ smoke }) {
  const stored = smoke ? 10_000 : 10_000_000
  const { database, close } = await openDatabase()
  try {
    await database.session(async (session) => {
      const retention = { retentionDays: 90, deduplicationDays: 400, trackingRetentionDays: 7 }
      await runMaintenance(session, retention)
      await addAccounts(session)
    })
    const few = await measure(database)
    console.log(`storing ${stored} events of ${ACCOUNTS} accounts …`)
    await database.session((session) => store(session, stored))
    const many = await measure(database)
    console.log(`  at about 0 stored events    ${few.toFixed(0)} ms for ${ACCOUNTS} accounts`)
    console.log(`  at ${String(stored).padStart(8)} stored events  ${many.toFixed(0)} ms`)
    console.log(`  many / few   ${(many / few).toFixed(2)}`)
  } finally {
    await close()
  }
}

/** Five weeks of deliveries in four of five hours. Every tenth account has been silent for 30 hours. */
async function addAccounts(session) {
  await session.query(`insert into organization (id, name) values (1, 'bench')`)
  await session.query(
    `insert into official_account (id, organization_id, name, channel_id, channel_secret)
     select i, 1, 'Account ' || i, i, 'secret' from generate_series(1, ${ACCOUNTS}) i`,
  )
  await session.query(
    `insert into delivery_hour (channel_oa_id, hour, source, deliveries, accepted, last_at)
     select i, date_trunc('hour', now()) - h * interval '1 hour', source, 10, 12,
            date_trunc('hour', now()) - h * interval '1 hour'
       from generate_series(1, ${ACCOUNTS}) i, generate_series(0, 839) h, unnest(array['line', 'mbox']) source
      where random() < 0.8 and (i % 10 <> 0 or h > 30)`,
  )
  await session.query(
    `insert into account_day (channel_oa_id, day, following, line_followers, line_blocks, first_follows, returns, unfollows)
     select i, (now() at time zone 'UTC')::date - d, 900, 1000 - d, 100, 1, 0, 0
       from generate_series(1, ${ACCOUNTS}) i, generate_series(0, 399) d`,
  )
  await session.query('update account_check set members = 1000, following = 900, blocked = 100')
}

/** One event in ten thousand could not be applied. */
async function store(session, count) {
  await session.query(
    `insert into event (channel_oa_id, source, kind, key, occurred_at, user_id, message_id, payload, failure)
     select 1 + i % ${ACCOUNTS}, 'line', 'message', gen_random_uuid(), now(), 'U' || i % 100000, i::text, repeat('x', 300),
            case when i % 10000 = 0 then 'the user id is too long' end
       from generate_series(1, ${count}) i`,
  )
}

async function measure(database) {
  await database.session((session) => session.query('vacuum analyze'))
  const rounds = []
  for (let round = 0; round < ROUNDS; round += 1) {
    const started = performance.now()
    await listFleet(database, Date.now())
    rounds.push(performance.now() - started)
  }
  return median(rounds)
}
