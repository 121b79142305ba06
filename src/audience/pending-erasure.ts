/** Scrubs the stored events of an erased person, and finishes interrupted erasures. */
import { type Queryable, type Row, statement } from '../postgres/statement.ts'
import { waitForSenders } from './erasure-lock.ts'

/** About 0.1 s, during which flushes of the account wait. */
const EVENTS_PER_STATEMENT = 20_000

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
  while (!(await scrub(database, erasure)));
  // Bodies that were read before the last events were scrubbed may still be written to endpoints.
  await database.query(waitForSenders, [erasure.channel_oa_id])
  await database.query(deletePending, [erasure.channel_oa_id, erasure.member_id])
}

/**
 * Scrubs up to EVENTS_PER_STATEMENT events. Returns whether none is left. An event that another erasure moves at the same time is
 * found but not scrubbed.
 */
export async function scrub(target: Queryable, erasure: PendingErasure): Promise<boolean> {
  const values = [erasure.channel_oa_id, erasure.user_id, erasure.last_event_id, EVENTS_PER_STATEMENT]
  for (const statement of [scrubOwnEvents, scrubOthersEvents, deleteTrackingEvents]) {
    const [counts] = await target.query<{ found: number; scrubbed: number }>(statement, values)
    const { found = 0, scrubbed = 0 } = counts ?? {}
    if (found === EVENTS_PER_STATEMENT || scrubbed < found) return false
  }
  return true
}

// All statements: $1 bigint: account; $2 text: user id; $3 bigint: last event id; $4 int: limit.
//
// Rows are updated by ctid. A ctid is only unique within one partition, so the owner is checked again. `+ 0` and `coalesce` prevent
// the use of indexes for that check, which would compare all events of the person with every ctid. The rows are locked when they are
// found, because an update of a row that was moved since would search all ctids again.

const scrubOwnEvents = statement('scrub-own-events')`
    with found as materialized (
      select ctid as place from event
       where channel_oa_id = $1 and user_id = $2 and id + 0 <= $3 limit $4 for update
    ), scrubbed as (
      update event set user_id = null, group_id = null, message_id = null, payload = null
       where ctid = any (array(select place from found))
         and channel_oa_id + 0 = $1 and coalesce(user_id, '') = $2 and id + 0 <= $3
      returning 1
    )
    select (select count(*) from found)::int as found, (select count(*) from scrubbed)::int as scrubbed`

const scrubOthersEvents = statement('scrub-others-events')`
    with found as materialized (
      select ctid as place from event
       where channel_oa_id = $1 and other_user_ids @> array[$2] and id + 0 <= $3 limit $4 for update
    ), scrubbed as (
      update event set other_user_ids = array_remove(other_user_ids, $2), payload = null
       where ctid = any (array(select place from found))
         and channel_oa_id + 0 = $1 and coalesce(other_user_ids, '{}') @> array[$2] and id + 0 <= $3
      returning 1
    )
    select (select count(*) from found)::int as found, (select count(*) from scrubbed)::int as scrubbed`

/** A tracking event is useless without its person, so its row is deleted. Its key remains in event_key. */
const deleteTrackingEvents = statement('delete-tracking-events')`
    with found as materialized (
      select ctid as place from tracking_event
       where channel_oa_id = $1 and user_id = $2 and id + 0 <= $3 limit $4 for update
    ), deleted as (
      delete from tracking_event
       where ctid = any (array(select place from found))
         and channel_oa_id + 0 = $1 and coalesce(user_id, '') = $2 and id + 0 <= $3
      returning 1
    )
    select (select count(*) from found)::int as found, (select count(*) from deleted)::int as scrubbed`

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
