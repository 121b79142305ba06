/** What channels receive for any history of statuses, by passes on a real database and a sender that stops now and then. */
import fc from 'fast-check'
import { expect, it } from 'vitest'
import { REASONS } from '../../src/watch/account-status.ts'
import {
  announce,
  announcedLevel,
  FAULTS_MIN,
  GROUP_SECONDS,
  PER_HOUR_MAX,
} from '../../src/watch/notifications/announce.ts'
import { claimPass, PASS_INTERVAL_MS } from '../../src/watch/store-statuses.ts'
import { addTenant, createTestDatabase } from '../support/database.ts'
import { addChannel } from '../support/notifications.ts'
import { runs } from '../support/runs.ts'

const HOUR_SECONDS = 3_600
const PASS_SECONDS = PASS_INTERVAL_MS / 1000

const { database } = await createTestDatabase()
const first = await addTenant(database)
const second = await addTenant(database, { organizationId: first.organizationId })
const third = await addTenant(database)
const ACCOUNTS = [first, second, third]
/** Its checks succeed while those of the others fail. */
await addTenant(database)
/** Of all organizations, and of the first one. */
const CHANNELS = [
  { id: await addChannel(database, { target: 'https://chat.example/' }), accounts: ACCOUNTS },
  {
    id: await addChannel(database, {
      organization_id: first.organizationId,
      target: 'https://chat.example/',
    }),
    accounts: ACCOUNTS.slice(0, 2),
  },
]

const SEEN = [
  'ok',
  'never_delivered',
  'no_channel_secret',
  'suspended',
  'quota_used_up',
  'quota_low',
] as const
type Seen = (typeof SEEN)[number]
type Level = 'ok' | 'quota_low' | 'degraded' | 'broken'

const statusOf = (seen: Seen) => (seen === 'ok' ? 'ok' : REASONS[seen])
const levelOf = (status: string, reason: string | null): Level => {
  if (reason === 'quota_low') return reason
  return status === 'broken' || status === 'degraded' ? status : 'ok'
}

interface Message extends Record<string, unknown> {
  channel: bigint
  key: string
  at: number
  accounts: Array<{ id: number; before: string; after: string; reason: string | null; kind: string }>
}

/** Moves every stored time into the past. */
const wait = (seconds: number) =>
  database.query(
    `with checks as (update account_check set status_since = status_since - $1 * interval '1 second'),
          moved as (update notification_watch set platform_since = platform_since - $1 * interval '1 second',
                                                  passed_at = passed_at - $1 * interval '1 second')
     update notification set created_at = created_at - $1 * interval '1 second'`,
    [seconds],
  )

/** A pass that sees these statuses. The facts behind them do not matter here. */
async function pass(statuses: Seen[]): Promise<void> {
  const claimed = await claimPass(database, 0)
  await database.query(
    `update account_check c
        set status = t.status, problems = t.problems::jsonb,
            status_since = case when c.status = t.status
              and ${announcedLevel('c.status', 'c.problems->0')} = ${announcedLevel('t.status', 't.problems::jsonb->0')} 
              then c.status_since else clock_timestamp() end
       from unnest($1::bigint[], $2::text[], $3::text[]) as t (id, status, problems) where c.channel_oa_id = t.id`,
    [
      ACCOUNTS.map(({ accountId }) => accountId),
      statuses.map(statusOf),
      statuses.map((seen) => (seen === 'ok' ? '[]' : JSON.stringify([{ reason: seen, facts: {} }]))),
    ],
  )
  expect(await announce(database, claimed?.pass as bigint)).toBe(true)
}

/** `at` counts seconds before now. */
const readMessages = () =>
  database.query<Message>(
    `select n.notification_channel_id as channel, concat_ws(' ', n.notification_channel_id, n.kind, n.reason) as key,
            extract(epoch from n.created_at)::float8 as at,
            (select jsonb_agg(jsonb_build_object('id', t.channel_oa_id, 'before', t.before, 'after', t.after,
                                                'reason', t.problem->>'reason', 'kind', n.kind))
               from notification_account t where t.notification_id = n.id) as accounts
       from notification n order by n.id`,
  )

const step = fc.record({
  statuses: fc.array(fc.constantFrom(...SEEN), { minLength: ACCOUNTS.length, maxLength: ACCOUNTS.length }),
  /** passes with these statuses */
  passes: fc.integer({ min: 1, max: 5 }),
  pauseSeconds: fc.constantFrom(PASS_SECONDS, PASS_SECONDS + 5, 600, 3 * HOUR_SECONDS),
})

it('for any history of statuses, a channel receives each lasting status of its accounts once, at most three messages about one reason in an hour, and nothing that one pass alone saw', async () => {
  await fc.assert(
    fc.asyncProperty(fc.array(step, { maxLength: 12 }), async (history) => {
      await database.query('delete from notification')
      await database.query(`update account_check set status = 'ok', problems = '[]'`)
      const seen: Seen[][] = []
      const see = async (seconds: number, statuses: Seen[]) => {
        await wait(seconds)
        seen.push(statuses)
        await pass(statuses)
      }
      for (const { statuses, passes, pauseSeconds } of history)
        for (let i = 0; i < passes; i += 1) await see(i === 0 ? pauseSeconds : PASS_SECONDS, statuses)
      const last = history.at(-1)?.statuses ?? ['ok', 'ok', 'ok']
      for (const seconds of [20, 20, 20, HOUR_SECONDS, HOUR_SECONDS]) await see(seconds, last)
      checkMessages(await readMessages(), seen)
    }),
    { numRuns: runs(120) },
  )
})

function checkMessages(messages: Message[], seen: Seen[][]): void {
  for (const { at, key } of messages) {
    const inHour = messages.filter((each) => each.key === key && each.at >= at && each.at < at + HOUR_SECONDS)
    expect(inHour.length).toBeLessThanOrEqual(PER_HOUR_MAX)
  }
  for (const channel of CHANNELS) {
    const received = messages.filter((message) => message.channel === channel.id).flatMap((m) => m.accounts)
    const ids = channel.accounts.map(({ accountId }) => Number(accountId))
    expect(received.every(({ id }) => ids.includes(id))).toBe(true)
    for (const [index, id] of ids.entries()) {
      const levels = seen.map((statuses) =>
        levelOf(statusOf(statuses[index] as Seen), statuses[index] as Seen),
      )
      let sent: Level = 'ok'
      let status = 'ok'
      for (const { before, after, reason, kind } of received.filter((each) => each.id === id)) {
        expect(before).toBe(status)
        // A reminder repeats what the channel knows.
        const level = levelOf(after, reason)
        if (kind !== 'reminder') expect(level).not.toBe(sent)
        sent = level
        status = sent === 'ok' ? 'ok' : after
        expect(kind === 'recovery').toBe(sent === 'ok')
        expect(levels.some((level, pass) => level === sent && levels[pass + 1] === level)).toBe(true)
      }
      expect(sent).toBe(levels.at(-1))
    }
  }
}

it('reminders repeat every announced problem within 25 hours, and are 23 hours apart', async () => {
  const breakAt = fc.array(fc.integer({ min: 0, max: 48 }), { minLength: 3, maxLength: 3 })
  await fc.assert(
    fc.asyncProperty(breakAt, async (hours) => {
      await database.query('delete from notification')
      await database.query(`update account_check set status = 'ok', problems = '[]'`)
      for (let hour = 0; hour <= 80; hour += 1)
        for (const seconds of [GROUP_SECONDS + 1, HOUR_SECONDS - GROUP_SECONDS - 1]) {
          await pass(hours.map((at) => (at <= hour ? 'suspended' : 'ok')))
          await wait(seconds)
        }
      const messages = (await readMessages()).filter(({ channel }) => channel === CHANNELS[0]?.id)
      for (const { accountId } of ACCOUNTS) {
        const times = messages.filter(({ accounts }) => accounts.some(({ id }) => BigInt(id) === accountId))
        for (const [index, { at }] of times.slice(1).entries())
          expect(at - (times[index]?.at as number)).toBeLessThan(25 * HOUR_SECONDS)
        expect(Date.now() / 1000 - (times.at(-1)?.at as number)).toBeLessThan(25 * HOUR_SECONDS)
      }
      const reminders = messages.filter(({ key }) => key.endsWith('reminder'))
      for (const [index, { at }] of reminders.slice(1).entries())
        expect(at - (reminders[index]?.at as number)).toBeGreaterThanOrEqual(23 * HOUR_SECONDS - 60)
    }),
    { numRuns: runs(8) },
  )
})

it('an outage of LINE begins and ends in turn, after two passes in a row that saw it, and lasts while nothing succeeds', async () => {
  const checks = fc.record({ faults: fc.nat(3), succeeded: fc.constantFrom(0, 0, 1) })
  await fc.assert(
    fc.asyncProperty(fc.array(checks, { maxLength: 20 }), async (passes) => {
      await database.query('delete from notification')
      await database.query('update notification_channel set outage_since = null')
      await database.query(
        `update notification_watch set is_platform_down = false, platform_since = '-infinity'`,
      )
      let last = 'platform_up'
      for (const [index, { faults, succeeded }] of passes.entries()) {
        await wait(HOUR_SECONDS)
        await database.query(
          `update account_check c
              set checked_at = case when n <= $1::int + $2::int then now() end, fault = case when n <= $1 then 'LINE is unreachable' end
             from (select channel_oa_id as id, row_number() over (order by channel_oa_id) as n from account_check) numbered
            where id = c.channel_oa_id`,
          [faults, succeeded],
        )
        const before = (await readMessages()).length
        await pass(['ok', 'ok', 'ok'])
        const [added, ...others] = (await readMessages()).slice(before)
        if (added === undefined) continue
        expect(others.map(({ key }) => key.split(' ')[1])).toEqual([added.key.split(' ')[1]])
        expect(added.key).not.toContain(last)
        last = added.key.includes('platform_up') ? 'platform_up' : 'platform_down'
        const both = passes.slice(index - 1, index + 1)
        expect(both).toHaveLength(2)
        const isFailing = ({ faults, succeeded }: (typeof passes)[number], least: number) =>
          succeeded === 0 && faults >= least
        if (last === 'platform_down') {
          expect(isFailing(both[0] as (typeof both)[number], FAULTS_MIN)).toBe(true)
          expect(isFailing(both[1] as (typeof both)[number], 1)).toBe(true)
        } else expect(both.some((each) => isFailing(each, FAULTS_MIN))).toBe(false)
      }
    }),
    { numRuns: runs(60) },
  )
})
