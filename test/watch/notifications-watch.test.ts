/** What the watch of account statuses stores for notification channels. */
import { beforeEach, expect, it } from 'vitest'
import { ACCOUNTS } from '../../src/operations/accounts.ts'
import { announce, GROUP_SECONDS } from '../../src/watch/notifications/announce.ts'
import { accountWatch, claimPass, PASS_INTERVAL_MS, storeStatuses } from '../../src/watch/store-statuses.ts'
import { addTenant, createTestDatabase } from '../support/database.ts'
import { insertRow } from '../support/load.ts'
import { maintain } from '../support/maintenance.ts'
import { runOperation } from '../support/operations.ts'

interface Stored extends Record<string, unknown> {
  id: bigint
  channel: bigint
  kind: string
  reason: string | null
  facts: Record<string, unknown>
  seconds: number
  accounts: Array<{ id: number; before: string; after: string; problem: { reason: string } | null }>
}

const { database } = await createTestDatabase()

/** What other parts of the service and operators change in a test. */
const change = (text: string, values: unknown[] = []) => database.query(text, values)

beforeEach(async () => {
  await change('delete from official_account')
  await change('delete from notification_channel')
  await change(
    `update notification_watch set is_platform_down = false, platform_since = '-infinity', passed_at = '-infinity'`,
  )
})

/** The time between two passes is longer than a change waits for others. */
async function passes(count: number, seconds = GROUP_SECONDS + 1) {
  for (let i = 0; i < count; i += 1) {
    await change(
      `with moved as (
         update account_check set status_since = status_since - $1 * interval '1 second', checked_at = checked_at - $1 * interval '1 second')
       update notification_watch set passed_at = '-infinity', platform_since = platform_since - $1 * interval '1 second'`,
      [seconds],
    )
    expect(await accountWatch(database)()).toBe(true)
  }
}

/** Its accounts have a token and no deliveries, so they are quiet. */
async function addAccounts(count: number) {
  const { organizationId, accountId } = await addTenant(database, { channelAccessToken: 'token' })
  const others = await database.query<{ id: bigint }>(
    `insert into official_account (organization_id, name, channel_secret, channel_access_token, bot_user_id)
     select $1, 'OA ' || i, 'secret', 'token', 'U' || md5($1::bigint || ' ' || i) from generate_series(2, $2::int) i returning id`,
    [organizationId, count],
  )
  return { organizationId, ids: [accountId, ...others.map(({ id }) => id)] }
}

const addChannel = (organizationId: bigint | null = null, status = 'active') =>
  insertRow(database, 'notification_channel', {
    ...{ organization_id: organizationId, format: 'slack', target: 'https://chat.example/', status },
  })

/** Accounts, and a channel of all organizations. */
const addWatched = async (count: number) => ({
  ...(await addAccounts(count)),
  channel: await addChannel(),
})

const breakAccounts = (ids: bigint[]) =>
  change('update official_account set channel_secret = null where id = any ($1)', [ids])
const fixAccounts = (ids: bigint[]) =>
  change(`update official_account set channel_secret = 'secret' where id = any ($1)`, [ids])
const useUpQuota = (ids: bigint[]) =>
  change('update account_check set quota_limit = 10, quota_used = 10 where channel_oa_id = any ($1)', [ids])
const storeDelivery = (id: bigint) =>
  change(
    `insert into delivery_hour (channel_oa_id, hour, source, deliveries, last_at)
     values ($1, date_trunc('hour', now()), 'line', 1, now())`,
    [id],
  )
/** As the sender does. */
const send = () =>
  change(
    'update notification set attempts = 1, sent_at = now(), due_at = least(due_at, now()) where sent_at is null',
  )
/** Moves what was announced and sent into the past. */
const wait = (interval: string) =>
  change(
    `update notification
        set created_at = created_at - $1::interval, due_at = due_at - $1::interval, sent_at = sent_at - $1::interval`,
    [interval],
  )
const messages = (): Promise<Stored[]> =>
  database.query<Stored>(
    `select n.id, n.notification_channel_id as channel, n.kind, n.reason, n.facts,
            extract(epoch from n.due_at - now())::float8 as seconds,
            (select coalesce(jsonb_agg(jsonb_build_object('id', channel_oa_id, 'before', before, 'after', after, 'problem', problem)
                                       order by channel_oa_id), '[]')
               from notification_account where notification_id = n.id) as accounts
       from notification n order by n.id`,
  )

const mute = (id: bigint) => {
  const until = new Date(Date.now() + 86_400_000).toISOString()
  return runOperation(database, ACCOUNTS.mute, { id, input: { until, reason: 'a planned change' } })
}

const kinds = (messages: Stored[]) => messages.map(({ kind }) => kind)

it('announces a muted problem when its mute is over, as a new one, and nothing before', async () => {
  const { ids } = await addWatched(2)
  const [id, other] = ids as [bigint, bigint]
  await breakAccounts([id])
  await passes(3)
  await send()
  await mute(id)
  await mute(other).catch(({ message }) => expect(message).toContain('no problem'))
  await wait('30 hours')
  await passes(3)
  expect(kinds(await messages())).toEqual(['problem'])
  await change(`update account_check set muted_until = now() - interval '1 second'`)
  await passes(3)
  expect(kinds(await messages())).toHaveLength(2)
  expect((await messages())[1]).toMatchObject({
    ...{ kind: 'problem', reason: 'no_channel_secret' },
    accounts: [{ id: Number(id), before: 'ok', after: 'broken' }],
  })
})

it('announces another problem than the muted one, and the muted one if it comes back', async () => {
  const { ids } = await addWatched(1)
  await useUpQuota(ids)
  await passes(1)
  await mute(ids[0] as bigint)
  await passes(3)
  expect(await messages()).toEqual([])
  await breakAccounts(ids)
  await passes(3)
  await send()
  await fixAccounts(ids)
  await passes(3)
  expect((await messages()).map(({ reason }) => reason)).toEqual(['no_channel_secret', 'quota_used_up'])
})

it('announces neither a muted problem nor its end, and the problem again if it comes back', async () => {
  const { ids } = await addWatched(1)
  await storeDelivery(ids[0] as bigint)
  await useUpQuota(ids)
  await passes(3)
  await send()
  await mute(ids[0] as bigint)
  await passes(1)
  await change('update account_check set quota_used = 0')
  await passes(3)
  expect(await change('select status from account_check')).toEqual([{ status: 'ok' }])
  expect(kinds(await messages())).toEqual(['problem'])
  await useUpQuota(ids)
  await passes(2)
  expect(kinds(await messages())).toEqual(['problem', 'problem'])
})

it('announces a quota that is nearly used up once, and each worse problem after that', async () => {
  const { ids } = await addWatched(1)
  await storeDelivery(ids[0] as bigint)
  await passes(2)
  await change('update account_check set quota_limit = 10, quota_used = 8')
  await passes(2)
  await change('update account_check set quota_used = 9')
  await passes(2)
  expect((await messages()).map(({ kind, reason }) => [kind, reason])).toEqual([['problem', 'quota_low']])
  for (const [change, reason] of [
    [breakAccounts, 'no_channel_secret'],
    [fixAccounts, 'quota_low'],
    [useUpQuota, 'quota_used_up'],
  ] as const) {
    await send()
    await change(ids)
    await passes(1)
    const before = (await messages()).length
    await passes(1)
    const all = await messages()
    expect([all.length, all.at(-1)?.reason]).toEqual([before + 1, reason])
  }
  await send()
  await change('update account_check set quota_used = 0')
  await passes(2)
  const last = (await messages()).at(-1)
  expect([last?.kind, last?.reason]).toEqual(['recovery', 'quota_used_up'])
})

it('sends a channel three messages an hour about one reason, and then what holds when the hour is over', async () => {
  const { ids } = await addWatched(3)
  for (let i = 0; i < 5; i += 1) {
    for (const change of [breakAccounts, fixAccounts]) {
      await change(ids)
      await passes(2)
    }
    for (const [faults, successes] of [
      [3, 0],
      [0, 3],
    ] as const) {
      await storeFaults(faults, successes)
      await passes(2)
    }
  }
  await breakAccounts(ids)
  await passes(2)
  const hour = ['problem', 'recovery', 'platform_down', 'platform_up'].flatMap((kind) => Array(3).fill(kind))
  expect(kinds(await messages()).toSorted()).toEqual(hour.toSorted())
  await wait('1 hour')
  await passes(1)
  expect(kinds(await messages()).slice(12)).toEqual(['problem'])
})

it('is one message per channel about 200 accounts with one reason, and accounts that follow join it', async () => {
  const { ids, organizationId } = await addAccounts(210)
  const channels = [await addChannel(), await addChannel(organizationId)]
  await breakAccounts(ids.slice(0, 200))
  await passes(1)
  await breakAccounts(ids.slice(200, 205))
  await passes(2, GROUP_SECONDS / 3)
  expect(await messages()).toEqual([])
  await passes(1, GROUP_SECONDS / 3)
  const versions = () => change('select channel_oa_id, xmin::text from account_check order by 1')
  await passes(1)
  const before = await versions()
  await change(`update notification_watch set passed_at = '-infinity'`)
  expect(await accountWatch(database)()).toBe(true)
  // While nothing changes, a pass writes no rows of accounts.
  expect(await versions()).toEqual(before)
  const stored = await messages()
  expect(stored.map(({ channel, accounts }) => [channel, accounts.length])).toEqual(
    channels.map((channel) => [channel, 205]),
  )
})

it('never puts an account into a message of another organization, and nothing into one of a paused channel', async () => {
  const [first, second] = [await addAccounts(3), await addAccounts(3)]
  const channels = [
    await addChannel(first.organizationId),
    await addChannel(second.organizationId),
    await addChannel(),
  ]
  await addChannel(first.organizationId, 'paused')
  await breakAccounts([...first.ids, ...second.ids])
  await passes(2)
  const numbers = (ids: bigint[]) => ids.map(Number)
  const stored = await messages()
  expect(new Map(stored.map(({ channel, accounts }) => [channel, accounts.map(({ id }) => id)]))).toEqual(
    new Map([
      [channels[0], numbers(first.ids)],
      [channels[1], numbers(second.ids)],
      [channels[2], numbers([...first.ids, ...second.ids])],
    ]),
  )
})

it('makes one message when two processes watch, and changes nothing in a pass that a later one has overtaken', async () => {
  const { ids } = await addWatched(1)
  await breakAccounts(ids)
  const watches = [1, 2].map(() => accountWatch(database))
  for (let i = 0; i < 2; i += 1) {
    const made = await Promise.all(watches.map((watch) => watch()))
    expect(made.filter(Boolean)).toHaveLength(1)
    await change(`update notification_watch set passed_at = now() - $1::float8 * interval '1 ms'`, [
      PASS_INTERVAL_MS + 1,
    ])
    await change(`update account_check set status_since = now() - interval '1 minute'`)
  }
  expect(kinds(await messages())).toEqual(['problem'])

  const slow = await claimPass(database, 0)
  if (slow === null) throw new Error('no pass was due')
  await claimPass(database, 0)
  const statuses = () => change('select status, problems, status_since from account_check')
  const before = await statuses()
  await fixAccounts(ids)
  await storeStatuses(database, slow.pass, slow.now)
  expect(await statuses()).toEqual(before)
  expect(await announce(database, slow.pass)).toBe(false)
})

it('tells a channel that is added first, or resumed, what is broken then', async () => {
  const { ids, organizationId } = await addAccounts(2)
  const other = await addAccounts(1)
  await breakAccounts(ids)
  await passes(3)
  await addChannel(other.organizationId)
  await passes(3)
  expect(await messages()).toEqual([])
  const channel = await addChannel(organizationId)
  await passes(1)
  expect(await messages()).toMatchObject([{ channel, kind: 'problem' }])
  await change(`delete from notification_channel where id = $1`, [channel])
  await passes(1)
  await addChannel(organizationId)
  await passes(1)
  expect(await messages()).toMatchObject([{ kind: 'problem' }])
})

it('skips accounts, channels and organizations that are removed meanwhile', async () => {
  const { ids } = await addAccounts(3)
  const [kept, removed] = [await addChannel(), await addChannel()]
  await breakAccounts(ids)
  await passes(1)
  await change(`update account_check set status_since = status_since - interval '1 minute'`)
  await change(`update notification_watch set passed_at = '-infinity'`)
  await database.transaction(async (transaction) => {
    await transaction.query('delete from official_account where id = $1', [ids[0]])
    await transaction.query('delete from notification_channel where id = $1', [removed])
    // The other transaction is not committed yet, so the pass sees its rows and does not wait for it.
    expect(await accountWatch(database)()).toBe(true)
  })
  const rest = ids.slice(1).map((id) => ({ id: Number(id) }))
  expect(await messages()).toMatchObject([{ channel: kept, accounts: rest }])
  await change('delete from official_account')
  await passes(1)
  expect(await messages()).toMatchObject([{ accounts: [] }])
})

/** Results of checks as the account monitor stores them. */
const storeFaults = (faults: number, successes: number) =>
  database.query(
    `update account_check c set checked_at = now(), fault = case when n <= $1::int then 'LINE is unreachable' end
       from (select channel_oa_id as id, row_number() over (order by channel_oa_id) as n from account_check) numbered
      where id = c.channel_oa_id and n <= $1::int + $2::int`,
    [faults, successes],
  )

it('suspects this service if LINE delivers and no receiver responds', async () => {
  const { ids } = await addWatched(3)
  await storeDelivery(ids[0] as bigint)
  for (const cause of ['service', 'line']) {
    await storeFaults(3, 0)
    await passes(2)
    expect((await messages()).at(-1)).toMatchObject({ kind: 'platform_down', facts: { cause } })
    await storeFaults(0, 3)
    await passes(2)
    expect((await messages()).at(-1)).toMatchObject({ kind: 'platform_up' })
    // Its receiver responds, so the network of this service works.
    await change(
      `with p as (insert into endpoint (channel_oa_id, url) values ($1, 'https://crm.example/') returning id)
       insert into endpoint_answer (endpoint_id, answered_at, status, answer) select id, now(), 500, '' from p`,
      [ids[0]],
    )
  }
})

it('names this service as the cause of deliveries that it refused', async () => {
  const { ids } = await addWatched(3)
  await change(
    `insert into delivery_hour (channel_oa_id, hour, source, failed) values ($1, date_trunc('hour', now()), 'line', 1)`,
    [ids[0]],
  )
  await passes(2)
  expect(await messages()).toMatchObject([{ reason: 'deliveries_failed', facts: { cause: 'service' } }])
})

it('deletes messages after 30 days', async () => {
  const channel = await addChannel()
  await change(
    `insert into notification (notification_channel_id, kind, created_at, sent_at)
     select $1, 'test', now() - days * interval '1 day', now() from unnest(array[29, 31]) days`,
    [channel],
  )
  await maintain(database)
  expect(await messages()).toHaveLength(1)
})
