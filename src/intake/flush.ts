/** Commits a batch of events: one call of the SQL function flush_events (migrations/functions/flush.sql), one transaction. */
import type { AccountId } from '../accounts/account.ts'
import { MEMBER_ID_TAKEN, skipTakenMemberIds } from '../audience/member-ids.ts'
import { booleanArray, int4Array, int8Array, textArray } from '../postgres/binary-array.ts'
import { sqlStateOf, violatedConstraint } from '../postgres/faults.ts'
import { sparse } from '../postgres/sparse-column.ts'
import { type BoundStatement, type Queryable, type SendPipeline, statement } from '../postgres/statement.ts'
import type { ForwardedDelivery, IntakeEvent, Source } from './event.ts'
import { effectColumns, eventColumns, forwardColumns, otherColumns } from './flush-columns.ts'

/**
 * `unapplied`: stored without effect, because of the event's `failure`. `stale`: the account has gone, or its credentials
 * have changed since the delivery was admitted; nothing was stored.
 */
export type Outcome = 'accepted' | 'unapplied' | 'duplicate' | 'stale'

/** What admitted a delivery. The flush compares it with the account in the transaction that stores the events. */
export interface Admission {
  /** The account that the events belong to. */
  accountId: AccountId
  /** Of the account in the path of the delivery. */
  credentialsVersion: bigint
  source: Source
  /** The delivery names another bot than that of the account in its path. The flush decides again whose events it carries. */
  foreign?: { pathAccountId: AccountId; botUserId: string }
}

export interface AdmittedEvent {
  admission: Admission
  event: IntakeEvent
  /** The delivery that carries the event, if endpoints receive it. Null: the event is not forwarded. */
  forwarded: ForwardedDelivery | null
}

export interface FlushOptions {
  /** Statements of the same transaction that run first. */
  before?: BoundStatement[]
  /** Replace the connection's own limits: for rows that another transaction has locked, and for a statement. */
  lockTimeoutMs?: number
  statementTimeoutMs?: number
  handOver?: HandOver
}

/** Receives what was committed for endpoints. @param fansOut there are new rows of endpoint_fan_out */
export type HandOver = (deliveries: LeasedDelivery[], fansOut: boolean) => void

/** A row of endpoint_delivery that this process has leased until it has been sent. */
export interface LeasedDelivery {
  id: bigint
  accountId: bigint
  endpointId: bigint
}

/**
 * Endpoints of one account for which a flush stores a row each: 20 rows are 0.3 ms. With more, it stores one row for all of them.
 * Most accounts have fewer than five.
 */
const ENDPOINTS_PER_FLUSH = 20

/** Each attempt sees what the previous one collided with, so ten new collisions in a row do not happen. */
const FLUSH_ATTEMPTS = 10

/**
 * Commits the batch and returns each event's outcome, in the order given. It retries where another transaction inserted the
 * same key at the same moment, or where member ids were taken. Throws DatabaseUnavailable, or the database's error, with
 * nothing stored.
 */
export async function flushWithRetry(
  send: SendPipeline,
  database: Queryable,
  batch: AdmittedEvent[],
  options: FlushOptions = {},
): Promise<Outcome[]> {
  for (let attempt = 1; ; attempt += 1) {
    try {
      return await flush(send, batch, options)
    } catch (error) {
      if (attempt === FLUSH_ATTEMPTS) throw error
      if (violatedConstraint(error) === MEMBER_ID_TAKEN) {
        const accountIds = new Set(batch.map(({ admission }) => admission.accountId))
        await skipTakenMemberIds(database, [...accountIds])
      } else if (!isConflict(error)) throw error
    }
  }
}

/** The primary key of a partition of event_key. */
const KEY_TAKEN = /^event_key(_\w+)?_pkey$/

/**
 * Another transaction did the same at the same moment: 40001 serialization failure, 40P01 deadlock, or a key that both
 * inserted.
 */
export function isConflict(error: unknown): boolean {
  return (
    KEY_TAKEN.test(violatedConstraint(error) ?? '') || ['40001', '40P01'].includes(sqlStateOf(error) ?? '')
  )
}

/** One attempt. An event that is in the batch twice counts once. */
export async function flush(
  send: SendPipeline,
  batch: AdmittedEvent[],
  { before = [], handOver, ...limits }: FlushOptions = {},
): Promise<Outcome[]> {
  const { admissions, proven, positions } = numberAdmissions(batch)
  const { unique, indexes } = withoutRepetitions(batch)
  const events = unique.map((index) => (batch[index] as AdmittedEvent).event)
  const values = [
    int8Array(admissions.map(({ accountId }) => accountId)),
    int8Array(admissions.map(({ credentialsVersion }) => credentialsVersion)),
    textArray(admissions.map(({ source }) => source.name)),
    booleanArray(proven),
    int4Array(unique.map((index) => positions[index] as number)),
    ...eventColumns(events),
    ...otherColumns(events),
    ...effectColumns(events),
    ...forwardColumns(unique.map((index) => (batch[index] as AdmittedEvent).forwarded)),
    sparse(
      admissions.map(({ foreign }) => foreign?.pathAccountId ?? null),
      int8Array,
    ),
    sparse(
      admissions.map(({ foreign }) => foreign?.botUserId ?? null),
      textArray,
    ),
    ENDPOINTS_PER_FLUSH,
  ]
  const rows = await send([...limitStatements(limits), ...before, { statement: flushEvents, values }])
  const [result] = rows.at(-1) as unknown as FlushResult[]
  if (result?.leased_ids || result?.fans_out) handOver?.(leasedDeliveries(result), result.fans_out ?? false)
  const admitted = new Set(result?.admitted)
  const duplicates = new Set(result?.duplicates)
  const isAdmitted = (index: number) => admitted.has(positions[index] as number)
  return batch.map(({ event }, index) => {
    const place = indexes[index] as number
    const first = unique[place] as number
    // A copy that another admission brought is only stored if that admission holds.
    if (!isAdmitted(index) || !isAdmitted(first)) return 'stale'
    if (duplicates.has(place + 1) || first !== index) return 'duplicate'
    return event.failure === null ? 'accepted' : 'unapplied'
  })
}

/**
 * Parameters: those of the function, in its order. A flush of duplicates alone writes nothing, so its commit would not wait for
 * a synchronous standby, although the first copies may not have reached one. The message makes it wait.
 */
const flushEvents = statement('flush-events')`
    select admitted, duplicates, leased_ids, leased_accounts, leased_endpoints, fans_out,
           case when pg_current_xact_id_if_assigned() is null and current_setting('synchronous_standby_names') <> ''
                then pg_logical_emit_message(true, 'oa-audience', '') end as waits_for_standby
      from flush_events($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22,
                        $23, $24, $25, $26, $27, $28)`

interface FlushResult {
  admitted: number[] | null
  duplicates: number[] | null
  leased_ids: string[] | null
  leased_accounts: string[] | null
  leased_endpoints: string[] | null
  fans_out: boolean | null
}

function leasedDeliveries({ leased_ids, leased_accounts, leased_endpoints }: FlushResult): LeasedDelivery[] {
  return (leased_ids ?? []).map((id, index) => ({
    id: BigInt(id),
    accountId: BigInt(leased_accounts?.[index] as string),
    endpointId: BigInt(leased_endpoints?.[index] as string),
  }))
}

/** $1 text, $2 text: milliseconds; null keeps the connection's own. For this transaction alone. */
const setLimits = statement('set-limits')`
    select set_config('lock_timeout', coalesce($1, current_setting('lock_timeout')), true),
           set_config('statement_timeout', coalesce($2, current_setting('statement_timeout')), true)`

function limitStatements({ lockTimeoutMs, statementTimeoutMs }: FlushOptions): BoundStatement[] {
  if (lockTimeoutMs === undefined && statementTimeoutMs === undefined) return []
  return [{ statement: setLimits, values: [lockTimeoutMs ?? null, statementTimeoutMs ?? null] }]
}

interface NumberedAdmissions {
  admissions: Admission[]
  /** Whether the events of each admission are proven: by their source, or by themselves. */
  proven: boolean[]
  /** For each event of the batch the position of its admission, from 1. */
  positions: number[]
}

/** The distinct admissions of a batch. A batch has few. */
function numberAdmissions(batch: AdmittedEvent[]): NumberedAdmissions {
  const admissions: Admission[] = []
  const proven: boolean[] = []
  const byIdentity = new Map<string, number>()
  // Most deliveries of an account share one object: see AdmittingAccounts.
  const byObject = { proven: new Map<Admission, number>(), unproven: new Map<Admission, number>() }
  const positions = batch.map(({ admission, event }) => {
    const { accountId, source, credentialsVersion, foreign } = admission
    const isProven = event.isProven ?? source.isProven
    const seen = byObject[isProven ? 'proven' : 'unproven']
    const known = seen.get(admission)
    if (known !== undefined) return known
    const path = foreign === undefined ? '' : `${foreign.pathAccountId} ${foreign.botUserId}`
    const identity = `${accountId} ${source.name} ${credentialsVersion} ${isProven} ${path}`
    const position = byIdentity.get(identity) ?? admissions.push(admission)
    proven[position - 1] = isProven
    byIdentity.set(identity, position)
    seen.set(admission, position)
    return position
  })
  return { admissions, proven, positions }
}

/**
 * `unique` are the indexes of events to store; `indexes` is for each event of the batch its place among those. An account's
 * event may be in the batch under two admissions: by its own webhook and by that of its module channel.
 */
function withoutRepetitions(batch: AdmittedEvent[]): { unique: number[]; indexes: number[] } {
  const unique: number[] = []
  const placeOf = new Map<string, number>()
  const indexes = batch.map(({ admission, event }, index) => {
    const identity = `${admission.accountId} ${event.key.toString('latin1')}`
    const place = placeOf.get(identity) ?? unique.push(index) - 1
    placeOf.set(identity, place)
    return place
  })
  return { unique, indexes }
}
