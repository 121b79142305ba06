/** Loading an audience: members inserted by another program, and `audience import`. */
import { spawnSync } from 'node:child_process'
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { performance } from 'node:perf_hooks'
import { openDatabase } from './database.mjs'
import { median } from './load.mjs'
import { MAIN, urlOf } from './targets.mjs'

/** Columns that each load fills, beside account, organization and user id. */
const LOADS = {
  'without a name': {},
  named: { display_name: 'name' },
  'named, with externalId': { display_name: 'name', external_id: `'customer-' || i` },
  'named, with two tags': { display_name: 'name', tags: `'{vip,new}'` },
}

const IMPORTS = {
  'externalId and tags': (userId, i) => ({ userId, externalId: `c${i}`, tags: ['vip'] }),
  'the same again': (userId, i) => ({ userId, externalId: `c${i}`, tags: ['vip'] }),
  attributes: (userId, i) => ({ userId, attributes: { cups: i } }),
}

export async function run({ smoke }) {
  const members = smoke ? 1_000 : 200_000
  const entries = smoke ? 200 : 20_000
  const rounds = smoke ? 1 : 3
  const { directory, server, database, close } = await openDatabase()
  try {
    const query = (text) => database.session((session) => session.query(text))
    await addPeople(query, members)
    const rates = Object.fromEntries(['a plain table', ...Object.keys(LOADS)].map((name) => [name, []]))
    for (let round = 0; round < rounds; round += 1) {
      rates['a plain table'].push(await plainly(query, members))
      for (const [name, columns] of Object.entries(LOADS)) {
        rates[name].push(await load(query, { members, columns }))
      }
    }
    console.log(`${members} members by one insert, ${rounds} rounds, each into an empty table`)
    for (const [name, perSecond] of Object.entries(rates)) {
      const ratio = median(perSecond) / median(rates['a plain table'])
      console.log(
        `  ${name.padEnd(24)} ${String(Math.round(median(perSecond))).padStart(7)} rows/s   ratio ${ratio.toFixed(2)}`,
      )
    }
    await importEntries({ query, directory, server, database, members, entries })
  } finally {
    await close()
  }
}

async function addPeople(query, members) {
  await query(`insert into organization (name) values ('bench')`)
  await query(`insert into official_account (organization_id, name) values (1, 'bench')`)
  await query(
    `create table person as
     select i, 'U' || md5(i::text) as user_id,
            (array['Ann', 'Somchai', 'สมหญิง', '山田花子', 'Kenji', 'Mali', 'Ploy', '王小明'])[1 + i % 8] || ' ' || i as name
       from generate_series(1, ${members}) i`,
  )
  await query(
    `create table plain (id bigint generated always as identity primary key, user_id text unique, name text)`,
  )
  await query('analyze')
}

/** The reference: a table with two indexes. Rows per second. */
async function plainly(query, members) {
  await query('truncate plain')
  await query('checkpoint')
  return rate(members, () => query('insert into plain (user_id, name) select user_id, name from person'))
}

async function load(query, { members, columns }) {
  await query('delete from audience_member')
  await query('vacuum audience_member, audience_tag')
  await query('checkpoint')
  const names = ['channel_oa_id', 'organization_id', 'user_id', ...Object.keys(columns)]
  const values = ['1', '1', 'user_id', ...Object.values(columns)]
  return rate(members, () =>
    query(`insert into audience_member (${names.join(', ')}) select ${values.join(', ')} from person`),
  )
}

async function rate(rows, work) {
  const started = performance.now()
  await work()
  return rows / ((performance.now() - started) / 1000)
}

/** Entries per second of `audience import`, with the start of the command. */
async function importEntries({ query, directory, server, database, members, entries }) {
  await load(query, { members, columns: LOADS.named })
  await query('vacuum analyze')
  const people = await database.query('select user_id from audience_member order by random() limit $1', [
    entries,
  ])
  const file = join(directory, 'members.ndjson')
  console.log(`audience import of ${people.length} entries`)
  for (const [name, entryOf] of Object.entries(IMPORTS)) {
    writeFileSync(file, people.map(({ user_id }, i) => `${JSON.stringify(entryOf(user_id, i))}\n`).join(''))
    const args = [MAIN, 'audience', 'import', '--account', '1', file]
    const started = performance.now()
    const { status, stderr } = spawnSync(process.execPath, args, {
      env: { PATH: process.env.PATH, DATABASE_URL: urlOf(server) },
      encoding: 'utf8',
    })
    if (status !== 0) throw new Error(`the import failed: ${stderr}`)
    const perSecond = people.length / ((performance.now() - started) / 1000)
    console.log(`  ${name.padEnd(24)} ${String(Math.round(perSecond)).padStart(7)} entries/s`)
  }
}
