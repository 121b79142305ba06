/** Reading an audience: pages compared with pgbench and Express, filters at a million and at ten thousand members, exports. */
import { createHash } from 'node:crypto'
import { request } from 'node:http'
import { performance } from 'node:perf_hooks'
import { setTimeout as sleep } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { countMatching } from '../dist/src/audience/list-pages.js'
import { listAll } from '../dist/src/audience/list-statements.js'
import { Secret } from '../dist/src/config/secret.js'
import { signLine } from '../dist/src/line-api/line-signature.js'
import { lineBody, textMessage } from '../dist/tools/simulator/events.js'
import { openDatabase } from './database.mjs'
import { median, send } from './load.mjs'
import { addAudience, CHANNEL_SECRET, CLIENTS, cursorAt, get, random, randomId } from './members.mjs'
import { readProcess } from './processes.mjs'
import { MAIN, pgbench, startTarget, urlOf } from './targets.mjs'

const CONNECTIONS = 8

/** The members look as if nobody had analyzed them. PostgreSQL plans all statements again. */
const FORGET_STATISTICS = `
  delete from pg_statistic where starelid = 'audience_member'::regclass;
  update pg_class set reltuples = -1, relpages = 0, relallvisible = 0 where oid = 'audience_member'::regclass`

const SEGMENTS = {
  recent: {
    tagsAny: ['new'],
    tagsNone: ['staff'],
    followedAfter: '52w',
    lastSeenAfter: '4w',
    eventCountMin: 1,
  },
  vips: { tagsAll: ['vip'], attributes: { cups: 3 }, followedAfter: '52w' },
}
/** Fields that most members are compared with: 18 segments in addition. */
const FIELDS = [
  { tagsAny: ['vip', 'gold'], eventCountMin: 2 },
  { tagsAll: ['new'], tagsNone: ['vip'] },
  { relationship: 'following', language: 'th' },
  { hasExternalId: true, lastSeenAfter: '4w' },
  { attributes: { cups: 3 }, relationship: 'blocked' },
  { lastSeenBefore: '1h', eventCountMax: 9 },
]
for (let weeks = 1; weeks <= 18; weeks += 1)
  SEGMENTS[`mixed ${weeks}`] = { ...FIELDS[weeks % FIELDS.length], followedAfter: `${weeks}w` }

const here = (path) => fileURLToPath(new URL(path, import.meta.url))

export async function run({ smoke }) {
  const [few, many] = smoke ? [500, 2_000] : [10_000, 1_000_000]
  const { directory, server, database, close } = await openDatabase()
  const children = []
  try {
    const start = async (...args) => {
      const env = { DATABASE_URL: urlOf(server), RATE_LIMIT_MAX: '1000000000', LOG_LEVEL: 'info' }
      const target = await startTarget(args, env)
      children.push(target.child)
      return target
    }
    await database.session((session) => session.query(`insert into organization (name) values ('bench')`))
    const small = await addAudience(database, 1n, few)
    await addSegments(database, small)
    const ours = await start(MAIN, 'serve')
    const express = await start(here('./targets/express-audience.mjs'))
    const atFew = await latencies(ours, small, smoke)
    console.log(`loading ${many} members …`)
    const large = await addAudience(database, 2n, many)
    await addSegments(database, large)
    await pages({ server, directory, database, ours, express, large, smoke })
    const atMany = await latencies(ours, large, smoke)
    console.log(`\np50 on one connection, ms: at ${few} members, at ${many}, ratio`)
    for (const [name, ms] of Object.entries(atFew)) {
      const ratio = (atMany[name] / ms).toFixed(2)
      console.log(
        `  ${name.padEnd(24)} ${ms.toFixed(2).padStart(6)} ${atMany[name].toFixed(2).padStart(7)}   ${ratio}`,
      )
    }
    await streams(ours, large)
  } finally {
    for (const child of children) child.kill('SIGKILL')
    await close()
  }
}

async function addSegments(database, { accountId }) {
  for (const [name, condition] of Object.entries(SEGMENTS))
    await database.query('insert into segment (channel_oa_id, name, condition) values ($1, $2, $3)', [
      ...[accountId, name, JSON.stringify(condition)],
    ])
}

/** Pages of 50 by random clients at random positions, compared with the same three selects in pgbench and with Express. */
async function pages({ server, directory, database, ours, express, large, smoke }) {
  const rounds = smoke ? 1 : 5
  const size = smoke ? 100 : 4_000
  const page = listAll.page.text
    .replaceAll('$1', '2')
    .replaceAll('$2', '1')
    .replaceAll('$3', ':after')
    .replaceAll('$4', '51')
    // pgbench takes a colon before a letter for a variable.
    .replaceAll('HH24:MI:SS', 'HH24":"MI":"SS')
    .replaceAll(/\s+/g, ' ')
  const script = [
    `\\set client random(1, ${CLIENTS})`,
    `\\set after random(${large.first}, ${large.last - 60n})`,
    `select id from api_client where client_id = 'client-2-' || :client::int and client_secret = 'secret-' || :client::int and status = 'active' \\gset`,
    `select id, channel_oa_id, organization_id from api_key where api_client_id = :id and key = 'key-client-2-' || :client::int and status = 'active';`,
    `${page};`,
  ].join('\n')
  const results = { ours: [], express: [], pgbench: [], unanalyzed: [] }
  const requests = (path, count) => Array.from({ length: count }, () => get(large, path()))
  const ourPages = () =>
    send({
      port: ours.port,
      connections: CONNECTIONS,
      requests: requests(() => `/api/audience?cursor=${cursorAt(large, randomId(large))}`, size),
    })
  for (let round = 0; round < rounds; round += 1) {
    results.ours.push(await ourPages())
    results.express.push(
      await send({
        port: express.port,
        connections: CONNECTIONS,
        requests: requests(() => `/api/audience?after=${randomId(large)}`, Math.ceil(size / 4)),
      }),
    )
    const disk = pgbench({ server, directory, script, clients: CONNECTIONS, seconds: smoke ? 1 : 5 })
    if (disk !== null) results.pgbench.push(disk)
  }
  await database.session((session) => session.query(FORGET_STATISTICS))
  for (let round = 0; round < rounds; round += 1) results.unanalyzed.push(await ourPages())
  await database.session((session) => session.query('analyze audience_member'))
  const rate = (name) => median(results[name].map(({ perSecond }) => perSecond))
  if ([...results.ours, ...results.express, ...results.unanalyzed].some(({ failures }) => failures > 0))
    throw new Error('some pages failed')
  const p50 = median(results.ours.map(({ p50Ms }) => p50Ms))
  console.log(`pages of 50, ${CONNECTIONS} connections, ${CLIENTS} clients, ${rounds} rounds of ${size}`)
  console.log(`  oa-audience   ${Math.round(rate('ours'))}/s   p50 ${p50.toFixed(1)} ms`)
  console.log(
    `  without statistics  ${Math.round(rate('unanalyzed'))}/s   ratio ${(rate('unanalyzed') / rate('ours')).toFixed(2)}`,
  )
  console.log(
    `  Express + pg  ${Math.round(rate('express'))}/s   ours / Express ${(rate('ours') / rate('express')).toFixed(1)}`,
  )
  if (results.pgbench.length > 0) {
    console.log(
      `  pgbench       ${Math.round(rate('pgbench'))}/s   ours / pgbench ${(rate('ours') / rate('pgbench')).toFixed(2)}`,
    )
  }
}

/** p50 in milliseconds on one connection without other load. */
async function latencies({ port }, audience, smoke, only = /./) {
  const since = new Date(Date.now() - 5_000).toISOString()
  const some = () => 1 + random(audience.count)
  const paths = {
    'first page': () => '/api/audience',
    'a page far in': () =>
      `/api/audience?cursor=${cursorAt(audience, audience.first + BigInt(Math.min(500_000, audience.count - 100)))}`,
    userId: () => `/api/audience?userId=${userIdOf(some())}`,
    externalId: () => `/api/audience?externalId=customer-${3 * Math.ceil(some() / 3)}`,
    'relationship, common': () => '/api/audience?relationship=following',
    'relationship, one in ten': () => '/api/audience?relationship=blocked',
    'tag, common': () => '/api/audience?tag=new',
    'tag, one in a hundred': () => '/api/audience?tag=vip',
    'segment, common': () => '/api/audience?segment=recent',
    'segment, one in a hundred': () => '/api/audience?segment=vips',
    'two tags': () => '/api/audience?tag=vip&tag=new',
    'q, common': () => '/api/audience?q=somchai',
    'q, one person': () =>
      `/api/audience?q=${encodeURIComponent(`หญิง ${8 * random(Math.floor(audience.count / 8)) + 2}`)}`,
    'q, nobody': () => '/api/audience?q=nobody-has-this-name',
    'q and tag': () => '/api/audience?q=mali&tag=new',
    updatedSince: () => `/api/audience?updatedSince=${since}`,
  }
  const measured = {}
  for (const [name, path] of Object.entries(paths).filter(([each]) => only.test(each))) {
    const requests = Array.from({ length: smoke ? 10 : 300 }, () => get(audience, path()))
    await send({ port, connections: 1, requests: requests.slice(0, 30) })
    const { p50Ms, failures } = await send({ port, connections: 1, requests })
    if (failures > 0) throw new Error(`${name} failed`)
    measured[name] = p50Ms
  }
  const deliveries = Array.from({ length: smoke ? 10 : 500 }, () => delivery(audience))
  measured['a webhook'] = (await send({ port, connections: 1, requests: deliveries })).p50Ms
  return measured
}

/** The exact counts of 20 segments, and a page with a segment compared with one with a tag. */
export async function segments({ smoke }) {
  const members = smoke ? 2_000 : 1_000_000
  const { server, database, close } = await openDatabase()
  const children = []
  try {
    await database.session((session) => session.query(`insert into organization (name) values ('bench')`))
    const audience = await addAudience(database, 1n, members)
    await addSegments(database, audience)
    const env = { DATABASE_URL: urlOf(server), RATE_LIMIT_MAX: '1000000000', LOG_LEVEL: 'info' }
    const target = await startTarget([MAIN, 'serve'], env)
    children.push(target.child)
    const ms = await latencies(target, audience, smoke, /^(segment|tag),/)
    for (const kind of ['common', 'one in a hundred']) {
      const [page, tagged] = [ms[`segment, ${kind}`], ms[`tag, ${kind}`]]
      const ratio = (page / tagged).toFixed(2)
      console.log(
        `page with a segment / with a tag, ${kind}: ${ratio} (${page.toFixed(2)} and ${tagged.toFixed(2)} ms)`,
      )
    }
    const scope = { keyId: null, accountId: audience.accountId, organizationId: 1n }
    const seconds = []
    for (const [name, condition] of Object.entries(SEGMENTS)) {
      const started = performance.now()
      const found = await countMatching(database, scope, { segment: { name, condition } })
      seconds.push((performance.now() - started) / 1000)
      console.log(`${name}: ${found} of ${members} counted in ${seconds.at(-1).toFixed(1)} s`)
    }
    const all = seconds.reduce((sum, each) => sum + each)
    console.log(
      `${seconds.length} segments: the slowest ${Math.max(...seconds).toFixed(1)} s, all ${all.toFixed(1)} s`,
    )
  } finally {
    for (const child of children) child.kill('SIGKILL')
    await close()
  }
}

/** The user id that the insert above generates. */
const userIdOf = (no) => `U${createHash('md5').update(String(no)).digest('hex')}`

function delivery(audience) {
  const body = lineBody('U0', [
    textMessage(userIdOf(1 + random(audience.count)), 'Good morning, is the shop open today?'),
  ])
  const head = [
    `POST /api/line/${audience.accountId} HTTP/1.1`,
    'host: 127.0.0.1',
    `x-line-signature: ${signLine(body, new Secret(CHANNEL_SECRET))}`,
    `content-length: ${Buffer.byteLength(body)}`,
  ]
  return Buffer.from(`${head.join('\r\n')}\r\n\r\n${body}`)
}

/** Rows per second of a whole audience, and the growth of the process meanwhile. */
async function streams({ port, child }, audience) {
  console.log('\nexports')
  for (const accept of ['application/x-ndjson', 'text/csv']) {
    await sleep(1_000)
    const idle = residentMiB(child.pid)
    let peak = idle
    const watch = setInterval(() => {
      peak = Math.max(peak, residentMiB(child.pid))
    }, 50)
    const started = performance.now()
    const rows = await countLines(port, audience, accept)
    const seconds = (performance.now() - started) / 1000
    clearInterval(watch)
    console.log(
      `  ${accept.padEnd(22)} ${rows} rows, ${Math.round(rows / seconds)}/s, ${Math.round(peak - idle)} MiB over the idle ${Math.round(idle)} MiB`,
    )
  }
}

function countLines(port, audience, accept) {
  const lines = get(audience, '/', {}).toString().split('\r\n').slice(2, 5)
  const headers = Object.fromEntries(lines.map((line) => line.split(': ')))
  return new Promise((resolve, reject) => {
    request({ port, path: '/api/audience', headers: { ...headers, accept } }, (response) => {
      let count = 0
      response.on('data', (chunk) => {
        for (let at = chunk.indexOf(10); at !== -1; at = chunk.indexOf(10, at + 1)) count += 1
      })
      response.once('end', () => resolve(count))
      response.once('error', reject)
    })
      .once('error', reject)
      .end()
  })
}

const residentMiB = (pid) => readProcess(pid)?.rssMiB ?? Number.NaN
