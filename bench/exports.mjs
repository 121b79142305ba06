/** `events export` of an account with nearly all events, and of one with a thousandth of them. */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { rmSync, statSync } from 'node:fs'
import { join } from 'node:path'
import { performance } from 'node:perf_hooks'
import { openDatabase } from './database.mjs'
import { median } from './load.mjs'
import { readProcess } from './processes.mjs'
import { MAIN, urlOf } from './targets.mjs'

const OUTPUTS = ['events.ndjson', 'events.ndjson.gz']
const PAGE = 2_000

export async function run({ smoke }) {
  const events = smoke ? 5_000 : 500_000
  const rounds = smoke ? 1 : 3
  const { directory, server, database, close } = await openDatabase()
  try {
    const query = (text, values) => database.session((session) => session.query(text, values))
    await addEvents(query, events)
    const plain = []
    const rates = Object.fromEntries(OUTPUTS.map((name) => [name, []]))
    let rssMiB = 0
    for (let round = 0; round < rounds; round += 1) {
      plain.push(await readPayloads(database))
      for (const name of OUTPUTS) {
        const result = await exportTo(server, { account: 1, file: join(directory, name) })
        rates[name].push(result.perSecond)
        rssMiB = Math.max(rssMiB, result.rssMiB)
      }
    }
    console.log(`${events} events, ${rounds} rounds, the start of the command included`)
    console.log(`  payloads alone, in pages     ${String(Math.round(median(plain))).padStart(7)}/s`)
    for (const [name, perSecond] of Object.entries(rates)) {
      const ratio = (median(perSecond) / median(plain)).toFixed(2)
      console.log(
        `  ${name.padEnd(28)} ${String(Math.round(median(perSecond))).padStart(7)}/s   ratio ${ratio}`,
      )
    }
    const few = await exportTo(server, { account: 2, file: join(directory, 'few.ndjson') })
    const { count, seconds, startSeconds } = few
    console.log(
      `  account with one in 1,000: ${count} events in ${seconds.toFixed(2)} s, of it ${startSeconds.toFixed(2)} s to start`,
    )
    console.log(`  memory of the command up to ${Math.round(rssMiB)} MiB`)
  } finally {
    await close()
  }
}

/** Text messages of two weeks, as LINE sends them, in the partitions of their weeks. */
async function addEvents(query, events) {
  await query(`insert into organization (name) values ('bench')`)
  await query(
    `insert into official_account (organization_id, name) select 1, 'bench' from generate_series(1, 2)`,
  )
  await query(
    `insert into event (channel_oa_id, source, kind, key, occurred_at, received_at, user_id, payload)
     select case when i % 1000 = 0 then 2 else 1 end, 'line', 'message', gen_random_uuid(), at, at, user_id,
            json_build_object('type', 'message', 'mode', 'active', 'timestamp', 1764000000000 + i, 'webhookEventId', '01KAQ' || md5(i::text),
              'deliveryContext', json_build_object('isRedelivery', false), 'source', json_build_object('type', 'user', 'userId', user_id),
              'replyToken', md5(i::text), 'message', json_build_object('type', 'text', 'id', (500000000000 + i)::text,
              'quoteToken', md5(i::text) || md5(user_id), 'text', 'Good morning, is the shop open today?'))::text
       from generate_series(1, $1::int) i
      cross join lateral (select now() - interval '1 hour' - ($1 - i) * interval '1 second' as at, 'U' || md5((i % 5000)::text) as user_id) e`,
    [events],
  )
  await query('vacuum analyze event')
  await query('checkpoint')
}

/** The reference: the payloads in the same order, without anything else. Events per second. */
async function readPayloads(database) {
  const started = performance.now()
  let count = 0
  for (let after = { at: '2000-01-01Z', id: 0n }; ; ) {
    const rows = await database.query(
      `select id, received_at::text as at, payload from event
        where channel_oa_id = 1 and received_at > '-infinity' and received_at >= $1 and (received_at, id) > ($1, $2)
        order by received_at, id limit ${PAGE}`,
      [after.at, after.id],
    )
    count += rows.length
    if (rows.length < PAGE) return count / ((performance.now() - started) / 1000)
    after = rows.at(-1)
  }
}

async function exportTo(server, { account, file }) {
  const env = { ...process.env, DATABASE_URL: urlOf(server) }
  const args = [
    'events',
    'export',
    '--account',
    String(account),
    '--from',
    '2000-01-01',
    '--output',
    file,
    '--json',
  ]
  const started = performance.now()
  const child = spawn(process.execPath, [MAIN, ...args], {
    env,
    stdio: ['ignore', 'pipe', 'ignore'],
  })
  let rssMiB = 0
  let startSeconds = 0
  const watch = setInterval(() => {
    rssMiB = Math.max(rssMiB, readProcess(child.pid)?.rssMiB ?? 0)
    startSeconds ||=
      (statSync(file, { throwIfNoEntry: false })?.size ?? 0) > 0 ? (performance.now() - started) / 1000 : 0
  }, 10)
  let output = ''
  child.stdout.on('data', (chunk) => {
    output += chunk
  })
  const [status] = await once(child, 'close')
  clearInterval(watch)
  if (status !== 0) throw new Error('the export failed')
  const seconds = (performance.now() - started) / 1000
  rmSync(file)
  const count = JSON.parse(output).events
  return { count, seconds, perSecond: count / seconds, rssMiB, startSeconds }
}
