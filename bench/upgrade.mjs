/**
 * `node bench/upgrade.mjs OLD [MINUTES] [DIRECTORY]`: the upgrade of docs/operate/upgrade.md under load and kills, with books.
 *
 * OLD is a built checkout of the previous release. Two of its instances run on one PostgreSQL of Debian. The first is replaced, then the
 * second, and both are killed now and then. At the end, the backup from before the upgrade is restored for OLD, as that document says.
 */
import { execFile } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { mkdirSync, mkdtempSync, openSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { promisify } from 'node:util'
import { Book } from '../dist/tools/load/book.js'
import { RetryingClient } from '../dist/tools/load/client.js'
import { findDiscrepancies } from '../dist/tools/load/compare.js'
import { Group } from '../dist/tools/load/group.js'
import { Loops } from '../dist/tools/load/loops.js'
import { Reader } from '../dist/tools/load/reader.js'
import { Receiver } from '../dist/tools/load/receiver.js'
import { freePort, Service } from '../dist/tools/prove/service.js'
import { simulatePlatform } from '../dist/tools/simulator/platform.js'
import { findDebianPostgres, ReplicatedPostgres } from '../dist/tools/simulator/replicated-postgres.js'
import { randomAccount } from '../dist/tools/simulator/state.js'
import { TextDatabase } from '../dist/tools/text-database.js'
import { MAIN as NEW } from './targets.mjs'

const [oldDirectory, minutes = '5', output = mkdtempSync(join(tmpdir(), 'oa-audience-upgrade-'))] =
  process.argv.slice(2)
if (oldDirectory === undefined) {
  console.error(
    'name a built checkout of the previous release: node bench/upgrade.mjs OLD [MINUTES] [DIRECTORY]',
  )
  process.exit(2)
}
const OLD = join(resolve(oldDirectory), 'dist/src/cli/main.js')
const DURATION_MS = Number(minutes) * 60_000
/** Shares of the duration. */
const PHASES = { old: 0.25, mixed: 0.35, new: 0.25, back: 0.15 }
const KILL_PAUSE_MS = [4_000, 10_000]
const ACCOUNTS = 2
/** Per account: 30 groups with a pause of 1 s send about 60 events/s. */
const GROUPS = 30
const GROUP_SIZE = 10
const GROUP_PAUSE_MS = 1_000
const PAUSES_MS = { walk: 5_000, search: 1_000, feed: 5_000, probe: 300, revoke: 2_000 }
const REPLAYED_PER_SECOND = 20
/** Revocations are in ERASURE_LEDGER within a minute. */
const RECORDED_MAX_MS = 75_000

const books = { kills: { old: 0, new: 0 }, refusedStarts: [], probes: 0, wrong: [] }
const closers = []
const wrong = (text) => books.wrong.push(text)

const ledger = join(output, 'ledger')
mkdirSync(ledger, { recursive: true })
const directory = mkdtempSync(join(tmpdir(), 'oa-audience-upgrade-data-'))

async function main() {
  const tools = findDebianPostgres()
  if (tools === null) throw new Error("Debian's PostgreSQL is not installed: apt-get install postgresql")
  const cluster = await ReplicatedPostgres.start(tools, directory, { standbys: 0, settings: '' })
  closers.push(() => cluster.stop())
  const platform = await simulatePlatform()
  closers.push(() => platform.close())
  const receiver = new Receiver((error) => wrong(error.message))
  closers.push(() => receiver.close())
  const receiverUrl = await receiver.start()
  const site = {
    cluster,
    platform,
    receiver,
    receiverUrl,
    secretsKeys: `2026:${randomBytes(32).toString('base64')}`,
  }

  const live = await openSite(site, 'live')
  await run(OLD, live, ['migrate'])
  receiver.books.push(...(await addAccounts(site, live, 0)))
  live.refused = await addRefused(live, receiver.books[0].account)
  live.instances = [await start(live, OLD), await start(live, OLD)]
  live.client = new RetryingClient(live.instances.map(({ url }) => url))
  closers.push(() => live.client.close())
  const loads = startLoad(live, receiver.books)

  await killNowAndThen(live, PHASES.old, live.instances)
  const backup = join(output, 'backup')
  const ending = await addCredentials(live, receiver.books[0].account)
  // Acknowledged before the backup begins, so the backup has them.
  const before = receiver.books.flatMap(({ people }) =>
    [...people.values()].filter(({ isMember }) => isMember),
  )
  await run(OLD, live, ['backup', backup])

  // Both releases take turns of it.
  const past = `--from 2020-01-01 --to ${new Date().toISOString()} --rate ${REPLAYED_PER_SECOND}`.split(' ')
  await run(OLD, live, ['endpoints', 'replay', receiver.books[0].endpointId, ...past, '--yes', '--no-wait'])
  await replace(live, 0)
  await killNowAndThen(live, PHASES.mixed, [live.instances[0]])
  await live.instances[1].kill()
  books.kills.old += 1
  books.refusedStarts.push(await refusedStart(live))
  await replace(live, 1)
  await run(NEW, live, ['clients', 'revoke', String(ending.clientRowId)])
  live.refused.push(ending.headers)
  await killNowAndThen(live, PHASES.new, live.instances)

  await loads.finish()
  await compare(live, loads, receiver.books)
  const [replayed] = await live.database.query(
    `select status, reason, done::int from job where kind = 'endpoint.replay'`,
  )
  if (replayed.status === 'failed') wrong(`the replay failed: ${replayed.reason}`)
  books.upgraded = { ...figures(live, receiver), replayed: replayed.done }
  await allRecorded(live)
  for (const instance of live.instances) await instance.stop()

  const back = await openSite(site, 'back')
  await goBack(back, live, backup, receiver.books, before)
  const added = await addAccounts(site, back, ACCOUNTS)
  receiver.books.push(...added)
  back.client = new RetryingClient(back.instances.map(({ url }) => url))
  closers.push(() => back.client.close())
  const loadsBack = startLoad(back, added)
  await killNowAndThen(back, PHASES.back, back.instances)
  await loadsBack.finish()
  await compare(back, loadsBack, added)
  await findBack(back, receiver.books)
  books.back = { ...books.back, ...figures(back, { books: added }) }
}

async function openSite({ cluster, platform, secretsKeys }, name) {
  await cluster.primary.ask(`create database ${name}`)
  const env = {
    DATABASE_URL: `postgres://postgres@127.0.0.1:${cluster.primary.port}/${name}`,
    LINE_API_URL: platform.url,
    ERASURE_LEDGER: ledger,
    SECRETS_KEYS: secretsKeys,
    RATE_LIMIT_MAX: '0',
    LOG_LEVEL: 'warn',
  }
  const database = new TextDatabase(
    { host: '127.0.0.1', port: cluster.primary.port, user: 'postgres', database: name },
    () => undefined,
  )
  database.markReady()
  closers.push(() => database.close())
  return { env, database, refused: [], revocations: 0 }
}

/** Runs a command. Returns what it prints as JSON. */
async function run(main, { env }, args) {
  const { stdout } = await promisify(execFile)(process.execPath, [main, ...args, '--json'], {
    env: { PATH: process.env.PATH, ...env },
  })
  return stdout.trim() === '' ? null : JSON.parse(stdout)
}

/** With the commands of the previous release: each account has an endpoint of both formats. */
async function addAccounts({ platform, receiverUrl }, site, first) {
  const { id: organization } = await run(OLD, site, ['organizations', 'add', '--name', `agency ${first}`])
  const added = []
  for (let number = first; number < first + ACCOUNTS; number += 1) {
    const onPlatform = randomAccount(`Account ${number}`)
    const { people } = platform.addAccount(onPlatform)
    const { channelId, channelSecret, channelAccessToken, botUserId } = onPlatform
    const options = {
      organization,
      name: onPlatform.displayName,
      'channel-id': channelId,
      'channel-secret': channelSecret,
    }
    const account = await run(OLD, site, [
      ...['accounts', 'add'],
      ...flags({ ...options, 'channel-access-token': channelAccessToken, 'bot-user-id': botUserId }),
    ])
    const client = await run(OLD, site, [
      'clients',
      'add',
      ...flags({ name: `client of ${number}`, account: account.id }),
    ])
    const endpoint = (format) => [
      ...['endpoints', 'add', '--allow-private-network'],
      ...flags({ account: account.id, url: `${receiverUrl}/${format}/${number}`, format }),
    ]
    const { id: endpointId } = await run(OLD, site, [...endpoint('line'), '--replies'])
    const { secret } = await run(OLD, site, endpoint('members'))
    const headers = headersOf(client.clientId, client.clientSecret, client.key)
    const { id, oaHash, trackingKey } = account
    const credentials = { id: BigInt(id), oaHash, trackingKey, botUserId, channelSecret, chatSecret: null }
    const book = new Book({ ...credentials, headers, people, lineEvents: [], membersSecret: secret }, number)
    added.push(Object.assign(book, { endpointId }))
  }
  return added
}

const flags = (values) => Object.entries(values).flatMap(([name, value]) => [`--${name}`, String(value)])

const headersOf = (id, secret, key) => ({ 'x-client-id': id, 'x-client-secret': secret, 'x-api-key': key })

/** Inserts rows as other programs do. */
async function addCredentials({ database }, { id }, ofClient = {}, ofKey = {}) {
  const headers = headersOf(...[1, 2, 3].map(() => randomBytes(12).toString('hex')))
  const [clientId, secret, key] = Object.values(headers)
  const { status = 'active', expires = null } = ofClient
  const [client] = await database.query(
    'insert into api_client (client_id, client_secret, status, expires_at) values ($1, $2, $3, $4) returning id',
    [clientId, secret, status, expires],
  )
  await database.query(
    `insert into api_key (api_client_id, key, channel_oa_id, organization_id, status, expires_at)
     select $1, $2, id, organization_id, $4, $5 from official_account where id = $3`,
    [client.id, key, id, ofKey.status ?? 'active', ofKey.expires ?? null],
  )
  return { clientRowId: client.id, headers }
}

async function addRefused(site, account) {
  const past = new Date(Date.now() - 3_600_000).toISOString()
  const all = [
    await addCredentials(site, account, { expires: past }),
    await addCredentials(site, account, {}, { expires: past }),
    await addCredentials(site, account, { status: 'revoked' }),
    await addCredentials(site, account, {}, { status: 'revoked' }),
  ]
  return all.map(({ headers }) => headers)
}

async function start({ env }, main, port) {
  const log = openSync(join(output, main === OLD ? 'old.log' : 'new.log'), 'a')
  const instance = new Service(port ?? (await freePort()), ['--enable-source-maps', main, 'serve'], env, log)
  instance.release = main === OLD ? 'old' : 'new'
  process.once('exit', () => void instance.kill())
  closers.push(() => instance.stop())
  await instance.start()
  return instance
}

/** As a load balancer does: the instance gets no more requests before it is stopped. */
async function replace({ instances, client, ...site }, number) {
  const former = instances[number]
  client.takeOutOfService(former.url)
  await former.stop()
  instances[number] = await start(site, NEW, new URL(former.url).port)
  client.putIntoService(former.url)
}

async function killNowAndThen({ instances }, share, victims) {
  const [least, most] = KILL_PAUSE_MS
  for (const untilMs = Date.now() + share * DURATION_MS; ; ) {
    await sleep(Math.min(least + Math.random() * (most - least), Math.max(0, untilMs - Date.now())))
    if (Date.now() >= untilMs) return
    const victim = victims[Math.floor(Math.random() * victims.length)]
    if (instances.some(({ hasEnded }) => hasEnded)) wrong('an instance ended by itself: see its log')
    await victim.kill()
    books.kills[victim.release] += 1
    await victim.start()
  }
}

/** Returns why an instance of the previous release does not start. */
async function refusedStart({ env }) {
  const starting = promisify(execFile)(process.execPath, [OLD, 'serve'], {
    env: { PATH: process.env.PATH, ...env, PORT: String(await freePort()) },
    timeout: 30_000,
  })
  return starting.then(
    () => wrong('an instance of the previous release started'),
    ({ code, stdout, stderr }) => `${code}: ${`${stdout}${stderr}`.trim().split('\n').at(-1)}`,
  )
}

function startLoad(site, ofAccounts) {
  const loops = new Loops()
  const readers = ofAccounts.map((book) => new Reader(site.client, book))
  for (const [i, book] of ofAccounts.entries()) {
    for (let no = 0; no < GROUPS; no += 1) {
      const group = new Group(site.client, book, GROUP_SIZE)
      loops.add(GROUP_PAUSE_MS, () => group.round())
    }
    for (const kind of ['walk', 'search', 'feed']) loops.add(PAUSES_MS[kind], () => readers[i][kind]())
  }
  loops.add(PAUSES_MS.probe, () => probe(site))
  loops.add(PAUSES_MS.revoke, () => revoke(site, ofAccounts[0].account))
  loops.start((error) => wrong(error.stack))
  return { finish: () => loops.finish(), readers }
}

/** Every instance refuses what was ever refused. */
async function probe({ client, refused }) {
  for (const headers of refused.slice(-20).concat(refused.slice(0, 4))) {
    for (const url of client.urls) {
      const { status, body } = await client.send('probe', url, '/api/audience?limit=1', { headers })
      books.probes += 1
      // A client without a valid key gets 200 with `null`.
      if (status === 200 && body !== 'null') wrong(`${url} accepted ${headers['x-client-id']}`)
    }
  }
}

/** All instances refuse a client from the moment at which its revocation is committed. */
async function revoke(site, account) {
  const { clientRowId, headers } = await addCredentials(site, account)
  const { status } = await site.client.until('valid', '/api/audience?limit=1', { headers }, [200, 401])
  if (status !== 200) wrong(`client ${clientRowId} was refused before its revocation`)
  await site.database.query(`update api_client set status = 'revoked' where id = $1`, [clientRowId])
  site.refused.push(headers)
  site.revocations += 1
}

/** Each acknowledged event is stored once, has its effect once, and reached the endpoint. */
async function compare({ database }, { readers }, ofAccounts) {
  for (const [i, book] of ofAccounts.entries()) {
    const { id } = book.account
    for (const text of await findDiscrepancies(book, readers[i], database)) wrong(`account ${id}: ${text}`)
    const [stored] = await database.query(
      `select count(*)::int as events, count(distinct key)::int as keys from event where channel_oa_id = $1 and source = 'line'`,
      [id],
    )
    const { line } = book.acknowledged
    if (stored.events !== line || stored.keys !== line)
      wrong(`account ${id}: acknowledged ${line} events, stored ${stored.events} with ${stored.keys} keys`)
  }
}

function figures({ client, revocations }, { books: ofAccounts, received }) {
  const acknowledged = { line: 0, chat: 0, tracking: 0, updates: 0, erasures: 0 }
  for (const book of ofAccounts)
    for (const kind in acknowledged) acknowledged[kind] += book.acknowledged[kind]
  const { statuses, repeated } = client
  return {
    acknowledged,
    revocations,
    statuses: { ...statuses },
    repeated,
    ...(received && { received: { ...received } }),
  }
}

async function allRecorded({ database }) {
  for (const untilMs = Date.now() + RECORDED_MAX_MS; Date.now() < untilMs; await sleep(500)) {
    const [{ open }] = await database.query(
      `select (select count(*) from unrecorded_revocation)::int + (select count(*) from erased_person where not in_ledger)::int as open`,
    )
    if (open === 0) return
  }
  wrong('revocations are not in the ledger after their time')
}

/** The steps of docs/operate/upgrade.md, and those of docs/operate/backup.md that it names. */
async function goBack(back, live, backup, ofAccounts, before) {
  const document = readFileSync(new URL('../docs/operate/upgrade.md', import.meta.url), 'utf8')
  const [convert] = /^mkdir "\$ERASURE_LEDGER[^`]*/m.exec(document)
  await promisify(execFile)('sh', ['-ec', convert], {
    env: { PATH: process.env.PATH, ERASURE_LEDGER: ledger },
  })
  back.env.ERASURE_LEDGER = `${ledger}-0.3`
  const restored = await run(OLD, back, ['restore', backup])
  books.refusedStarts.push(await refusedStart(back))
  books.back = { reapplied: await run(OLD, back, ['erasures', 'reapply']), revived: restored.revived.length }
  for (const { command } of restored.revived) await run(OLD, back, command.split(' ').slice(1))
  back.instances = [await start(back, OLD), await start(back, OLD)]
  back.refused = live.refused
  await findBack(back, ofAccounts)
  const members = await back.database.query('select user_id from audience_member')
  const present = new Set(members.map(({ user_id }) => user_id))
  const kept = before.filter(({ userId }) => !ofAccounts.some(({ erased }) => erased.has(userId)))
  for (const { userId } of kept)
    if (!present.has(userId)) wrong(`${userId} was in the backup, and is missing`)
  books.back.members = kept.length
}

/** Nobody who was erased, before or after the backup, has data. */
async function findBack({ database }, ofAccounts) {
  const erased = ofAccounts.flatMap((book) => [...book.erased.keys()])
  const rows = await database.query(
    `select user_id from audience_member where user_id = any ($1)
      union all select user_id from event where user_id = any ($1)
      union all select user_id from tracking_event where user_id = any ($1)
      union all select user_id from tracked_activity where user_id = any ($1)`,
    [erased],
  )
  for (const { user_id } of rows) wrong(`${user_id} was erased, and is back`)
}

try {
  await main()
} catch (error) {
  wrong(error.stack)
} finally {
  for (const close of closers.reverse()) await close()
  rmSync(directory, { recursive: true, force: true, maxRetries: 20, retryDelay: 100 })
}
writeFileSync(join(output, 'books.json'), `${JSON.stringify(books, null, 2)}\n`)
console.log(books)
process.exit(books.wrong.length > 0 ? 1 : 0)
