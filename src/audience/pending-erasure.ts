/** Finishes the erasure of people with very many events. See migrations/functions/erasure.sql. */
import { type Queryable, type Row, statement } from '../postgres/statement.ts'
import { waitForSenders } from './erasure-lock.ts'

/** About 0.1 s, during which flushes of the account wait. */
export const EVENTS_PER_STATEMENT = 20_000

/** An erasure whose events up to `last_event_id` are not yet scrubbed. */
export interface PendingErasure extends Row {
  channel_oa_id: bigint
  member_id: bigint
  user_id: string
  last_event_id: bigint
}

/** Finishes erasures whose process ended early. */
export async function finishErasures(database: Queryable): Promise<void> {
  for (const erasure of await database.query<PendingErasure>(selectAllPending)) {
    await finishErasure(database, erasure)
  }
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
