/**
 * Commits a batch of events in one transaction:
 *
 * 1. `numberEvents` removes duplicates and numbers the remaining events.
 * 2. `columnsOf` builds the parameters of the SQL function flush_events (migrations/functions/flush.sql).
 * 3. The function locks the accounts, stores new events, applies them to members, and queues deliveries to endpoints.
 * 4. After the commit, the queued deliveries are handed over to the sender.
 * 5. `outcomesOf` returns the outcome of each event.
 *
 * A transaction that conflicts with another one is sent again.
 */
import {
  booleanArray,
  int4Array,
  int8Array,
  sparse,
  textArray,
  timestamptzArray,
  uuidArray,
} from '../postgres/binary-array.ts'
import { sqlStateOf, violatedConstraint } from '../postgres/faults.ts'
import { MEMBER_ID_TAKEN, skipTakenMemberIds } from '../postgres/schema/taken-ids.ts'
import { type BoundStatement, type SendPipeline, statement } from '../postgres/statement.ts'
import type { Admission, AdmittedEvent, EventOutcome, ForwardedDelivery, IntakeEvent } from './event.ts'

/** Receives the committed deliveries to endpoints. */
export type HandOver = (deliveries: LeasedDelivery[]) => void

export interface LeasedDelivery {
  id: bigint
  accountId: bigint
  endpointId: bigint
  /** including the next one */
  attempts: number
}

/** Each attempt sees the rows that the previous one conflicted with, so ten new conflicts in a row do not happen. */
const ATTEMPTS_MAX = 10

/**
 * Returns the outcome of each event, in order. If it throws an error of the database, nothing was stored.
 * @param send may send the transaction again after a lost connection; events that were already committed are then duplicates
 * @param before statements of the same transaction
 */
export async function flush(
  send: SendPipeline,
  batch: AdmittedEvent[],
  { before = [], handOver }: { before?: BoundStatement[] | undefined; handOver?: HandOver } = {},
): Promise<EventOutcome[]> {
  const numbered = numberEvents(batch)
  const statements = [
    ...before,
    { statement: flushEvents, values: columnsOf(numbered).flatMap(Object.values<Buffer | null>) },
  ]
  for (let attempt = 1; ; attempt += 1) {
    try {
      const [result] = (await send(statements)).at(-1) as unknown as [FlushResult]
      if (result.leased_ids !== null) handOver?.(leasedDeliveries(result))
      return outcomesOf(batch, numbered, result)
    } catch (error) {
      if (attempt === ATTEMPTS_MAX) throw error
      if (violatedConstraint(error) === MEMBER_ID_TAKEN) {
        await skipTakenMemberIds(send, [...new Set(numbered.admissions.map(({ accountId }) => accountId))])
      } else if (!isConflict(error)) throw error
    }
  }
}

/** The primary key of a partition of event_key. */
const KEY_TAKEN = /^event_key(_\w+)?_pkey$/

/** Serialization failure (40001), deadlock (40P01), or a key that a concurrent transaction also inserted. */
export function isConflict(error: unknown): boolean {
  return (
    KEY_TAKEN.test(violatedConstraint(error) ?? '') || ['40001', '40P01'].includes(sqlStateOf(error) ?? '')
  )
}

/** A batch without duplicates. Numbers begin at 1, as positions in PostgreSQL's arrays do. */
type NumberedEvents = ReturnType<typeof numberEvents>

/** `eventNumbers` and `admissionNumbers` are those of each event of the batch. */
function numberEvents(batch: AdmittedEvent[]) {
  const admissions: Admission[] = []
  // For each admission: by the source, or by the events themselves.
  const proven: boolean[] = []
  // Deliveries of an account share one admission object: see cacheAccounts.
  const seen = { proven: new Map<Admission, number>(), unproven: new Map<Admission, number>() }
  const admissionNumbers = batch.map(({ admission, event }) => {
    const isProven = event.isProven ?? admission.source.isProven
    const known = isProven ? seen.proven : seen.unproven
    const number = known.get(admission) ?? admissions.push(admission)
    known.set(admission, number)
    proven[number - 1] = isProven
    return number
  })
  const unique: AdmittedEvent[] = []
  const uniqueAdmissions: number[] = []
  // An event may arrive at the account's own webhook and at that of its module channel. Then the first admission counts.
  const numbers = new Map<string, number>()
  const eventNumbers = batch.map((admitted, index) => {
    const identity = `${admitted.admission.accountId} ${admitted.event.key.toString('latin1')}`
    const known = numbers.get(identity)
    if (known !== undefined) return known
    const number = unique.push(admitted)
    uniqueAdmissions.push(admissionNumbers[index] as number)
    numbers.set(identity, number)
    return number
  })
  return { admissions, proven, unique, uniqueAdmissions, eventNumbers, admissionNumbers }
}

/** The parameters of flush_events by name, in groups. Each is an array, or null if no event of the batch needs it. */
function columnsOf({ admissions, proven, unique, uniqueAdmissions }: NumberedEvents) {
  const events = unique.map(({ event }) => event)
  return [
    admissionColumns(admissions),
    { proven: booleanArray(proven), admissions: int4Array(uniqueAdmissions) },
    eventColumns(events),
    otherColumns(events),
    effectColumns(events),
    forwardColumns(unique.map(({ forwarded }) => forwarded)),
  ]
}

function admissionColumns(admissions: Admission[]) {
  const pathAccountIds = admissions.map(({ foreign }) => foreign?.pathAccountId ?? null)
  const foreignBots = admissions.map(({ foreign }) => foreign?.botUserId ?? null)
  const botVersions = admissions.map(({ foreign }) => foreign?.botVersions ?? null)
  return {
    account_ids: int8Array(admissions.map(({ accountId }) => accountId)),
    credentials_versions: int8Array(admissions.map(({ credentialsVersion }) => credentialsVersion)),
    sources: textArray(admissions.map(({ source }) => source.name)),
    path_account_ids: sparse(pathAccountIds, int8Array),
    foreign_bots: sparse(foreignBots, textArray),
    bot_versions: sparse(botVersions, int8Array),
  }
}

function eventColumns(events: IntakeEvent[]) {
  const groupIds = events.map(({ groupId }) => groupId)
  const failures = events.map(({ failure }) => failure)
  const ownActs = events.map(({ isOwnAct }) => (isOwnAct ? null : false))
  return {
    kinds: textArray(events.map(({ kind }) => kind)),
    keys: uuidArray(events.map(({ key }) => key)),
    occurred_ats: timestamptzArray(events.map(({ occurredAtMs }) => occurredAtMs)),
    user_ids: textArray(events.map(({ userId }) => userId)),
    group_ids: sparse(groupIds, textArray),
    message_ids: textArray(events.map(({ messageId }) => messageId)),
    payloads: textArray(events.map(({ payload }) => payload)),
    failures: sparse(failures, textArray),
    claimed_ats: sparse(events.map(earlierClaim), timestamptzArray),
    own_acts: sparse(ownActs, booleanArray),
  }
}

function earlierClaim({ claimedAtMs, occurredAtMs }: IntakeEvent): number | null {
  return claimedAtMs !== null && claimedAtMs < occurredAtMs ? claimedAtMs : null
}

function otherColumns(events: IntakeEvent[]) {
  const others = events.flatMap(({ userId, otherUserIds }, index) =>
    otherUserIds.filter((other) => other !== userId).map((other) => ({ number: index + 1, other })),
  )
  const numbers = others.map(({ number }) => number)
  const people = others.map(({ other }) => other)
  return { other_events: sparse(numbers, int4Array), other_people: sparse(people, textArray) }
}

function forwardColumns(forwarded: Array<ForwardedDelivery | null>) {
  const numbers = new Map<ForwardedDelivery, number>()
  const deliveries = forwarded.map((delivery) => {
    if (delivery === null) return null
    const number = numbers.get(delivery) ?? numbers.size + 1
    numbers.set(delivery, number)
    return number
  })
  const destinations = forwarded.map((delivery) => delivery?.destination ?? null)
  return { deliveries: sparse(deliveries, int4Array), destinations: sparse(destinations, textArray) }
}

function effectColumns(events: IntakeEvent[]) {
  const column = <Value>(): Array<Value | null> => new Array(events.length).fill(null)
  const relationships = column<string>()
  const conversationIds = column<string>()
  const conversationStatuses = column<string>()
  const conversationTimes = column<number>()
  const unsentMessages = column<string>()
  const accountStates = column<string>()
  const touchSources = column<string>()
  const touchMediums = column<string>()
  const touchCampaigns = column<string>()
  for (const [index, { effect }] of events.entries()) {
    switch (effect.type) {
      case 'none':
        break
      case 'relationship':
        relationships[index] = effect.relationship
        break
      case 'conversation':
        conversationIds[index] = effect.id
        conversationStatuses[index] = effect.status
        conversationTimes[index] = effect.atMs
        break
      case 'unsend':
        unsentMessages[index] = effect.messageId
        break
      case 'accountState':
        accountStates[index] = effect.state
        break
      case 'touch':
        touchSources[index] = effect.source
        touchMediums[index] = effect.medium
        touchCampaigns[index] = effect.campaign
        break
      default:
        throw new Error(`unhandled effect ${(effect satisfies never as { type: string }).type}`)
    }
  }
  return {
    relationships: sparse(relationships, textArray),
    conversation_ids: sparse(conversationIds, textArray),
    conversation_statuses: sparse(conversationStatuses, textArray),
    conversation_ats: sparse(conversationTimes, timestamptzArray),
    unsent_messages: sparse(unsentMessages, textArray),
    account_states: sparse(accountStates, textArray),
    touch_sources: sparse(touchSources, textArray),
    touch_mediums: sparse(touchMediums, textArray),
    touch_campaigns: sparse(touchCampaigns, textArray),
  }
}

/**
 * A flush that contains only duplicates writes nothing, so its commit would not wait for a synchronous standby. The originals may
 * not have reached one yet. The logical message makes the commit wait.
 */
const flushEvents = statement('flush-events')`
    select admitted, duplicates, leased_ids, leased_accounts, leased_endpoints,
           case when pg_current_xact_id_if_assigned() is null and current_setting('synchronous_standby_names') <> ''
                then pg_logical_emit_message(true, 'oa-audience', '') end as waits_for_standby
      from flush_events(${columnsOf(numberEvents([]))
        .flatMap(Object.keys)
        .map((name, index) => `${name} => $${index + 1}`)
        .join(', ')})`

/** `admitted` and `duplicates` are numbers of NumberedEvents. Ids are bigints as text. */
interface FlushResult {
  admitted: number[] | null
  duplicates: number[] | null
  leased_ids: string[] | null
  leased_accounts: string[] | null
  leased_endpoints: string[] | null
}

function outcomesOf(
  batch: AdmittedEvent[],
  { unique, uniqueAdmissions, eventNumbers, admissionNumbers }: NumberedEvents,
  result: FlushResult,
): EventOutcome[] {
  const admitted = new Set(result.admitted)
  const duplicates = new Set(result.duplicates)
  return batch.map((event, index) => {
    const number = eventNumbers[index] as number
    // A duplicate under another admission is only stored if that admission is not stale.
    const isStored = admitted.has(uniqueAdmissions[number - 1] as number)
    if (!isStored || !admitted.has(admissionNumbers[index] as number)) return 'stale'
    if (duplicates.has(number) || unique[number - 1] !== event) return 'duplicate'
    return event.event.failure === null ? 'accepted' : 'unapplied'
  })
}

function leasedDeliveries({ leased_ids, leased_accounts, leased_endpoints }: FlushResult): LeasedDelivery[] {
  return (leased_ids ?? []).map((id, index) => ({
    id: BigInt(id),
    accountId: BigInt(leased_accounts?.[index] as string),
    endpointId: BigInt(leased_endpoints?.[index] as string),
    attempts: 1,
  }))
}
