/** What channels receive for any history of statuses, by a model of the watch and of a sender that stops now and then. */
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import {
  type Channel,
  covers,
  GROUP_MS,
  type Message,
  PER_HOUR_MAX,
  planMessages,
} from '../../src/background/notifications/plan-messages.ts'
import { FAULTS_MIN, type PlatformState, stepPlatform } from '../../src/background/notifications/platform.ts'
import {
  type Alert,
  type Announcement,
  dueReminders,
  type Level,
  levelOf,
  PASSES_NEEDED,
  type Sighting,
  stepAlert,
} from '../../src/background/notifications/transitions.ts'
import { nextInterval, PASS_INTERVAL_MS } from '../../src/background/notifications/watch.ts'
import { REASONS } from '../../src/operator/accounts/account-status.ts'
import { runs } from '../support/runs.ts'

const HOUR_MS = 3_600_000
const START = Date.UTC(2026, 0, 1, 20)

const CHANNELS: Channel[] = [
  { id: 1n, organizationId: null, createdAt: START },
  { id: 2n, organizationId: 7n, createdAt: START },
]
const ACCOUNTS = [1n, 2n, 3n]
const organizationOf = (id: bigint) => (id === 3n ? 8n : 7n)

const SEEN = [
  'ok',
  'never_delivered',
  'no_channel_secret',
  'suspended',
  'quota_used_up',
  'events_unapplied',
] as const
type Seen = (typeof SEEN)[number]

function sighting(id: bigint, seen: Seen): Sighting {
  const status = seen === 'ok' ? 'ok' : REASONS[seen]
  const problem = seen === 'ok' ? null : ({ reason: seen, status, facts: {} } as Sighting['problem'])
  return { id, organizationId: organizationOf(id), status, problem, checkedAt: null }
}

type Stored = Message & { id: bigint; sentAt: number | null; createdAt: number }

/** The watch, the stored rows, and a sender. */
class Model {
  alerts = new Map<bigint, Alert>()
  stored: Stored[] = []
  /** of each account, in the order of the passes */
  seen = new Map<bigint, Level[]>(ACCOUNTS.map((id) => [id, []]))
  now = START
  #lastId = 0n

  pass(statuses: Seen[]): void {
    const announcements: Announcement[] = []
    for (const [index, id] of ACCOUNTS.entries()) {
      const seen = sighting(id, statuses[index] as Seen)
      this.seen.get(id)?.push(levelOf(seen.status))
      const step = stepAlert(this.alerts.get(id) ?? null, seen, true, this.now)
      if (step.alert === null) this.alerts.delete(id)
      else this.alerts.set(id, step.alert)
      if (step.announcement !== null) announcements.push(step.announcement)
    }
    this.#store(announcements)
  }

  #store(announcements: Announcement[]): void {
    const unsent = this.stored.filter(({ sentAt }) => sentAt === null)
    const rowOf = (message: Stored) => ({
      ...message,
      channelId: message.channel.id,
      at: message.sentAt ?? message.dueAt,
    })
    const plan = planMessages(
      announcements,
      {
        channels: CHANNELS,
        waiting: unsent.map(rowOf),
        waitingAccounts: unsent.flatMap(({ id, accounts }) =>
          accounts.map((account) => ({ messageId: id, accountId: account.id, before: account.before })),
        ),
        recent: this.stored.map(rowOf),
      },
      this.now,
    )
    for (const { messageId, accountId } of plan.removed) {
      const message = this.stored.find(({ id }) => id === messageId) as Stored
      message.accounts = message.accounts.filter(({ id }) => id !== accountId)
    }
    for (const message of plan.messages) {
      const open = this.stored.find(({ id }) => id === message.id)
      if (open !== undefined) open.accounts.push(...message.accounts)
      else
        this.stored.push({
          ...message,
          id: ++this.#lastId,
          sentAt: null,
          createdAt: this.now,
        })
    }
    this.stored = this.stored.filter(({ sentAt, accounts }) => sentAt !== null || accounts.length > 0)
  }

  send(): void {
    for (const message of this.stored.filter(({ sentAt, dueAt }) => sentAt === null && dueAt <= this.now))
      message.sentAt = this.now
  }

  /** What a channel received about an account, in the order in which it was sent. */
  received(channel: Channel, accountId: bigint) {
    return this.stored
      .filter((message) => message.channel.id === channel.id && message.sentAt !== null)
      .sort((a, b) => (a.sentAt ?? 0) - (b.sentAt ?? 0) || a.createdAt - b.createdAt)
      .flatMap(({ kind, accounts }) =>
        accounts.filter(({ id }) => id === accountId).map(({ before, after }) => ({ kind, before, after })),
      )
  }
}

const step = fc.record({
  statuses: fc.array(fc.constantFrom(...SEEN), { minLength: ACCOUNTS.length, maxLength: ACCOUNTS.length }),
  /** passes with these statuses */
  passes: fc.integer({ min: 1, max: 4 }),
  pauseMs: fc.constantFrom(30_000, 35_000, 10 * 60_000, 3 * HOUR_MS),
  isSending: fc.boolean(),
})
const histories = fc.array(step, { maxLength: 25 })
type History = typeof histories extends fc.Arbitrary<infer T> ? T : never

function play(history: History): Model {
  const model = new Model()
  for (const { statuses, passes, pauseMs, isSending } of history)
    for (let i = 0; i < passes; i += 1) {
      model.now += i === 0 ? pauseMs : 30_000
      if (isSending) model.send()
      model.pass(statuses)
    }
  return model
}

/** The last statuses stay, and the sender works again. */
function settle(model: Model, statuses: Seen[]): void {
  for (let i = 0; i < 30; i += 1) {
    model.now += i < 10 ? 30_000 : HOUR_MS
    model.send()
    model.pass(statuses)
  }
}

function forEachHistory(check: (model: Model, last: Seen[]) => void, count = 400): void {
  fc.assert(
    fc.property(histories, (history) => check(play(history), history.at(-1)?.statuses ?? ['ok', 'ok', 'ok'])),
    { numRuns: runs(count) },
  )
}

const pairs = (model: Model) =>
  CHANNELS.flatMap((channel) =>
    ACCOUNTS.filter((id) => covers(channel, organizationOf(id))).map((id) => ({
      id,
      received: model.received(channel, id),
    })),
  )

describe('for any history of statuses, a channel', () => {
  it('receives each status of an account once, with the one that it received before', () => {
    forEachHistory((model, last) => {
      settle(model, last)
      for (const { received } of pairs(model)) {
        let told: Level = 'ok'
        for (const { kind, before, after } of received) {
          expect(before).toBe(told)
          expect(levelOf(after)).not.toBe(told)
          told = levelOf(after)
          expect(kind).toBe(told === 'ok' ? 'recovery' : 'problem')
        }
      }
    })
  })

  it('knows the status of every account once it has stayed for a day', () => {
    forEachHistory((model, last) => {
      settle(model, last)
      for (const { id, received } of pairs(model)) {
        const status = sighting(id, last[ACCOUNTS.indexOf(id)] as Seen).status
        expect(levelOf(received.at(-1)?.after ?? 'ok')).toBe(levelOf(status))
      }
    })
  })

  it('receives nothing that one pass alone saw, and nothing about accounts of another organization', () => {
    forEachHistory((model) => {
      for (const { id, received } of pairs(model))
        for (const { after } of received) {
          const levels = model.seen.get(id) ?? []
          expect(levels.some((level, index) => level === levelOf(after) && levels[index + 1] === level)).toBe(
            true,
          )
        }
      for (const { channel, accounts } of model.stored)
        expect(accounts.every(({ id }) => covers(channel, organizationOf(id)))).toBe(true)
    })
  })

  it('receives at most three messages about one reason in an hour', () => {
    forEachHistory((model) => {
      const keyOf = ({ channel, kind, reason }: Message) => `${channel.id} ${kind} ${reason}`
      for (const message of model.stored) {
        const same = model.stored.filter((each) => keyOf(each) === keyOf(message))
        const inHour = same.filter(({ dueAt }) => dueAt >= message.dueAt && dueAt < message.dueAt + HOUR_MS)
        expect(inHour.length).toBeLessThanOrEqual(PER_HOUR_MAX)
      }
    })
  })
})

describe('reminders', () => {
  it('repeat every announced problem within 25 hours, and are 23 hours apart', () => {
    fc.assert(
      fc.property(
        fc.array(fc.integer({ min: 0, max: 72 * 60 }), { minLength: 1, maxLength: 10 }),
        (minutes) => {
          const alerts = new Map<bigint, Alert>()
          const reminders: number[] = []
          for (let minute = 0; minute <= 120 * 60; minute += 15) {
            const now = START + minute * 60_000
            for (const [index, at] of minutes.entries())
              if (at <= minute && !alerts.has(BigInt(index)))
                alerts.set(BigInt(index), announced(BigInt(index), now))
            const due = dueReminders(alerts.values(), now)
            if (due.length > 0) reminders.push(now)
            for (const alert of due)
              alerts.set(alert.id, {
                ...alert,
                announced: { ...announced(alert.id, now).announced } as Alert['announced'],
              })
            for (const alert of alerts.values())
              expect(now - (alert.announced?.remindedAt ?? 0)).toBeLessThan(25 * HOUR_MS)
          }
          for (const [index, at] of reminders.slice(1).entries())
            expect(at - (reminders[index] as number)).toBeGreaterThanOrEqual(23 * HOUR_MS)
        },
      ),
      { numRuns: runs(200) },
    )
  })
})

const announced = (id: bigint, now: number): Alert => ({
  ...{ id, organizationId: 7n, status: 'broken', passes: PASSES_NEEDED, since: now },
  announced: { status: 'broken', reason: 'suspended', at: now, remindedAt: now },
})

describe('an outage of LINE', () => {
  it('begins and ends in turn, after two passes in a row that saw it, and lasts while nothing succeeds', () => {
    const checks = fc.record({ faults: fc.nat(5), succeeded: fc.constantFrom(0, 0, 1) })
    fc.assert(
      fc.property(fc.array(checks, { maxLength: 40 }), (passes) => {
        let state: PlatformState = { downSince: null, isAnnounced: false }
        let last: string | null = 'up'
        for (const [index, seen] of passes.entries()) {
          const next = stepPlatform(state, seen, START + index)
          state = next.state
          if (next.event === null) continue
          expect(next.event).not.toBe(last)
          last = next.event
          const both = passes.slice(index - 1, index + 1)
          expect(both).toHaveLength(2)
          const isOutage = ({ faults, succeeded }: (typeof passes)[number]) =>
            succeeded === 0 && faults >= FAULTS_MIN
          if (next.event === 'down') expect(both.every(isOutage)).toBe(true)
          else expect(both.some(({ faults, succeeded }) => succeeded === 0 && faults > 0)).toBe(false)
        }
      }),
      { numRuns: runs(1_000) },
    )
  })
})

it('a message is due within two minutes of a change', () => {
  expect(PASSES_NEEDED * PASS_INTERVAL_MS + GROUP_MS).toBeLessThanOrEqual(120_000)
})

it('passes use at most a fifth of the time', () => {
  expect([100, 6_000, 20_000].map((lastMs) => nextInterval(PASS_INTERVAL_MS, lastMs))).toEqual([
    30_000, 30_000, 100_000,
  ])
})
