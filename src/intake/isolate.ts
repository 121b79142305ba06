/**
 * Handles a batch that the database rejected:
 *
 * 1. If the database is unavailable, all deliveries are rejected. Their senders retry.
 * 2. Otherwise each delivery is flushed separately. Deliveries of one account are flushed one after the other.
 * 3. A delivery whose rows another transaction has locked is rejected, and its account is reported. A delivery that takes too long is
 *    rejected together with the later ones of its account, each of which would take as long.
 * 4. A delivery that fails for another reason is flushed event by event. An event that cannot be applied is stored without effect.
 */
import type { AccountId } from '../ids.ts'
import { eventUnapplied } from '../observability/facts.ts'
import {
  DatabaseBusy,
  DatabaseUnavailable,
  LOCK_TIMEOUT,
  STATEMENT_TIMEOUT,
  sqlStateOf,
} from '../postgres/faults.ts'
import { type BoundStatement, statement } from '../postgres/statement.ts'
import { type AdmittedEvent, type EventOutcome, NO_EFFECT } from './event.ts'
import type { QueuedDelivery } from './fair-queue.ts'
import { isConflict } from './flush.ts'

/** Flushes on a connection that regular flushes leave free. */
export type FlushAlone = (events: AdmittedEvent[], before?: BoundStatement[]) => Promise<EventOutcome[]>

/** Accounts whose deliveries are flushed concurrently. */
const CONCURRENCY = 2

/** Short, because the batch has already waited once, and all other accounts wait. */
const setLimits = statement('set-limits')`
    select set_config('lock_timeout', '10', true), set_config('statement_timeout', '1000', true)`

/** Settles every delivery. Never rejects. @param onLocked called with an account whose rows another transaction has locked */
export async function flushIsolated(
  flushAlone: FlushAlone,
  deliveries: QueuedDelivery[],
  error: unknown,
  onLocked: (accountId: AccountId) => void,
): Promise<void> {
  const accounts = byAccount(deliveries)
  if (isDatabaseDown(error) || (isTooLong(error) && accounts.length === 1))
    return failDeliveries(deliveries, error)
  const work = async () => {
    for (let next = accounts.shift(); next !== undefined; next = accounts.shift()) {
      const outage = await flushOneByOne(flushAlone, next, onLocked)
      if (outage !== null) failDeliveries(accounts.splice(0).flat(), outage)
    }
  }
  await Promise.all(Array.from({ length: CONCURRENCY }, work))
}

/** Returns the error if the database has become unavailable, otherwise null. */
async function flushOneByOne(
  flushAlone: FlushAlone,
  deliveries: QueuedDelivery[],
  onLocked: (accountId: AccountId) => void,
): Promise<unknown> {
  for (const [index, delivery] of deliveries.entries()) {
    try {
      delivery.resolve(await flushAlone(delivery.events, [{ statement: setLimits, values: [] }]))
    } catch (error) {
      if (isDatabaseDown(error) || isTooLong(error)) {
        failDeliveries(deliveries.slice(index), error)
        return isTooLong(error) ? null : error
      }
      if (isLocked(error)) {
        delivery.reject(error)
        onLocked(delivery.accountId)
      } else await flushEachEvent(flushAlone, delivery)
    }
  }
  return null
}

export function failDeliveries(deliveries: QueuedDelivery[], error: unknown): void {
  for (const { reject } of deliveries) reject(error)
}

async function flushEachEvent(flushAlone: FlushAlone, { events, resolve, reject }: QueuedDelivery) {
  const outcomes: EventOutcome[] = []
  try {
    for (const event of events) {
      const outcome = await flushAlone([event]).catch((error) => {
        if (!isAboutTheEvent(error)) throw error
        eventUnapplied.publish({ error })
        return flushAlone([unapplied(event, error)])
      })
      outcomes.push(...outcome)
    }
    resolve(outcomes)
  } catch (error) {
    reject(error)
  }
}

function byAccount(deliveries: QueuedDelivery[]): QueuedDelivery[][] {
  const accounts = new Map<AccountId, QueuedDelivery[]>()
  for (const delivery of deliveries)
    accounts.set(delivery.accountId, [...(accounts.get(delivery.accountId) ?? []), delivery])
  return [...accounts.values()]
}

export const isLocked = (error: unknown) => sqlStateOf(error) === LOCK_TIMEOUT
const isTooLong = (error: unknown) => sqlStateOf(error) === STATEMENT_TIMEOUT

/** The database itself is unavailable or has no free connection, so splitting the batch cannot help. */
function isDatabaseDown(error: unknown): boolean {
  if (error instanceof DatabaseBusy) return true
  return error instanceof DatabaseUnavailable && !isConflict(error) && !isLocked(error) && !isTooLong(error)
}

/**
 * SQLSTATE classes 22 (data) and 54 (limit exceeded) and 23514 (check violation) concern the event. Anything else, such as a missing
 * column, is a fault of the program or the set-up: the sender retries until it is fixed.
 */
function isAboutTheEvent(error: unknown): boolean {
  return /^(22|54)|^23514$/.test(sqlStateOf(error) ?? '')
}

function unapplied({ event, ...admitted }: AdmittedEvent, error: unknown): AdmittedEvent {
  const failure = `the database refused to apply it (SQLSTATE ${sqlStateOf(error)})`
  return { ...admitted, event: { ...event, effect: NO_EFFECT, failure } }
}
