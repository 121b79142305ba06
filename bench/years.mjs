/**
 * What a year of deduplication keys costs: the pages that an hour's retention reads, and the flush beside it.
 *
 * A steady state of a B-tree and of partitions is simulated at scale: each of 400 days has its keys, and a run of retention deletes
 * an hour's. "Before" is one table with a BRIN index on received_at, whose freed space is reused.
 */
import { findAccount } from '../dist/src/accounts/account.js'
import { addAccount, addOrganization } from '../dist/src/accounts/provisioning.js'
import { flush } from '../dist/src/intake/flush.js'
import { readLineEvent } from '../dist/src/intake/line/payload.js'
import { lineSource } from '../dist/src/intake/line/source.js'
import { makePartitions, runMaintenance } from '../dist/src/maintenance/maintenance.js'
import { randomUserId, textMessage } from '../dist/tools/simulator/events.js'
import { openDatabase } from './database.mjs'
import { median } from './load.mjs'
import { sessionsUs } from './processes.mjs'

const DAYS = 400
const KEEP = { retentionDays: 90, deduplicationDays: DAYS, trackingRetentionDays: 7 }
const PEOPLE = 2_000
const BATCH_SIZES = [1, 30]
/** Of ten keys, nine begin with a time, as LINE's do, and one with a hash. */
const HASHED_SHARE = 10

export async function run({ smoke }) {
  const stored = smoke ? 40_000 : 20_000_000
  const [empty, full] = [await openTarget(), await openTarget()]
  try {
    console.log(`storing ${stored} keys of ${DAYS} days …`)
    await full.database.session((session) => store(session, full.admission.accountId, stored))
    await measureRetention(full.database, Math.round(stored / DAYS / 24))
    await measureFlushes([empty, full], smoke)
    for (const size of BATCH_SIZES) {
      const [before, after] = [empty, full].map(({ times }) => median(times.get(size)))
      console.log(
        `  flush of ${String(size).padStart(2)}: PostgreSQL ${before.toFixed(0)} µs empty, ${after.toFixed(0)} µs full, ` +
          `full / empty ${(after / before).toFixed(2)}`,
      )
    }
  } finally {
    await empty.close()
    await full.close()
  }
}

/** A database on a server of its own, with an account. */
async function openTarget() {
  const { database, close } = await openDatabase()
  await database.session(makePartitions)
  const { id } = await addAccount(database, await addOrganization(database, 'bench'), { name: 'bench' })
  const { credentialsVersion } = await findAccount(database, id)
  const admission = { accountId: id, credentialsVersion, source: lineSource }
  return { database, close, admission, times: new Map(BATCH_SIZES.map((size) => [size, []])) }
}

/** Pages read by runs of an hour's retention: on the former table, and on the present ones with something and nothing due. */
async function measureRetention(database, hour) {
  const maintain = (session) => runMaintenance(session, KEEP)
  const runs = [
    ['before', 'former_key', (session) => session.query(FORMER_RETENTION)],
    ['now, hashed keys', 'event_key_hashed', maintain],
    ['now, nothing due', 'event_key', maintain],
  ]
  console.log(
    `  keys received in the oldest hour: ${hour}, among them ${Math.round(hour / HASHED_SHARE)} hashed`,
  )
  for (const [label, table, work] of runs) {
    const { pages, blocks, deleted } = await readBy(database, work, table)
    console.log(`  ${label.padEnd(17)} ${blocks} of ${pages} pages read to delete ${deleted} keys`)
  }
}

/** Pages of tables and indexes that `work` reads, from memory or disk. */
async function readBy(database, work, table) {
  const select = `
    select sum(heap_blks_read + heap_blks_hit + coalesce(idx_blks_read + idx_blks_hit, 0))::int as blocks,
           sum(n_tup_del)::int as deleted, sum(pg_total_relation_size(relid) / 8192)::int as pages
      from pg_statio_user_tables io join pg_stat_user_tables using (relid)
     where io.relname ~ '^${table}'`
  const [before] = await database.session((session) => session.query(select))
  // Each session reports its statistics when it ends.
  await database.session(work)
  const [after] = await database.session((session) => session.query(select))
  return {
    pages: before.pages,
    blocks: after.blocks - before.blocks,
    deleted: after.deleted - before.deleted,
  }
}

/** The first keys are an hour beyond retention. In the former table, space was reused: each page has keys of all days. */
async function store(session, accountId, count) {
  await session.query('set synchronous_commit = off')
  const age = `(${DAYS} + 1.0 / 24) * (1 - i::float8 / ${count})`
  for (let month = 1; month <= 14; month += 1) {
    await session.query(`
      do $$
      declare
        month timestamp := date_trunc('month', now() at time zone 'UTC') - interval '${month} months';
      begin
        execute format('create table %I (like event_key including all)', 'event_key_' || to_char(month, 'YYYYMMDD'));
        execute format('create index on %I using brin (received_at)', 'event_key_' || to_char(month, 'YYYYMMDD'));
        execute format('alter table event_key attach partition %I for values from (%L) to (%L)',
          'event_key_' || to_char(month, 'YYYYMMDD'),
          rpad(lpad(to_hex((extract(epoch from month) * 1000)::bigint), 12, '0'), 32, '0'),
          rpad(lpad(to_hex((extract(epoch from month + interval '1 month') * 1000)::bigint), 12, '0'), 32, '0'));
      end $$`)
  }
  await session.query(
    `insert into event_key (channel_oa_id, key, received_at)
     select $1, case when i % ${HASHED_SHARE} = 0 then md5(i::text)
                     else lpad(to_hex((extract(epoch from at) * 1000)::bigint), 12, '0') || substr(md5(i::text), 1, 20) end::uuid, at
       from (select i, now() - ${age} * interval '1 day' as at from generate_series(1, ${count}) i) k`,
    [accountId],
  )
  await session.query(`
    create table former_key (channel_oa_id bigint not null, key uuid not null, received_at timestamptz not null);
    create index on former_key using brin (received_at)`)
  await session.query(
    `insert into former_key select $1, gen_random_uuid(), now() - random() * ${DAYS} * interval '1 day' from generate_series(1, ${count}) i`,
    [accountId],
  )
  await session.query('vacuum analyze')
  await session.query('checkpoint')
}

const FORMER_RETENTION = `
  delete from former_key
   where ctid = any (array(select ctid from former_key where received_at < now() - interval '${DAYS} days' limit 10000))`

/** Adds microseconds of PostgreSQL's processor time per flush to the times of each target. Rounds alternate. */
async function measureFlushes(targets, smoke) {
  const people = Array.from({ length: PEOPLE }, randomUserId)
  const rounds = smoke ? 2 : 12
  // The first rounds warm up.
  for (let round = -rounds; round < rounds; round += 1) {
    for (const { database, admission, times } of targets) {
      for (const [size, figures] of times) {
        const batches = Array.from({ length: smoke ? 3 : 100 }, () => batchOf(admission, people, size))
        const started = await sessionsUs(database)
        for (const batch of batches) await flush(database.pipeline, batch)
        if (round >= 0) figures.push(((await sessionsUs(database)) - started) / batches.length)
      }
    }
  }
}

function batchOf(admission, people, size) {
  const events = Array.from({ length: size }, () =>
    textMessage(people[Math.floor(Math.random() * PEOPLE)], 'Good morning, is the shop open today?'),
  )
  return events.map((event) => ({ admission, event: readLineEvent(event, Date.now()) }))
}
