/** Advisory locks of an account between erasures, flushes, and bodies that are written to endpoints. See functions/locks.sql. */
import type { Database } from '../postgres/database.ts'
import { type Queryable, type Row, statement } from '../postgres/statement.ts'

/** $1 bigint: the account. Waits for bodies that are being written, then for flushes. None begins until this transaction ends. */
export const lockOutSendersAndFlushes = statement('lock-out-senders-and-flushes')`
    select lock_out_sending($1), lock_out_flushes($1)`

/** $1 bigint: the account. Waits for bodies that were read before. */
export const waitForSenders = statement('wait-for-senders')`select lock_out_sending($1)`

/** $1 bigint: the account. Returns whether waitForSenders would not wait. */
const areSendersQuiet = statement('are-senders-quiet')`
    select case when exists (select from endpoint where channel_oa_id = $1) then is_sending_quiet($1) else true end
           as is_quiet`

export class SendersBarrier {
  readonly #database: Database
  /** Each account has one wait at a time. Callers during that wait share the next one, which begins after their commits. */
  readonly #running = new Map<bigint, Promise<unknown>>()
  readonly #next = new Map<bigint, Promise<void>>()

  constructor(database: Database) {
    this.#database = database
  }

  /**
   * After an unsend: resolves when bodies that were read before are written. Rejects if the process of a sender is frozen. The wait
   * occupies one connection of the account.
   */
  async pass(accountId: bigint): Promise<void> {
    const [row] = await this.#database.accounts.query<{ is_quiet: boolean }>(areSendersQuiet, [accountId])
    if (row?.is_quiet === true) return
    const running = this.#running.get(accountId)?.catch(() => undefined) ?? Promise.resolve()
    const next = this.#next.get(accountId) ?? running.then(() => this.#wait(accountId))
    this.#next.set(accountId, next)
    return next
  }

  async #wait(accountId: bigint): Promise<void> {
    this.#next.delete(accountId)
    const account = this.#database.forTenant({ accountId, organizationId: null })
    const wait = account.query(waitForSenders, [accountId])
    this.#running.set(accountId, wait)
    await wait.finally(() => this.#running.delete(accountId))
  }
}

/** $1 bigint: the account. Erasures wait for this transaction. Send it before any row is locked, to keep the order of locks. */
export const lockOutErasures = statement('lock-out-erasures')`
    select lock_out_erasures(array[$1::bigint], '{}')`

// Finishes the erasure of people with very many events. See migrations/functions/erasure.sql.

/** About 0.1 s, during which flushes of the account wait. */
export const EVENTS_PER_STATEMENT = 20_000

export interface PendingErasure extends Row {
  channel_oa_id: bigint
  member_id: bigint
  user_id: string
  last_event_id: bigint
}

/** Finishes the others, too, if one fails, for example because another program has locked an event. Throws the last error. */
export async function finishErasures(database: Queryable): Promise<void> {
  let failure: unknown = null
  for (const erasure of await database.query<PendingErasure>(selectAllPending)) {
    await finishErasure(database, erasure).catch((error: unknown) => {
      failure = error
    })
  }
  if (failure !== null) throw failure
}

export async function finishErasure(database: Queryable, erasure: PendingErasure): Promise<void> {
  const values = [erasure.channel_oa_id, erasure.user_id, erasure.last_event_id, EVENTS_PER_STATEMENT]
  for (let isComplete = false; !isComplete; ) {
    const [scrubbed] = await database.query<{ is_complete: boolean }>(scrubEvents, values)
    isComplete = scrubbed?.is_complete === true
  }
  // Bodies that were read before the last events were scrubbed may still be written to endpoints.
  await database.query(waitForSenders, [erasure.channel_oa_id])
  await database.query(deletePending, [erasure.channel_oa_id, erasure.member_id])
}

/** $1 bigint: account; $2 text: user id; $3 bigint: last event id; $4 int: limit. Returns whether no event is left. */
const scrubEvents = statement('scrub-events')`
    select scrub_events($1, array[$2], $3, $4) as is_complete`

/** $1 bigint: account; $2 bigint: organization; $3 bigint: member; $4 text: user id; $5 bigint: last event id. */
export const storePending = statement('store-pending-erasure')`
    insert into pending_erasure (channel_oa_id, organization_id, member_id, user_id, last_event_id)
    values ($1, $2, $3, $4, $5)`

const selectAllPending = statement('select-all-pending-erasures')`
    select channel_oa_id, member_id, user_id, last_event_id from pending_erasure`

/** $1 bigint: account; $2 bigint: organization; $3 bigint: member. */
export const selectPending = statement('select-pending-erasure')`
    select channel_oa_id, member_id, user_id, last_event_id from pending_erasure
     where channel_oa_id = $1 and organization_id = $2 and member_id = $3`

/** $1 bigint: account; $2 bigint: member. */
const deletePending = statement('delete-pending-erasure')`
    delete from pending_erasure where channel_oa_id = $1 and member_id = $2`
