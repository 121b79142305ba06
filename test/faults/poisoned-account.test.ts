/** Each loop in the background goes on with all other accounts in its normal time while one account is poisoned. */
import { randomUUID } from 'node:crypto'
import { expect, it } from 'vitest'
import { ACCOUNT_TABLES } from '../../src/accounts/remove-account.ts'
import { readConfig } from '../../src/config/config.ts'
import { planReplay } from '../../src/endpoints/replays.ts'
import { LOOPS, type Loop } from '../../src/every.ts'
import { startFollowersImport } from '../../src/jobs/onboard-accounts.ts'
import { startRemoval } from '../../src/jobs/remove-account.ts'
import { startReplay } from '../../src/jobs/send-again.ts'
import { startTagging } from '../../src/jobs/tag-members.ts'
import { startService } from '../../src/main.ts'
import { commandActor } from '../../src/operators/actor.ts'
import { freePort } from '../../tools/prove/service.ts'
import { addPeople } from '../../tools/simulator/deliveries.ts'
import { lineEvent } from '../../tools/simulator/events.ts'
import { MISBEHAVIOURS } from '../../tools/simulator/misbehaviour.ts'
import { randomAccount } from '../../tools/simulator/state.ts'
import { atEnd } from '../support/at-end.ts'
import { addTenant } from '../support/database.ts'
import { startReceiver } from '../support/endpoints.ts'
import { serveForTest } from '../support/http-server.ts'
import { insertRow, load } from '../support/load.ts'
import { holdTransaction } from '../support/locks.ts'
import { addChannel, addNotification } from '../support/notifications.ts'
import { startPlatform } from '../support/platform.ts'
import { temporaryDirectory } from '../support/process.ts'
import { NEW_SECRET } from '../support/refused.ts'
import { TODAY } from '../support/replays.ts'
import { createEncrypted } from '../support/secret-keys.ts'
import { sendDelivery, startApp } from '../support/service.ts'

const PEOPLE = 20
/** The most that an account can have. */
const ENDPOINTS = 20
/** Beside the interval of a loop, on a busy machine. */
const SPARE_SECONDS = 15

/** Two accounts with work for every loop. The first one, which loops find first, is poisoned later. */
async function setUp() {
  const { plain, env, database: encrypted } = await createEncrypted()
  const platform = await startPlatform()
  const receiver = await startReceiver()
  // Each accepts requests, and never responds.
  const hostileUrl = await serveForTest(() => undefined)
  const intake = await startApp(encrypted)
  const addAccount = async (name: string) => {
    const account = randomAccount(name)
    const state = platform.addAccount(account)
    const { channelId, channelSecret, channelAccessToken, botUserId } = account
    const tenant = await addTenant(plain, { channelId, channelSecret, channelAccessToken, botUserId })
    await intake.deliver(
      tenant,
      addPeople(state, PEOPLE).map((userId) => lineEvent('follow', userId)),
    )
    const endpoint = (columns: object) =>
      insertRow(plain, 'endpoint', {
        ...{ channel_oa_id: tenant.accountId, allow_private_network: true },
        ...{ url: `${receiver.url}/${tenant.accountId}`, ...columns },
      })
    const endpoints = [await endpoint({ format: 'line' }), await endpoint({ format: 'members' })]
    const channel = await addChannel(plain, { organization_id: tenant.organizationId, target: receiver.url })
    return { tenant, state, endpoint, line: endpoints[0] as bigint, members: endpoints[1] as bigint, channel }
  }
  const [poisoned, healthy] = [await addAccount('poisoned'), await addAccount('healthy')]
  return { plain, env, platform, receiver, hostileUrl, poisoned, healthy }
}

type Parts = Awaited<ReturnType<typeof setUp>>
type Part = Parts['healthy']
type Running = Parts & { url: string; metricsUrl: string }

const update = ({ plain }: Parts, { tenant }: Part, table: string, columns: string) => {
  const key = table === 'official_account' ? 'id' : 'channel_oa_id'
  return load(plain, `update ${table} set ${columns} where ${key} = $1`, [tenant.accountId])
}

/** Whether the account has such a row. $1 account id bigint */
const has = async ({ plain }: Parts, { tenant }: Part, from: string): Promise<boolean> =>
  (await load(plain, `select from ${from} limit 1`, [tenant.accountId])).length > 0

interface Row {
  /** The interval of the loop. */
  seconds: number
  /** Gives the loop something to do for the account. */
  due: (running: Running, part: Part) => Promise<unknown>
  isDone: (running: Running, part: Part) => Promise<boolean>
  /** The loop runs when the process starts, and then too rarely for a test. */
  isAtStart?: boolean
}

const ROWS: Record<Loop, Row> = {
  'account checks': {
    seconds: 5,
    due: (parts, part) => update(parts, part, 'account_check', 'due_at = now(), checked_at = null'),
    isDone: (parts, part) =>
      has(parts, part, 'account_check where channel_oa_id = $1 and checked_at is not null'),
  },
  'account figures': {
    seconds: 5,
    due: (parts, part) => update(parts, part, 'account_check', 'count_due_at = now(), judged_at = null'),
    isDone: (parts, part) =>
      has(parts, part, 'account_check where channel_oa_id = $1 and judged_at is not null'),
  },
  statuses: {
    seconds: 15,
    due: (parts, part) =>
      update(parts, part, 'account_check', `status_since = now() + interval '1 hour', problems = '[]'`),
    isDone: (parts, part) =>
      has(parts, part, 'account_check where channel_oa_id = $1 and status_since <= now()'),
  },
  profiles: {
    seconds: 1,
    due: (parts, part) =>
      update(parts, part, 'audience_member', 'display_name = null, profile_due_at = now()'),
    isDone: async (parts, part) =>
      !(await has(
        parts,
        part,
        `audience_member where channel_oa_id = $1 and display_name is null and user_id !~ '^U(kept|counted)$'`,
      )),
  },
  audiences: {
    seconds: 5,
    due: ({ plain }, { tenant }) =>
      load(
        plain,
        `insert into segment (channel_oa_id, name, condition, sync, sync_due_at) values ($1, $2, '{}', true, now())`,
        [tenant.accountId, randomUUID()],
      ),
    isDone: async (parts, part) =>
      !(await has(
        parts,
        part,
        `segment s where channel_oa_id = $1 and not exists (
           select from line_audience where segment_id = s.id and audience_group_id is not null)`,
      )),
  },
  deliveries: {
    seconds: 1,
    due: ({ plain }, { tenant }) =>
      load(
        plain,
        `insert into endpoint_delivery (channel_oa_id, endpoint_id, event_keys)
         select channel_oa_id, id, array(select key from event where channel_oa_id = $1 limit 3)
           from endpoint where channel_oa_id = $1 and format = 'line'`,
        [tenant.accountId],
      ),
    isDone: async (parts, part) =>
      !(await has(
        parts,
        part,
        'endpoint_delivery where channel_oa_id = $1 and event_keys is not null and failed_at is null',
      )),
  },
  'member changes': {
    seconds: 1,
    due: (parts, part) => update(parts, part, 'audience_member', 'change = next_change()'),
    isDone: async (parts, part) =>
      !(await has(
        parts,
        part,
        `endpoint p where channel_oa_id = $1 and format = 'members' and change_position
           < (select max(change) from audience_member where channel_oa_id = $1)`,
      )),
  },
  notifications: {
    seconds: 1,
    due: ({ plain }, { channel }) =>
      addNotification(plain, channel, [], { kind: 'platform_down', reason: null }),
    isDone: async ({ plain }, { channel }) => {
      const text = 'select from notification where notification_channel_id = $1 and sent_at is null'
      return (await load(plain, text, [channel])).length === 0
    },
  },
  heartbeat: {
    seconds: 10,
    due: ({ plain }) => load(plain, `update notification_watch set heartbeat_at = now() - interval '1 hour'`),
    isDone: async ({ receiver }) => receiver.received.some(({ path }) => path.endsWith('/heartbeat')),
  },
  jobs: {
    seconds: 3,
    // One for each lane.
    due: async ({ plain }, { tenant, line }) => {
      const { accountId: id, organizationId } = tenant
      const plan = await planReplay(plain, null, line, { rate: 1_000, ...TODAY })
      const tags = { filters: {}, add: ['vip'], remove: [], count: PEOPLE }
      const account = { id, organizationId }
      await plain.transaction(async (transaction) => {
        await startTagging(transaction, commandActor(), account, tags, { count: PEOPLE, expected: PEOPLE })
        await startFollowersImport(transaction, commandActor(), account)
        await startReplay(transaction, commandActor(), plan.endpoint, plan.request, null)
      })
    },
    isDone: async (parts, part) =>
      !(await has(parts, part, `job where channel_oa_id = $1 and status = 'running'`)),
  },
  maintenance: {
    seconds: 0,
    isAtStart: true,
    due: async ({ plain }, { tenant }) => {
      const { accountId, organizationId } = tenant
      await load(
        plain,
        `insert into delivery_hour (channel_oa_id, hour, source)
         values ($1, '2026-01-01', 'line'), ($1, date_trunc('hour', now()), 'line')`,
        [accountId],
      )
      await load(
        plain,
        `insert into pending_erasure (channel_oa_id, organization_id, member_id, user_id, last_event_id)
         select $1, $2, 0, user_id, id from event where channel_oa_id = $1 order by id limit 1`,
        [accountId, organizationId],
      )
    },
    isDone: async (parts, part) =>
      !(await has(parts, part, 'pending_erasure where channel_oa_id = $1')) &&
      !(await has(parts, part, `delivery_hour where channel_oa_id = $1 and hour < '2026-02-01'`)),
  },
  ledger: {
    seconds: 0,
    isAtStart: true,
    due: ({ plain }, { tenant }) =>
      load(plain, `insert into erased_person values ($1, '\\x01', now(), 0)`, [tenant.accountId]),
    isDone: async (parts, part) =>
      !(await has(parts, part, 'erased_person where channel_oa_id = $1 and not in_ledger')),
  },
  checkpoint: {
    seconds: 10,
    due: ({ plain }) => load(plain, 'delete from change_mark'),
    isDone: async ({ plain }) => (await load(plain, 'select from change_mark')).length > 0,
  },
  // Reads the state of the server alone.
  replication: { seconds: 10, due: async () => undefined, isDone: async () => true },
  encryption: {
    seconds: 20,
    due: (parts, part) => update(parts, part, 'official_account', `chat_secret = 'plain'`),
    isDone: async (parts, part) =>
      !(await has(parts, part, `official_account where id = $1 and chat_secret = 'plain'`)),
  },
  'delivery counts': {
    seconds: 10,
    due: async ({ url }, { tenant }) =>
      url !== '' && sendDelivery(url, tenant, [lineEvent('message', 'Ucounted')]),
    isDone: (parts, part) =>
      has(
        parts,
        part,
        `delivery_hour where channel_oa_id = $1 and source = 'line' and last_at > now() - interval '5 minutes'`,
      ),
  },
  'kept deliveries': {
    seconds: 1,
    due: async ({ url, plain }, { tenant }) => {
      if (url === '') return
      const events = [lineEvent('message', 'Ukept')]
      await sendDelivery(url, { ...tenant, channelSecret: NEW_SECRET }, events)
      const change = 'update official_account set channel_secret = $2 where id = $1'
      await load(plain, change, [tenant.accountId, NEW_SECRET])
    },
    isDone: (parts, part) =>
      has(parts, part, `audience_member where channel_oa_id = $1 and user_id = 'Ukept'`),
  },
  metrics: {
    seconds: 15,
    due: ({ plain }, { tenant, line }) =>
      insertRow(plain, 'endpoint_delivery', {
        ...{ channel_oa_id: tenant.accountId, endpoint_id: line, failed_at: new Date() },
      }),
    isDone: async ({ metricsUrl }, { tenant }) =>
      (await (await fetch(metricsUrl)).text()).includes(`account="${tenant.accountId}"`),
  },
}

interface Poison {
  /** Loops that are late, which decision 21 accepts: feeds wait for the oldest transaction that has written something. */
  late?: Loop[]
  /** Before the process starts, after the account has got work. */
  before?: (parts: Parts) => Promise<unknown>
  /** When the process runs. */
  after?: (running: Running) => Promise<unknown>
}

const giveWork = async (running: Running, part: Part, isAtStart = false) => {
  for (const row of Object.values(ROWS)) if (isAtStart || !row.isAtStart) await row.due(running, part)
}

const POISONS: Record<string, Poison> = {
  'has secrets that no key reads': {
    after: async (running) => {
      await giveWork(running, running.poisoned)
      const { plain, poisoned } = running
      const lost = (...columns: string[]) => columns.map((column) => `${column} = 'enc:v1:lost:AAAA'`).join()
      await update(
        running,
        poisoned,
        'official_account',
        lost('channel_secret', 'channel_access_token', 'chat_secret'),
      )
      await update(running, poisoned, 'endpoint', lost('secret'))
      await load(plain, `update notification_channel set ${lost('target')} where id = $1`, [poisoned.channel])
    },
  },
  'has rows that another program has locked': {
    late: ['member changes'],
    before: async (parts) => {
      const { plain, poisoned } = parts
      const { tenant, channel } = poisoned
      await giveWork({ ...parts, url: '', metricsUrl: '' }, poisoned)
      const lock = (table: string, condition: string) =>
        `perform from ${table} where ${condition} for update;`
      const locks = [
        lock('official_account', `id = ${tenant.accountId}`),
        lock('notification', `notification_channel_id = ${channel}`),
        lock('notification_channel', `id = ${channel}`),
        ...ACCOUNT_TABLES.map((table) => lock(table, `channel_oa_id = ${tenant.accountId}`)),
      ]
      atEnd(await holdTransaction(plain, `do $$ begin ${locks.join(' ')} end $$`))
    },
    after: async ({ url, poisoned }) => void sendDelivery(url, poisoned.tenant, [lineEvent('message', 'U')]),
  },
  'is being removed': {
    after: async (running) => {
      await giveWork(running, running.poisoned)
      const { accountId: id, organizationId } = running.poisoned.tenant
      await running.plain.transaction((transaction) =>
        startRemoval(transaction, commandActor(), { id, organizationId, name: 'poisoned' }),
      )
    },
  },
  'gets no response from LINE': {
    before: async ({ poisoned }) => {
      poisoned.state.settings.misbehaviour = MISBEHAVIOURS.silent ?? null
    },
    after: (running) => giveWork(running, running.poisoned),
  },
  'has endpoints that never respond': {
    before: async (parts) => {
      const { hostileUrl, plain, poisoned } = parts
      for (let no = 2; no < ENDPOINTS; no += 1)
        await poisoned.endpoint({ format: no % 2 === 0 ? 'line' : 'members' })
      await update(parts, poisoned, 'endpoint', `url = '${hostileUrl}'`)
      await load(plain, 'update notification_channel set target = $2 where id = $1', [
        poisoned.channel,
        hostileUrl,
      ])
    },
    after: (running) => giveWork(running, running.poisoned),
  },
}

it('has a row for each loop', () => {
  expect(Object.keys(ROWS).sort()).toEqual([...LOOPS].sort())
})

it.each(Object.entries(POISONS))(
  'no loop is late for another account while one %s',
  async (_, { late = [], before, after }) => {
    const parts = await setUp()
    const { env, platform, receiver, poisoned, healthy } = parts
    const stopped = { ...parts, url: '', metricsUrl: '' }
    for (const part of [poisoned, healthy])
      for (const row of Object.values(ROWS)) if (row.isAtStart) await row.due(stopped, part)
    await before?.(parts)
    const metricsPort = await freePort()
    const service = await startService(
      readConfig({
        ...{ ...env, PORT: '0', METRICS_PORT: String(metricsPort), LOG_LEVEL: 'silent', RATE_LIMIT_MAX: '0' },
        ...{ LINE_API_URL: platform.url, ERASURE_LEDGER: temporaryDirectory() },
        HEARTBEAT_URL: `${receiver.url}/heartbeat`,
      }),
    )
    atEnd(() => service.close())
    await service.ready
    const running = { ...parts, url: service.url, metricsUrl: `http://127.0.0.1:${metricsPort}/metrics` }
    await after?.(running)
    await giveWork(running, healthy)
    const found = Object.entries(ROWS).map(([loop, { seconds, isDone }]) => {
      const timeout = (seconds + SPARE_SECONDS) * 1000
      const isDoneSoon = expect.poll(() => isDone(running, healthy), { timeout, interval: 200 }).toBe(true)
      return isDoneSoon.then(
        () => [],
        () => [loop],
      )
    })
    expect((await Promise.all(found)).flat()).toEqual(late)
  },
)
