/** People who see links and follow, in any order, and an oracle that says where each of them came from. */
import { randomBytes } from 'node:crypto'
import { isDeepStrictEqual } from 'node:util'
import { eraseUser } from '../../src/audience/erasure/erase.ts'
import {
  type Admission,
  type AdmittedEvent,
  type Effect,
  type IntakeEvent,
  NO_EFFECT,
} from '../../src/intake/event.ts'
import { flush } from '../../src/intake/flush.ts'
import type { PostgresDatabase } from '../../src/postgres/pool/postgres-database.ts'
import type { Tenant } from './database.ts'
import { load } from './load.ts'

const HOUR_MS = 3_600_000
const START_MS = Date.UTC(2026, 0, 15)
/** The follow and the two ends of the time that counts, and around them. Few, so that many touches have the same time. */
const OFFSETS_MS = [-24 * HOUR_MS - 1, -24 * HOUR_MS, -1, 0, 1, HOUR_MS, HOUR_MS + 1, 25 * HOUR_MS]

const pick = <T>(values: readonly T[]): T => values[Math.floor(Math.random() * values.length)] as T

interface Journey {
  userId: string
  events: IntakeEvent[]
}

function eventOf(userId: string, occurredAtMs: number, effect: Effect, kind: string): IntakeEvent {
  return {
    kind,
    key: randomBytes(16),
    occurredAtMs,
    claimedAtMs: null,
    isProven: true,
    isOwnAct: true,
    userId,
    otherUserIds: [],
    groupId: null,
    messageId: null,
    effect,
    payload: '{}',
    failure: null,
  }
}

const touch = (): Effect => {
  const campaign = pick([null, 'autumn', 'winter'])
  return {
    type: 'touch',
    source: campaign === null ? pick(['qr-shop', 'ad']) : pick([null, 'ad']),
    medium: null,
    campaign,
  }
}

/** A person with up to three follows and up to five touches, some of them at the same time, and an event that says nothing. */
function randomJourney(): Journey {
  const userId = `U${randomBytes(16).toString('hex')}`
  const follows = Array.from({ length: pick([0, 1, 1, 1, 2, 3]) }, () => START_MS + pick(OFFSETS_MS))
  const touches = Array.from({ length: pick([0, 1, 2, 3, 5]) }, () => START_MS + pick(OFFSETS_MS))
  return {
    userId,
    events: [
      ...follows.map((at) =>
        eventOf(userId, at, { type: 'relationship', relationship: 'following' }, 'follow'),
      ),
      ...touches.map((at) => eventOf(userId, at, touch(), 'page')),
      eventOf(userId, START_MS, NO_EFFECT, 'message'),
    ],
  }
}

type Decided = { source: string | null; campaign: string | null; atMs: number } | null

/** The rule of docs/sources.md, over the sets of a person's touches and follows. */
function oracle({ events }: Journey): Decided {
  const follow = Math.min(
    ...events.filter(({ kind }) => kind === 'follow').map(({ occurredAtMs }) => occurredAtMs),
  )
  const candidates = events
    .filter(
      ({ effect, occurredAtMs: at }) =>
        effect.type === 'touch' && at >= follow - 24 * HOUR_MS && at <= follow + HOUR_MS,
    )
    .sort((a, b) => a.occurredAtMs - b.occurredAtMs || Buffer.compare(a.key, b.key))
  const decides = candidates.findLast(({ occurredAtMs }) => occurredAtMs <= follow) ?? candidates[0]
  if (decides === undefined || decides.effect.type !== 'touch') return null
  const { source, campaign } = decides.effect
  return { source, campaign, atMs: decides.occurredAtMs }
}

/** All events in any order, each once or twice, in batches of up to 200. */
function shuffledBatches(journeys: Journey[], admission: Admission): AdmittedEvent[][] {
  const events = journeys.flatMap(({ events }) =>
    events.flatMap((event) => (Math.random() < 0.2 ? [event, event] : [event])),
  )
  for (let last = events.length - 1; last > 0; last -= 1) {
    const other = Math.floor(Math.random() * (last + 1))
    ;[events[last], events[other]] = [events[other] as IntakeEvent, events[last] as IntakeEvent]
  }
  const batches: AdmittedEvent[][] = []
  for (let start = 0; start < events.length; ) {
    const size = pick([1, 20, 200])
    batches.push(events.slice(start, start + size).map((event) => ({ admission, event, forwarded: null })))
    start += size
  }
  return batches
}

/** Flushes and erasures of an account wait for each other, so one of them may be refused. Senders and clients repeat it. */
async function repeated(attempt: () => Promise<unknown>, attempts = 20): Promise<void> {
  await attempt().catch((error: unknown) => {
    if (attempts === 1) throw error
    return repeated(attempt, attempts - 1)
  })
}

/**
 * Flushes random journeys from two instances, some batches twice, and erases some of the people meanwhile. Returns those whose member has
 * another source than the oracle says. All events are older than an erasure, so no erased person is a member.
 */
export async function tryJourneys(database: PostgresDatabase, tenant: Tenant, people: number) {
  const { accountId, organizationId } = tenant
  const journeys = Array.from({ length: people }, randomJourney)
  const erased = journeys.filter(() => Math.random() < 0.05)
  const [account] = await load<{ version: bigint }>(
    database,
    'select credentials_version as version from official_account where id = $1',
    [accountId],
  )
  const source = { name: 'line', isProven: true }
  const batches = shuffledBatches(journeys, { accountId, credentialsVersion: account?.version ?? 0n, source })
  const instance = async () => {
    for (let batch = batches.shift(); batch !== undefined; batch = batches.shift()) {
      const events = batch
      await repeated(() => flush(database.intake.pipeline, events))
      if (Math.random() < 0.1) batches.push(batch)
    }
  }
  const scope = { keyId: null, accountId, organizationId }
  const eraser = async () => {
    for (const { userId } of erased)
      await repeated(() => eraseUser(database.forTenant(scope), null, scope, userId, Date.now))
  }
  await Promise.all([instance(), instance(), eraser()])
  const members = await load<{
    userId: string
    source: string | null
    campaign: string | null
    atMs: number | null
  }>(
    database,
    `select user_id as "userId", source, campaign, extract(epoch from source_at)::float8 * 1000 as "atMs"
       from audience_member where channel_oa_id = $1`,
    [accountId],
  )
  const decided = new Map(
    members.map(({ userId, atMs, ...rest }) => [userId, atMs === null ? null : { ...rest, atMs }]),
  )
  return journeys.filter((journey) => {
    const expected = erased.includes(journey) ? undefined : oracle(journey)
    return !isDeepStrictEqual(decided.get(journey.userId), expected)
  })
}
