/** What is stored of the audiences at LINE: see line-audiences.ts. */
import type { AccountId } from '../ids.ts'
import { LINE_TODAY } from '../line-api/line-day.ts'
import { type Row, statement } from '../postgres/statement.ts'
import type { Condition } from './condition.ts'

/**
 * SQL: the segment s is due for an upload. It never has more than three audiences. While the response of an upload is missing, there is
 * no further one.
 */
const IS_UPLOAD_DUE = `s.sync and is_due(s.sync_due_at, interval '24 hours')
         and (select count(*) < 3 and coalesce(bool_and(l.status <> 'uploading'), true)
                from line_audience l where l.segment_id = s.id)`

/** SQL: time of an audience at LINE. A person who is erased meanwhile is gone from LINE within 48 hours. */
const LIFETIME = `interval '47 hours'`

/** SQL: a call to LINE about the audience l is due, at the latest after its time at LINE. */
const IS_CALL_DUE = `is_due(l.due_at, ${LIFETIME})`

/** $1 bigint: after this account */
export const selectAccountToSync = statement('select-account-to-sync')`
    select a.id, coalesce(a.suspended, false) as "isSuspended"
      from (select distinct s.channel_oa_id from segment s where ${IS_UPLOAD_DUE} and s.channel_oa_id > $1
             union
            select distinct l.channel_oa_id from line_audience l where ${IS_CALL_DUE} and l.channel_oa_id > $1) due
     cross join lateral (select id, suspended from official_account where id = due.channel_oa_id offset 0) a
     order by a.id limit 1`

export type AccountToSync = { id: AccountId; isSuspended: boolean }

export interface LineAudience extends Row {
  id: bigint
  segmentId: bigint | null
  name: string
  /** null: no response has named it yet */
  groupId: bigint | null
  status: 'uploading' | 'processing' | 'ready' | 'deleting'
  /** For an hour, LINE may not show what it makes of an upload. */
  isOld: boolean
}

/** $1 bigint: account; $2 int: audiences. Leases them for ten minutes. An audience whose lifetime is over is deleted. */
export const takeDueAudiences = statement('take-due-line-audiences')`
    with due as (
      select l.id from line_audience l where l.channel_oa_id = $1 and ${IS_CALL_DUE}
       order by l.due_at limit $2 for update skip locked)
    update line_audience l
       set due_at = now() + interval '10 minutes',
           status = case when l.created_at < now() - ${LIFETIME}
                           or not exists (select from segment where id = l.segment_id and sync) then 'deleting' else l.status end
      from due where l.id = due.id
    returning l.id, l.segment_id as "segmentId", l.name, l.audience_group_id as "groupId", l.status,
              l.created_at < now() - interval '1 hour' as "isOld"`

/** $1 bigint: audience. The older it is, the rarer: READY takes up to hours. */
export const postponeAudience = statement('postpone-line-audience')`
    update line_audience
       set due_at = now() + case when status = 'deleting' then interval '10 minutes'
                                 else least(greatest((now() - created_at) / 2, interval '1 minute'), interval '1 hour') end
     where id = $1`

/** $1 bigint: audience; $2 bigint: LINE's id. Also of an upload whose sync was switched off meanwhile. The next upload is due a day later. */
export const storeUploaded = statement('store-line-audience')`
    with uploaded as (
      update line_audience
         set audience_group_id = $2, status = case status when 'uploading' then 'processing' else status end,
             due_at = now() + case status when 'uploading' then interval '1 minute' else interval '0' end
       where id = $1
      returning segment_id, created_at, status)
    update segment set sync_fault = null, sync_reason = null, sync_due_at = uploaded.created_at + interval '24 hours'
      from uploaded where segment.id = uploaded.segment_id and uploaded.status = 'processing'`

/** $1 bigint: audience. The newest of the older ones stays, and all others are deleted. */
export const storeReady = statement('store-ready-line-audience')`
    with ready as (
      update line_audience set status = 'ready', due_at = created_at + ${LIFETIME}
       where id = $1 and status = 'processing'
      returning segment_id)
    update line_audience l set status = 'deleting', due_at = now()
      from ready
     where l.segment_id = ready.segment_id and l.id < $1 and l.status <> 'deleting'
       and l.id <> (select max(o.id) from line_audience o
                     where o.segment_id = ready.segment_id and o.id < $1 and o.status <> 'deleting')`

/** $1 bigint: audience. LINE does not have it. */
export const dropAudience = statement('delete-line-audience')`delete from line_audience where id = $1`

/** $1 bigint: audience */
export const endAudience = statement('end-line-audience')`
    update line_audience set status = 'deleting', due_at = now() where id = $1`

/** $1 bigint: segment. Its sync was switched off, or it is being removed. */
export const endAudiencesOf = statement('end-line-audiences-of-segment')`
    update line_audience set status = 'deleting', due_at = now() where segment_id = $1`

export interface SegmentToSync extends Row {
  id: bigint
  name: string
  condition: Condition
  /** LINE's, such as 2026-11-24 */
  day: string
}

/** $1 bigint: account. Leases a segment for 20 minutes, in which its upload ends. */
export const takeSegmentToSync = statement('take-segment-to-sync')`
    update segment set sync_due_at = now() + interval '20 minutes'
     where id = (select s.id from segment s where s.channel_oa_id = $1 and ${IS_UPLOAD_DUE}
                  order by s.sync_due_at limit 1 for no key update skip locked)
    returning id, name, condition, to_char(${LINE_TODAY}, 'YYYY-MM-DD') as day`

/**
 * $1 bigint: segment; $2 text: name. The first look for a missing response is after the upload's own limits of time. Returns nothing if
 * the name is taken, or sync was switched off.
 */
export const addAudience = statement('insert-line-audience')`
    insert into line_audience (channel_oa_id, segment_id, name, due_at)
    select channel_oa_id, id, $2, now() + interval '15 minutes' from segment where id = $1 and sync
        on conflict do nothing
    returning id`

/**
 * $1 bigint: segment; $2 text: fault; $3 text: LINE's reason or null. What is in a segment changes slowly, and reading it costs, so the
 * next attempt is in a day.
 */
export const storeSyncFault = statement('store-sync-fault')`
    update segment
       set sync_fault = $2, sync_reason = $3,
           sync_due_at = now() + case when $2 in ('empty', 'too_large') then interval '1 day' else interval '1 hour' end
     where id = $1`
