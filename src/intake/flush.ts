/**
 * Applies a batch of events to the database: one transaction, committed when this returns. This is where
 * exactly once is decided, by the primary key of event_key.
 */
import type { AccountId } from '../accounts/account.ts'
import { lockOutErasures } from '../audience/erasure-lock.ts'
import { MEMBER_ID_TAKEN, skipTakenMemberIds } from '../audience/member-ids.ts'
import { int4Array, int8Array, textArray, timestamptzArray, uuidArray } from '../postgres/binary-array.ts'
import { sqlStateOf, violatedConstraint } from '../postgres/faults.ts'
import type { AtOnce, BoundStatement, Queryable, Statement } from '../postgres/statement.ts'
import { applyEvents, eraseUnsent, noteSuspensions } from './apply-events.ts'
import type { IntakeEvent, Source } from './event.ts'

/**
 * `unapplied`: new, and kept without effect, with its reason. `stale`: the account is gone, or what admitted the delivery (a
 * secret, a hash, a key) is no longer the account's.
 */
export type Outcome = 'accepted' | 'unapplied' | 'duplicate' | 'stale'

/** Why a delivery was let in. Compared with the account in the very transaction that keeps its events. */
export interface Admission {
  accountId: AccountId
  source: Source
  /** what the account must still have, as applyEvents puts it together for each source */
  credential: string
}

export interface AdmittedEvent {
  admission: Admission
  event: IntakeEvent
}

export interface FlushOptions {
  /** statements of the same transaction that come first, once the accounts are locked */
  before?: BoundStatement[]
  /** where they are not the session's own limits: for rows that somebody else holds, and for a statement */
  lockTimeoutMs?: number
  statementTimeoutMs?: number
}

/** Each attempt sees what the one before it collided with; so many new collisions in a row do not happen. */
const FLUSH_ATTEMPTS = 10

/**
 * Commits the batch and tells for each event what became of it, in the order given; again, where another transaction
 * did the same at the same moment or members' ids were taken. An event that stands twice in the batch counts once.
 * Throws DatabaseUnavailable, or the database's error, with nothing applied.
 */
export async function flushWithRetry(
  target: AtOnce,
  database: Queryable,
  batch: AdmittedEvent[],
  options: FlushOptions = {},
): Promise<Outcome[]> {
  for (let attempt = 1; ; attempt += 1) {
    try {
      return await flush(target, batch, options)
    } catch (error) {
      if (attempt === FLUSH_ATTEMPTS) throw error
      if (violatedConstraint(error) === MEMBER_ID_TAKEN) {
        const accountIds = new Set(batch.map(({ admission }) => admission.accountId))
        await skipTakenMemberIds(database, [...accountIds])
      } else if (!isConflict(error)) throw error
    }
  }
}

/**
 * Another transaction did the same at the same moment: 40001 serialization failure, 40P01 deadlock, or a key that both
 * were about to make. Or 26000, a statement that the flush before this one failed to prepare. The same batch may well
 * succeed at once.
 */
export function isConflict(error: unknown): boolean {
  return (
    violatedConstraint(error) === 'event_key_pkey' ||
    ['40001', '40P01', '26000'].includes(sqlStateOf(error) ?? '')
  )
}

/** One attempt. */
export async function flush(
  target: AtOnce,
  batch: AdmittedEvent[],
  { before = [], ...limits }: FlushOptions = {},
): Promise<Outcome[]> {
  const { admissions, admissionNos } = numberAdmissions(batch)
  const accountNames = admissions.map(({ accountId }) => String(accountId))
  const placeOf = new Map<string, number>()
  const numbers = batch.map(({ event }, index) => {
    const identity = `${accountNames[admissionNos[index] as number]} ${event.key.toString('latin1')}`
    const known = placeOf.get(identity)
    if (known === undefined) placeOf.set(identity, index)
    return known ?? index
  })
  const unique = placeOf.size === batch.length ? batch.keys() : placeOf.values()
  const events = [...unique].map((no) => {
    const { admission, event } = batch[no] as AdmittedEvent
    return { no, admissionNo: admissionNos[no] as number, admission, event }
  })
  const accountIds = admissions.map(({ accountId }) => accountId)
  const unsends = events.filter(({ event }) => event.effect.type === 'unsend')
  const suspensions = events.filter(({ event }) => event.effect.type === 'suspension')
  const parts = {
    states: events.some(({ event: { effect } }) => ['relationship', 'conversation'].includes(effect.type)),
    others: events.some(({ event }) => event.otherUserIds.length > 0),
    tracked: events.some(({ event }) => event.source === 'tracking'),
  }
  const first = limitsOf(limits)
  const results = await target.transactionAtOnce([
    ...first,
    {
      statement: lockOutErasures,
      values: [int8Array(accountIds), int8Array(unsends.map(({ admission }) => admission.accountId))],
    },
    ...before,
    {
      statement: applyEvents(parts),
      values: [
        ...admissionColumns(admissions),
        ...eventColumns(events),
        ...(parts.states ? stateColumns(events) : []),
        ...(parts.others ? otherColumns(events) : []),
      ],
    },
    ...(unsends.length > 0 ? [{ statement: eraseUnsent, values: unsendColumns(unsends) }] : []),
    ...(suspensions.length > 0
      ? [{ statement: noteSuspensions, values: suspensionColumns(suspensions) }]
      : []),
  ])
  const [answer] = results[first.length + 1 + before.length] as Array<{
    admitted: number[] | null
    known: number[] | null
  }>
  const admitted = new Set(answer?.admitted)
  const duplicates = new Set(answer?.known)
  return numbers.map((no, index) => {
    if (!admitted.has(admissionNos[no] as number)) return 'stale'
    if (duplicates.has(no) || no !== index) return 'duplicate'
    return batch[index]?.event.failure === null ? 'accepted' : 'unapplied'
  })
}

/** For one transaction. */
function limitsOf({ lockTimeoutMs, statementTimeoutMs }: FlushOptions): BoundStatement[] {
  return Object.entries({ lock_timeout: lockTimeoutMs, statement_timeout: statementTimeoutMs }).flatMap(
    ([name, ms]) => (ms === undefined ? [] : [{ statement: setLimit, values: [name, String(ms)] }]),
  )
}

const setLimit: Statement = { name: 'set-limit', text: 'select set_config($1, $2, true)' }

/** `no` is the event's place in the batch, `admissionNo` that of what admitted it in the list of admissions. */
type NumberedEvent = AdmittedEvent & { no: number; admissionNo: number }

/** A batch has few admissions: one for each account and source, unless a secret is just being changed. */
function numberAdmissions(batch: AdmittedEvent[]): {
  admissions: Admission[]
  /** for each event of the batch, the place of what admitted it */
  admissionNos: number[]
} {
  const admissions: Admission[] = []
  const byIdentity = new Map<string, number>()
  // Most deliveries of an account share one object: see RememberedAccounts.
  const numberOf = new Map<Admission, number>()
  const admissionNos = batch.map(({ admission }) => {
    const known = numberOf.get(admission)
    if (known !== undefined) return known
    const identity = `${admission.accountId} ${admission.source} ${admission.credential}`
    const no = byIdentity.get(identity) ?? admissions.push(admission) - 1
    byIdentity.set(identity, no)
    numberOf.set(admission, no)
    return no
  })
  return { admissions, admissionNos }
}

function admissionColumns(admissions: Admission[]): Buffer[] {
  return [
    int4Array([...admissions.keys()]),
    int8Array(admissions.map(({ accountId }) => accountId)),
    textArray(admissions.map(({ source }) => source)),
    textArray(admissions.map(({ credential }) => credential)),
  ]
}

function eventColumns(events: NumberedEvent[]): Buffer[] {
  return [
    int4Array(events.map(({ no }) => no)),
    int4Array(events.map(({ admissionNo }) => admissionNo)),
    textArray(events.map(({ event }) => event.kind)),
    uuidArray(events.map(({ event }) => event.key)),
    timestamptzArray(events.map(({ event }) => event.occurredAtMs)),
    textArray(events.map(({ event }) => event.userId)),
    textArray(events.map(({ event }) => event.messageId)),
    textArray(events.map(({ event }) => event.payload)),
    textArray(events.map(({ event }) => event.failure)),
  ]
}

function stateColumns(events: NumberedEvent[]): Buffer[] {
  const conversation = ({ event: { effect } }: NumberedEvent) =>
    effect.type === 'conversation' ? effect : null
  return [
    textArray(
      events.map(({ event: { effect } }) => (effect.type === 'relationship' ? effect.relationship : null)),
    ),
    textArray(events.map((event) => conversation(event)?.id ?? null)),
    textArray(events.map((event) => conversation(event)?.status ?? null)),
    timestamptzArray(events.map((event) => conversation(event)?.atMs ?? null)),
  ]
}

function unsendColumns(unsends: NumberedEvent[]): Buffer[] {
  const messageIdOf = ({ event: { effect } }: NumberedEvent) =>
    effect.type === 'unsend' ? effect.messageId : null
  return [
    int8Array(unsends.map(({ admission }) => admission.accountId)),
    uuidArray(unsends.map(({ event }) => event.key)),
    textArray(unsends.map(messageIdOf)),
  ]
}

function suspensionColumns(suspensions: NumberedEvent[]): Buffer[] {
  const wordOf = ({ event: { effect } }: NumberedEvent) =>
    effect.type === 'suspension' ? String(effect.suspended) : null
  return [
    int8Array(suspensions.map(({ admission }) => admission.accountId)),
    uuidArray(suspensions.map(({ event }) => event.key)),
    timestamptzArray(suspensions.map(({ event }) => event.occurredAtMs)),
    textArray(suspensions.map(wordOf)),
  ]
}

/** People who joined or left, beside the source. */
function otherColumns(events: NumberedEvent[]): Buffer[] {
  const others = events.flatMap(({ no, event }) =>
    event.otherUserIds.filter((userId) => userId !== event.userId).map((userId) => ({ no, userId })),
  )
  return [int4Array(others.map(({ no }) => no)), textArray(others.map(({ userId }) => userId))]
}
