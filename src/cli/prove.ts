/**
 * `oa-audience prove`: the promise, tried out. A service is loaded with signed deliveries while it, its database and the
 * connections between them are killed at random; then everything is counted.
 */
import { type ChildProcess, spawn } from 'node:child_process'
import { randomInt } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { type AddressInfo, createServer } from 'node:net'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import type { Command } from 'commander'
import { parse as parseConnectionString } from 'pg-connection-string'
import { type DatabaseChoice, environmentOfPrograms, readConfig } from '../config.ts'
import { FatalError } from '../errors.ts'
import { idKey } from '../intake/event.ts'
import type { Database } from '../postgres/database.ts'
import { withDatabase } from '../postgres/open.ts'
import { Door } from '../simulate/door.ts'
import { lineBody, lineEvent, randomUserId, sign } from '../simulate/events.ts'
import { randomAccount } from '../simulate/platform.ts'
import { parseCount, printMany, printOne, withJson } from './output.ts'
import { Progress } from './progress.ts'

const PEOPLE = 200
const SENDERS = 24
const EVENTS_MAX = 3
/** Share of acknowledged deliveries that are sent once more all the same. */
const REPEATED = 0.2
/** As long as the platform waits. */
const ANSWER_TIMEOUT_MS = 2_000
const RETRY_MS = 50
/** Between two faults. */
const CALM_MIN_MS = 300
const CALM_MAX_MS = 1_200
/** A service that does not answer for so long has not recovered. */
const RECOVERY_MS = 60_000

const MAIN = fileURLToPath(new URL('./main.js', import.meta.url))

export function proveCommand(program: Command): void {
  withJson(program.command('prove'))
    .description(
      'load a service of its own, kill it, its database and their connections at random, and count: nothing lost, nothing twice. On a database of its own, or with an account of its own on DATABASE_URL',
    )
    .option('--kills <count>', 'faults, of all kinds in turn', parseCount, 24)
    .action(async ({ kills, json }: { kills: number; json?: boolean }) => {
      const { database, dataDir } = readConfig()
      if (database.kind === 'none') throw new FatalError('DATABASE_URL is none: there is nothing to prove')
      const choice: DatabaseChoice =
        database.kind === 'embedded' ? { kind: 'embedded', dataDir: join(dataDir, 'prove') } : database
      const outcome = await prove(choice, kills)
      report(outcome, json === true)
      if (outcome.missing + outcome.twice + outcome.unknown > 0) process.exitCode = 1
    })
}

interface Outcome {
  faults: Record<string, number>
  deliveries: number
  events: number
  /** deliveries that were sent again because no 2xx came, or for the sake of it */
  repeated: number
  /** answered 2xx, and not on disk or without effect */
  missing: number
  /** took effect more than once */
  twice: number
  /** on disk though nobody sent it */
  unknown: number
}

interface Account {
  id: bigint
  channelSecret: string
  botUserId: string
}

async function prove(choice: Exclude<DatabaseChoice, { kind: 'none' }>, kills: number): Promise<Outcome> {
  const account = await withDatabase(choice, addAccount)
  const door = choice.kind === 'url' ? await openDoor(choice.url.reveal()) : null
  const service = new Service(await freePort(), {
    LOG_LEVEL: 'error',
    RATE_LIMIT_MAX: '0',
    ...(choice.kind === 'embedded' ? { DATA_DIR: choice.dataDir } : { DATABASE_URL: door?.url ?? '' }),
  })
  const load = new Load(service, account)
  const faults: Record<string, number> = {}
  const progress = new Progress('faults', kills)
  try {
    await service.start()
    load.start()
    const kinds = faultsOf(choice, service, door?.door ?? null)
    for (let fault = 1; fault <= kills; fault += 1) {
      await sleep(randomInt(CALM_MIN_MS, CALM_MAX_MS))
      const [name, strike] = kinds[(fault - 1) % kinds.length] as [string, () => Promise<void>]
      await strike()
      faults[name] = (faults[name] ?? 0) + 1
      progress.show(fault, `, ${load.acknowledged} deliveries acknowledged`)
    }
    await load.finish()
    progress.end(kills, `, ${load.acknowledged} deliveries acknowledged`)
  } finally {
    load.stop()
    await service.stop()
    door?.door.close()
  }
  return withDatabase(choice, async (database) => {
    const counted = await count(database, account, load)
    if (choice.kind === 'url') await removeAccount(database, account)
    return {
      faults,
      deliveries: load.acknowledged,
      events: load.eventIds.length,
      repeated: load.repeated,
      ...counted,
    }
  })
}

function faultsOf(
  choice: DatabaseChoice,
  service: Service,
  door: Door | null,
): Array<[string, () => Promise<void>]> {
  const killService = async () => {
    await service.kill()
    await service.start()
  }
  if (choice.kind !== 'embedded' || door !== null) {
    const cutNetwork = async () => {
      door?.shut()
      await sleep(randomInt(50, 500))
      door?.open()
    }
    return [
      ['service killed', killService],
      ['network cut', cutNetwork],
    ]
  }
  const pidFile = join(choice.dataDir, 'postgres', 'postmaster.pid')
  const killPostgres = async () => {
    // Between two lives of the server there is no file, or one of a server that is gone.
    try {
      process.kill(Number(readFileSync(pidFile, 'utf8').split('\n')[0]), 'SIGKILL')
    } catch {
      await sleep(RETRY_MS)
    }
  }
  return [
    ['service killed', killService],
    ['PostgreSQL killed', killPostgres],
    ['both killed', () => Promise.all([killPostgres(), killService()]).then(() => undefined)],
  ]
}

/** The service as a process of its own, on one port through all of its lives. */
class Service {
  readonly url: string
  readonly #env: Record<string, string>
  #child: ChildProcess | null = null

  constructor(port: number, env: Record<string, string>) {
    this.url = `http://127.0.0.1:${port}`
    this.#env = { ...environmentOfPrograms(), PORT: String(port), ...env }
  }

  /** Resolves when it answers that it is well. */
  async start(): Promise<void> {
    for (const startedAtMs = Date.now(); Date.now() < startedAtMs + RECOVERY_MS; await sleep(RETRY_MS)) {
      if (this.#child === null || this.#child.exitCode !== null) {
        this.#child = spawn(process.execPath, [MAIN, 'serve'], { env: this.#env, stdio: 'ignore' })
      }
      const isWell = await fetch(`${this.url}/api/health`, {
        signal: AbortSignal.timeout(ANSWER_TIMEOUT_MS),
      }).then(
        ({ ok }) => ok,
        () => false,
      )
      if (isWell) return
    }
    throw new FatalError(`the service did not recover within ${RECOVERY_MS / 1000} s`)
  }

  kill(): Promise<void> {
    return this.#end('SIGKILL')
  }

  stop(): Promise<void> {
    return this.#end('SIGTERM')
  }

  async #end(signal: NodeJS.Signals): Promise<void> {
    const child = this.#child
    this.#child = null
    if (child === null || child.exitCode !== null) return
    const exited = new Promise((resolve) => child.once('exit', resolve))
    child.kill(signal)
    await exited
  }
}

/** Senders that repeat each delivery until it is acknowledged, and some of them after that. */
class Load {
  readonly #service: Service
  readonly #account: Account
  readonly #people = Array.from({ length: PEOPLE }, randomUserId)
  readonly #finished = new AbortController()
  #senders: Array<Promise<void>> = []
  #isStopped = false
  acknowledged = 0
  repeated = 0
  /** of all acknowledged events */
  eventIds: string[] = []
  /** how many events name each person */
  expected = new Map<string, number>()

  constructor(service: Service, account: Account) {
    this.#service = service
    this.#account = account
  }

  start(): void {
    this.#senders = Array.from({ length: SENDERS }, () => this.#send())
  }

  /** Begins no new delivery, and resolves when every one that was begun is acknowledged. */
  async finish(): Promise<void> {
    this.#finished.abort()
    const all = Promise.all(this.#senders).then(() => true)
    if (!(await Promise.race([all, sleep(RECOVERY_MS, false, { ref: false })]))) {
      throw new FatalError(`some deliveries were not acknowledged within ${RECOVERY_MS / 1000} s of calm`)
    }
  }

  stop(): void {
    this.#finished.abort()
    this.#isStopped = true
  }

  async #send(): Promise<void> {
    while (!this.#finished.signal.aborted) {
      const events = Array.from({ length: 1 + randomInt(EVENTS_MAX) }, () => {
        const kind = ['message', 'follow', 'unfollow', 'postback'][randomInt(4)] as string
        return lineEvent(kind, this.#people[randomInt(PEOPLE)] as string)
      })
      const body = lineBody(this.#account.botUserId, events)
      while (!this.#isStopped && !(await this.#deliver(body))) {
        this.repeated += 1
        await sleep(RETRY_MS)
      }
      if (this.#isStopped) return
      this.acknowledged += 1
      for (const { webhookEventId, source } of events) {
        this.eventIds.push(webhookEventId)
        const { userId } = source as { userId: string }
        this.expected.set(userId, (this.expected.get(userId) ?? 0) + 1)
      }
      if (Math.random() < REPEATED) {
        this.repeated += 1
        await this.#deliver(body)
      }
    }
  }

  #deliver(body: string): Promise<boolean> {
    return fetch(`${this.#service.url}/api/line/${this.#account.id}`, {
      method: 'POST',
      headers: { 'x-line-signature': sign(body, this.#account.channelSecret) },
      body,
      signal: AbortSignal.timeout(ANSWER_TIMEOUT_MS),
    }).then(
      async (response) => {
        await response.arrayBuffer()
        return response.ok
      },
      () => false,
    )
  }
}

async function addAccount(database: Database): Promise<Account> {
  const { channelSecret, botUserId } = randomAccount('prove')
  const [added] = await database.query<{ id: bigint }>(
    `with o as (insert into organization (name) values ('oa-audience prove') returning id)
     insert into official_account (organization_id, name, channel_secret, bot_user_id)
     select id, 'oa-audience prove', $1, $2 from o returning id`,
    [channelSecret, botUserId],
  )
  if (!added) throw new Error('the account was not added')
  return { id: added.id, channelSecret, botUserId }
}

/** What was acknowledged, against what is there. */
async function count(
  database: Database,
  { id }: Account,
  { eventIds, expected }: Load,
): Promise<Pick<Outcome, 'missing' | 'twice' | 'unknown'>> {
  const keys = eventIds.map((eventId) => idKey('line', eventId).toString('hex'))
  return database.session(async (session) => {
    const [stored] = await session.query<{ missing: number; unknown: number }>(
      `with sent as (select unnest($2::text[])::uuid as key)
       select (select count(*) from sent left join event_key k on k.channel_oa_id = $1 and k.key = sent.key
                where k.key is null)::int as missing,
              (select count(*) from event_key k left join sent using (key)
                where k.channel_oa_id = $1 and sent.key is null)::int as unknown`,
      [id, keys],
    )
    const members = await session.query<{ user_id: string; event_count: bigint }>(
      'select user_id, event_count from audience_member where channel_oa_id = $1',
      [id],
    )
    const found = new Map(members.map(({ user_id, event_count }) => [user_id, Number(event_count)]))
    let [lost, twice] = [0, 0]
    for (const userId of new Set([...expected.keys(), ...found.keys()])) {
      const difference = (found.get(userId) ?? 0) - (expected.get(userId) ?? 0)
      if (difference > 0) twice += difference
      else lost -= difference
    }
    return { missing: Math.max(stored?.missing ?? 0, lost), twice, unknown: stored?.unknown ?? 0 }
  })
}

async function removeAccount(database: Database, { id }: Account): Promise<void> {
  await database.session(async (session) => {
    for (const table of ['event', 'event_key', 'audience_member']) {
      await session.query(`delete from ${table} where channel_oa_id = $1`, [id])
    }
    await session.query(
      `with a as (delete from official_account where id = $1 returning organization_id)
       delete from organization using a where id = a.organization_id`,
      [id],
    )
  })
}

/** The database behind a door that can be shut. */
async function openDoor(address: string): Promise<{ door: Door; url: string }> {
  const { host, port, user, password, database } = parseConnectionString(address)
  // An address without a port has an empty one.
  const number = Number(port || 5432)
  const isSocket = host?.startsWith('/') === true
  const door = new Door(
    isSocket ? { path: `${host}/.s.PGSQL.${number}` } : { host: host ?? '127.0.0.1', port: number },
  )
  const doorPort = await door.listen()
  door.open()
  const login = [user, password]
    .filter(Boolean)
    .map((part) => encodeURIComponent(part as string))
    .join(':')
  const query = address.includes('?') && !isSocket ? address.slice(address.indexOf('?')) : ''
  return { door, url: `postgres://${login}@127.0.0.1:${doorPort}/${database ?? ''}${query}` }
}

async function freePort(): Promise<number> {
  const server = createServer()
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  const { port } = server.address() as AddressInfo
  await new Promise((resolve) => server.close(resolve))
  return port
}

function report({ faults, ...counts }: Outcome, asJson: boolean): void {
  if (asJson) {
    printOne({ ...faults, ...counts }, true)
    return
  }
  printMany(
    Object.entries(faults).map(([fault, times]) => ({ fault, times })),
    false,
  )
  console.log()
  printOne(
    {
      'deliveries acknowledged': counts.deliveries,
      'distinct events in them': counts.events,
      'deliveries sent again': counts.repeated,
      'acknowledged and missing': counts.missing,
      'applied twice': counts.twice,
      'on disk though never sent': counts.unknown,
    },
    false,
  )
}
