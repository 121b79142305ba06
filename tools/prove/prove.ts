/**
 * `oa-audience prove`: the promise, tried out. A service is loaded with signed deliveries while it and its PostgreSQL, or its
 * connections to somebody's PostgreSQL, are killed at random moments; then everything is counted.
 */
import { randomInt } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import type { Command } from 'commander'
import { between, withJson } from '../../src/cli/input.ts'
import { printMany, printOne } from '../../src/cli/output.ts'
import { Progress } from '../../src/cli/progress.ts'
import { type DatabaseChoice, readConfig } from '../../src/config.ts'
import { FatalError } from '../../src/errors.ts'
import { ulidKey } from '../../src/intake/event-key.ts'
import type { Database } from '../../src/postgres/database.ts'
import { withDatabase } from '../../src/postgres/open.ts'
import { randomAccount } from '../simulator/platform.ts'
import type { TcpProxy } from '../simulator/tcp-proxy.ts'
import { Load } from './load.ts'
import { freePort, openDoor, Service } from './service.ts'

/** Until PostgreSQL, which was killed and is started anew, has a process that can be killed again. */
const RETRY_MS = 50
/** Between two faults. */
const CALM_MIN_MS = 300
const CALM_MAX_MS = 1_200
/** An hour of them. */
const KILLS_MAX = 5_000

export function proveCommand(program: Command): void {
  withJson(program.command('prove'))
    .description(
      'load a service of its own, kill it and its PostgreSQL at random moments, and count: nothing lost, nothing twice. With DATABASE_URL: in an account of its own there, its connections are cut instead',
    )
    .option('--kills <count>', 'faults, of all kinds in turn', between(1, KILLS_MAX), 24)
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

/** Leaves no account behind, however it ends: the database may be somebody's. */
async function prove(choice: Exclude<DatabaseChoice, { kind: 'none' }>, kills: number): Promise<Outcome> {
  const account = await withDatabase(choice, addAccount)
  const interrupted = new AbortController()
  const interrupt = () => interrupted.abort()
  process.on('SIGINT', interrupt).on('SIGTERM', interrupt)
  try {
    return await proveWith(account, choice, kills, interrupted.signal)
  } catch (error) {
    if (!interrupted.signal.aborted) throw error
    throw new FatalError('interrupted: nothing was proved')
  } finally {
    await withDatabase(choice, (database) => removeAccount(database, account))
    process.off('SIGINT', interrupt).off('SIGTERM', interrupt)
  }
}

async function proveWith(
  account: Account,
  choice: Exclude<DatabaseChoice, { kind: 'none' }>,
  kills: number,
  signal: AbortSignal,
): Promise<Outcome> {
  const door = choice.kind === 'url' ? await openDoor(choice.url.reveal()) : null
  const service = new Service(await freePort(), {
    LOG_LEVEL: 'error',
    RATE_LIMIT_MAX: '0',
    ...(choice.kind === 'embedded' ? { DATA_DIR: choice.dataDir } : { DATABASE_URL: door?.url ?? '' }),
  })
  const load = new Load(`${service.url}/api/line/${account.id}`, account.channelSecret, account.botUserId)
  const faults: Record<string, number> = {}
  const progress = new Progress('faults', kills)
  try {
    await service.start()
    load.start()
    const kinds = faultsOf(choice, service, door?.door ?? null)
    for (let fault = 1; fault <= kills; fault += 1) {
      await sleep(randomInt(CALM_MIN_MS, CALM_MAX_MS), undefined, { signal })
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
  choice: Exclude<DatabaseChoice, { kind: 'none' }>,
  service: Service,
  door: TcpProxy | null,
): Array<[string, () => Promise<void>]> {
  const killService = async () => {
    await service.kill()
    await service.start()
  }
  if (choice.kind === 'url') {
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
  const keys = eventIds.map((eventId) => ulidKey(eventId)?.toString('hex'))
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
    for (const table of ['event', 'event_key', 'audience_member', 'erased_member']) {
      await session.query(`delete from ${table} where channel_oa_id = $1`, [id])
    }
    await session.query(
      `with a as (delete from official_account where id = $1 returning organization_id)
       delete from organization using a where id = a.organization_id`,
      [id],
    )
  })
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
