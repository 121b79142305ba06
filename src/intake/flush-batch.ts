/** The parameters and results of the SQL function flush_events, as pure functions of a batch of events. */
import {
  booleanArray,
  int4Array,
  int8Array,
  sparse,
  textArray,
  timestamptzArray,
  uuidArray,
} from '../postgres/binary-array.ts'
import { type BoundStatement, statement } from '../postgres/statement.ts'
import type { Admission, AdmittedEvent, ForwardedDelivery, IntakeEvent, Outcome } from './event.ts'

/** A batch without duplicates. Numbers begin at 1, as positions in PostgreSQL's arrays do. */
interface NumberedEvents {
  admissions: Admission[]
  /** For each admission, whether the people of its events are proven, by the source or by the events themselves. */
  proven: boolean[]
  unique: AdmittedEvent[]
  uniqueAdmissions: number[]
  /** For each event of the batch, its number among the unique events. */
  eventNumbers: number[]
  /** For each event of the batch, the number of its admission. */
  admissionNumbers: number[]
}

/** An event may arrive at the account's own webhook and at that of its module channel. Then the first of both admissions counts. */
export function numberEvents(batch: AdmittedEvent[]): NumberedEvents {
  const { admissions, proven, numberOf } = numberAdmissions()
  const admissionNumbers = batch.map(numberOf)
  const unique: AdmittedEvent[] = []
  const uniqueAdmissions: number[] = []
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

/** Deliveries of an account share one admission object: see cacheAccounts. */
function numberAdmissions() {
  const admissions: Admission[] = []
  const proven: boolean[] = []
  const numbers = { proven: new Map<Admission, number>(), unproven: new Map<Admission, number>() }
  const numberOf = ({ admission, event }: AdmittedEvent): number => {
    const isProven = event.isProven ?? admission.source.isProven
    const seen = isProven ? numbers.proven : numbers.unproven
    const number = seen.get(admission) ?? admissions.push(admission)
    seen.set(admission, number)
    proven[number - 1] = isProven
    return number
  }
  return { admissions, proven, numberOf }
}

/**
 * The parameters of flush_events, in the groups and the order of migrations/functions/flush.sql. Each is an array, or null if no event
 * of the batch needs it.
 */
const ADMIT = [
  'account_ids',
  'credentials_versions',
  'sources',
  'proven',
  'path_account_ids',
  'foreign_bots',
  'bot_versions',
] as const
const DEDUPLICATE = [
  'admissions',
  'kinds',
  'keys',
  'occurred_ats',
  'user_ids',
  'group_ids',
  'message_ids',
  'payloads',
  'failures',
] as const
const MEMBERS = ['claimed_ats', 'own_acts', 'other_events', 'other_people'] as const
const EFFECTS = [
  'relationships',
  'conversation_ids',
  'conversation_statuses',
  'conversation_ats',
  'unsent_messages',
  'account_states',
] as const
const DELIVERIES = ['deliveries', 'destinations'] as const
const PARAMETERS = [...ADMIT, ...DEDUPLICATE, ...MEMBERS, ...EFFECTS, ...DELIVERIES]

type Parameters = Record<(typeof PARAMETERS)[number], Buffer | number | null>

/**
 * A flush that contains only duplicates writes nothing, so its commit would not wait for a synchronous standby. The originals may
 * not have reached one yet. The logical message makes the commit wait.
 */
const flushEvents = statement('flush-events')`
    select admitted, duplicates, leased_ids, leased_accounts, leased_endpoints,
           case when pg_current_xact_id_if_assigned() is null and current_setting('synchronous_standby_names') <> ''
                then pg_logical_emit_message(true, 'oa-audience', '') end as waits_for_standby
      from flush_events(${PARAMETERS.map((name, index) => `${name} => $${index + 1}`).join(', ')})`

/** `admitted` and `duplicates` are numbers of NumberedEvents. Ids are bigints as text. */
export interface FlushResult {
  admitted: number[] | null
  duplicates: number[] | null
  leased_ids: string[] | null
  leased_accounts: string[] | null
  leased_endpoints: string[] | null
}

export function bindFlush({ admissions, proven, unique, uniqueAdmissions }: NumberedEvents): BoundStatement {
  const events = unique.map(({ event }) => event)
  const columns: Parameters = {
    ...admissionColumns(admissions),
    proven: booleanArray(proven),
    admissions: int4Array(uniqueAdmissions),
    ...eventColumns(events),
    ...otherColumns(events),
    ...effectColumns(events),
    ...forwardColumns(unique.map(({ forwarded }) => forwarded)),
  }
  return { statement: flushEvents, values: PARAMETERS.map((name) => columns[name]) }
}

export function outcomesOf(
  batch: AdmittedEvent[],
  { unique, uniqueAdmissions, eventNumbers, admissionNumbers }: NumberedEvents,
  result: FlushResult,
): Outcome[] {
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

const earlierClaim = ({ claimedAtMs, occurredAtMs }: IntakeEvent) =>
  claimedAtMs !== null && claimedAtMs < occurredAtMs ? claimedAtMs : null

/** People who joined or left, beside the source: the event's number and the person. */
function otherColumns(events: IntakeEvent[]) {
  const others = events.flatMap(({ userId, otherUserIds }, index) =>
    otherUserIds.filter((other) => other !== userId).map((other) => ({ number: index + 1, other })),
  )
  if (others.length === 0) return { other_events: null, other_people: null }
  return {
    other_events: int4Array(others.map(({ number }) => number)),
    other_people: textArray(others.map(({ other }) => other)),
  }
}

/** The number of each forwarded event's delivery, and the delivery's destination. */
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

/** A column that no event needs is null. */
function effectColumns(events: IntakeEvent[]) {
  const column = <Value>(): Array<Value | null> => new Array(events.length).fill(null)
  const relationships = column<string>()
  const conversationIds = column<string>()
  const conversationStatuses = column<string>()
  const conversationTimes = column<number>()
  const unsentMessages = column<string>()
  const accountStates = column<string>()
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
  }
}
