/**
 * What happens to a batch that the database refuses: it is split by account and then by delivery, until the cause stands
 * alone. An event that cannot be applied is stored without effect. A delivery whose rows another transaction has locked is
 * refused, so that its sender retries. All others are stored.
 */
import type { AccountId } from '../accounts/account.ts'
import { eventUnapplied } from '../observability/facts.ts'
import type { Database } from '../postgres/database.ts'
import {
  DatabaseBusy,
  DatabaseUnavailable,
  LOCK_TIMEOUT,
  STATEMENT_TIMEOUT,
  sqlStateOf,
} from '../postgres/faults.ts'
import { NO_EFFECT } from './event.ts'
import {
  type AdmittedEvent,
  type FlushOptions,
  flushWithRetry,
  type HandOver,
  isConflict,
  type Outcome,
} from './flush.ts'
import { type QueuedDelivery, settle } from './queued-delivery.ts'

/** Parts flushed concurrently: the connections of intake that flushes leave free. */
const CONCURRENCY = 2
/** For the deliveries of one account together. The batch has taken longer already, and all other accounts wait. */
const ACCOUNT_STATEMENT_TIMEOUT_MS = 1_000
/**
 * For one delivery, after its account's deliveries met rows that another transaction has locked. The batch has already
 * waited once, so each delivery waits only 10 ms now: 256 deliveries × 10 ms ÷ 2 workers = 1.3 s at worst.
 */
const DELIVERY_LOCK_TIMEOUT_MS = 10

/** Settles every delivery, whatever happens. */
export async function flushIsolated(
  database: Database,
  deliveries: QueuedDelivery[],
  error: unknown,
  handOver: HandOver,
): Promise<void> {
  const [only] = deliveries
  const accounts = byAccount(deliveries)
  // If one account's deliveries take too long together, each of them would take too long, one after the other.
  const isTooLong = sqlStateOf(error) === STATEMENT_TIMEOUT && accounts.length === 1
  const isLocked = sqlStateOf(error) === LOCK_TIMEOUT && deliveries.length === 1
  if (isDatabaseDown(error) || isTooLong || isLocked) {
    for (const { reject } of deliveries) reject(error)
  } else if (only !== undefined && deliveries.length === 1) {
    await flushEachEvent(database, only, handOver)
  } else {
    const [parts, limits] =
      accounts.length > 1
        ? [accounts, { statementTimeoutMs: ACCOUNT_STATEMENT_TIMEOUT_MS }]
        : [deliveries.map((delivery) => [delivery]), { lockTimeoutMs: DELIVERY_LOCK_TIMEOUT_MS }]
    for (const refused of await flushParts(database, parts, { ...limits, handOver })) {
      await flushIsolated(database, refused.part, refused.error, handOver)
    }
  }
}

interface RefusedPart {
  part: QueuedDelivery[]
  error: unknown
}

/** Flushes each part by itself and returns those that the database refused. */
async function flushParts(
  database: Database,
  parts: QueuedDelivery[][],
  limits: FlushOptions,
): Promise<RefusedPart[]> {
  const refused: RefusedPart[] = []
  const waiting = [...parts]
  const work = async () => {
    for (let part = waiting.shift(); part !== undefined; part = waiting.shift()) {
      try {
        const events = part.flatMap((delivery) => delivery.events)
        settle(part, await flushWithRetry(database.intake.pipeline, database.intake, events, limits))
      } catch (error) {
        refused.push({ part, error })
        // Each of the others would only wait for the same failure.
        if (isDatabaseDown(error)) refused.push(...waiting.splice(0).map((part) => ({ part, error })))
      }
    }
  }
  await Promise.all(Array.from({ length: CONCURRENCY }, work))
  return refused
}

async function flushEachEvent(
  database: Database,
  { events, resolve, reject }: QueuedDelivery,
  handOver: HandOver,
): Promise<void> {
  const outcomes: Outcome[] = []
  try {
    for (const event of events) outcomes.push(await flushOrStoreUnapplied(database, event, handOver))
    resolve(outcomes)
  } catch (error) {
    reject(error)
  }
}

async function flushOrStoreUnapplied(
  database: Database,
  event: AdmittedEvent,
  handOver: HandOver,
): Promise<Outcome> {
  const flushOne = async (one: AdmittedEvent) => {
    const [outcome] = await flushWithRetry(database.intake.pipeline, database.intake, [one], { handOver })
    return outcome as Outcome
  }
  try {
    return await flushOne(event)
  } catch (error) {
    if (!isAboutTheEvent(error)) throw error
    eventUnapplied.publish({ error: error as Error })
    return flushOne(unapplied(event, error))
  }
}

function byAccount(deliveries: QueuedDelivery[]): QueuedDelivery[][] {
  const accounts = new Map<AccountId, QueuedDelivery[]>()
  for (const delivery of deliveries) {
    const others = accounts.get(delivery.accountId)
    if (others === undefined) accounts.set(delivery.accountId, [delivery])
    else others.push(delivery)
  }
  return [...accounts.values()]
}

/** The database itself is unavailable, or has no connection free, so splitting the batch cannot help. */
function isDatabaseDown(error: unknown): boolean {
  if (error instanceof DatabaseBusy) return true
  const isAboutRows = [LOCK_TIMEOUT, STATEMENT_TIMEOUT].includes(sqlStateOf(error) ?? '')
  return error instanceof DatabaseUnavailable && !isConflict(error) && !isAboutRows
}

/**
 * SQLSTATE classes 22 (data) and 54 (limit exceeded) and 23514 (check violation) are certainly about the event. Anything
 * else, such as a missing column, is a fault of this program or of the set-up: the sender keeps the event until it is fixed.
 */
function isAboutTheEvent(error: unknown): boolean {
  return /^(22|54)|^23514$/.test(sqlStateOf(error) ?? '')
}

function unapplied({ event, ...admitted }: AdmittedEvent, error: unknown): AdmittedEvent {
  const failure = `the database refused to apply it (SQLSTATE ${sqlStateOf(error)})`
  return { ...admitted, event: { ...event, effect: NO_EFFECT, failure } }
}
