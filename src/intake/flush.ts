/**
 * Applies a batch of events to the database: one transaction, committed when this returns. This is where
 * exactly once is decided, by the primary key of event_key.
 */
import type { AccountId } from '../accounts/account.ts'
import { lockOutErasures } from '../audience/erasure-lock.ts'
import { int4Array, int8Array, textArray, timestamptzArray, uuidArray } from '../postgres/binary-array.ts'
import type { AtOnce, BoundStatement, Database, Statement } from '../postgres/database.ts'
import type { IntakeEvent, Source } from './event.ts'

/** `stale`: the account is gone, or what admitted the delivery (a secret, a hash, a key) is no longer the account's */
export type Outcome = 'accepted' | 'duplicate' | 'stale'

/** Why a delivery was let in. Compared with the account in the very transaction that keeps its events. */
export interface Admission {
  accountId: AccountId
  source: Source
  /** see credentialOf */
  credential: string
}

export interface AdmittedEvent {
  admission: Admission
  event: IntakeEvent
}

/** Sorts before every key. */
const NO_KEY = '00000000-0000-0000-0000-000000000000'

/**
 * Stores the events that are new and applies them to members.
 *
 * What an event does to a member is commutative and idempotent: counts add up distinct events, first and last
 * seen are a minimum and a maximum, relationship and conversation are the newest by (time, key). So neither
 * order nor repetition nor the instance that flushes can matter.
 *
 * Plain inserts and updates and not `on conflict`, which locks every row a second time: a fifth of the whole. What
 * another flush makes at the same moment, a key or a member, is a violation of its unique key here: the whole batch is
 * rolled back and flushed again, and then sees it.
 */
const applyEvents: Statement = {
  name: 'apply-events',
  text: `
    with admission as materialized (
      -- Most accounts have erased nobody and unsent nothing: then no event of theirs needs to be looked up.
      select d.no as admission_no, d.source, a.id as channel_oa_id, a.organization_id, a.person_key,
             exists (select from erased_person x where x.channel_oa_id = a.id) as has_erased,
             exists (select from unsent_message u where u.channel_oa_id = a.id) as has_unsent
        from unnest($1::int[], $2::bigint[], $3::text[], $4::text[]) as d (no, account_id, source, credential)
        join official_account a on a.id = d.account_id and d.credential = case d.source
             when 'line' then a.channel_secret
             when 'mbox' then a.oa_hash || ' ' || coalesce(a.chat_secret, '')
             when 'tracking' then a.tracking_key end
    ), incoming as materialized (
      select a.source, a.channel_oa_id, a.organization_id, a.person_key, a.has_erased, a.has_unsent, e.*
        from unnest($5::int[], $6::int[], $7::text[], $8::uuid[], $9::timestamptz[], $10::text[], $11::text[],
                    $12::text[], $13::text[], $14::timestamptz[], $15::text[], $16::text[], $17::text[])
             as e (no, admission_no, kind, key, occurred_at, user_id, relationship,
                   conversation_id, conversation_status, conversation_at, message_id, payload, failure)
        join admission a using (admission_no)
    ), told as materialized (
      -- Subqueries in the list of columns and not joins: the planner thinks that a batch has one row, and would
      -- join it in nested loops, 65,000 steps for 256 events.
      select e.*, not exists (
               select from event_key k where k.channel_oa_id = e.channel_oa_id and k.key = e.key) as is_fresh,
             ${isErased('e', 'e.user_id')} as is_erased,
             e.has_unsent and e.message_id is not null and exists (
               select from unsent_message u
                where u.channel_oa_id = e.channel_oa_id and u.message_id = e.message_id) as is_unsent
        from incoming e
    ), remembered as (
      insert into event_key (channel_oa_id, key)
      select channel_oa_id, key from told where is_fresh order by channel_oa_id, key
    ), other as materialized (
      select e.no, e.channel_oa_id, e.organization_id, e.source, e.occurred_at, e.failure, p.user_id,
             ${isErased('e', 'p.user_id')} as is_erased
        from unnest($18::int[], $19::text[]) as p (no, user_id)
        join told e using (no) where e.is_fresh
    ), others as (
      select no, bool_or(is_erased) as some_erased, array_agg(user_id) filter (where not is_erased) as user_ids
        from other group by no
    ), stored as (
      -- An event from before an erasure, or a message that was taken back, keeps its kind and time, so that it is
      -- known; nothing of its content.
      insert into event (channel_oa_id, source, kind, key, occurred_at, user_id, other_user_ids, message_id, payload,
                         failure)
      select e.channel_oa_id, e.source, e.kind, e.key, e.occurred_at,
             case when not e.is_erased then e.user_id end, o.user_ids, e.message_id,
             case when not e.is_erased and not e.is_unsent and o.some_erased is not true then e.payload end, e.failure
        from told e left join others o using (no) where e.is_fresh
    ), person as (
      select channel_oa_id, organization_id, source, user_id, occurred_at, key, relationship,
             conversation_id, conversation_status, conversation_at
        from told where is_fresh and user_id is not null and not is_erased and failure is null
       union all
      select channel_oa_id, organization_id, source, user_id, occurred_at, null, null, null, null, null
        from other where not is_erased and failure is null
    ), activity as materialized (
      select channel_oa_id, organization_id, user_id, source = 'tracking' as tracked,
             count(*) as event_count, min(occurred_at) as first_seen_at, max(occurred_at) as last_seen_at,
             max(occurred_at) filter (where relationship = 'following') as followed_at,
             max(occurred_at) filter (where relationship = 'blocked') as blocked_at,
             -- the newest by (time, key): as texts that sort like what they say
             max(array[${sortable('occurred_at')}, key::text, relationship] collate "C")
               filter (where relationship is not null) as relationship,
             max(array[${sortable('conversation_at')}, key::text, conversation_id, conversation_status] collate "C")
               filter (where conversation_id is not null) as conversation
        from person group by channel_oa_id, organization_id, user_id, source = 'tracking'
       order by channel_oa_id, user_id
    ), applied as (
      update audience_member m
         set event_count = m.event_count + a.event_count,
             first_seen_at = least(m.first_seen_at, a.first_seen_at),
             last_seen_at = greatest(m.last_seen_at, a.last_seen_at),
             followed_at = greatest(m.followed_at, a.followed_at),
             blocked_at = greatest(m.blocked_at, a.blocked_at),
             ${newest('relationship', ['_at::timestamptz', '_key::uuid', ''])},
             ${newest('conversation', ['_at::timestamptz', '_key::uuid', '_id', '_status'])},
             updated_at = case
               when a.relationship is null and a.conversation is null then m.updated_at
               when ${isNewer('relationship')} or ${isNewer('conversation')}
                    or a.followed_at > coalesce(m.followed_at, '-infinity')
                    or a.blocked_at > coalesce(m.blocked_at, '-infinity')
               then greatest(clock_timestamp(), m.updated_at) else m.updated_at end
        from activity a
       where m.channel_oa_id = a.channel_oa_id and m.user_id = a.user_id and not a.tracked
      returning m.channel_oa_id, m.user_id
    ), added as (
      insert into audience_member (
             channel_oa_id, organization_id, user_id, event_count, first_seen_at, last_seen_at, followed_at, blocked_at,
             relationship_at, relationship_key, relationship,
             conversation_at, conversation_key, conversation_id, conversation_status)
      select channel_oa_id, organization_id, user_id, event_count, first_seen_at, last_seen_at, followed_at, blocked_at,
             relationship[1]::timestamptz, relationship[2]::uuid, coalesce(relationship[3], 'unknown'),
             conversation[1]::timestamptz, conversation[2]::uuid, conversation[3], conversation[4]
        from (select *, (channel_oa_id, user_id) in (select channel_oa_id, user_id from applied) as is_known
                from activity) a
       where not tracked and not is_known order by channel_oa_id, user_id
    ), tracked as (
      insert into tracked_activity as t (channel_oa_id, user_id, event_count, first_seen_at, last_seen_at)
      select channel_oa_id, user_id, event_count, first_seen_at, last_seen_at
        from activity where tracked order by channel_oa_id, user_id
          on conflict (channel_oa_id, user_id) do update set
             event_count = t.event_count + excluded.event_count,
             first_seen_at = least(t.first_seen_at, excluded.first_seen_at),
             last_seen_at = greatest(t.last_seen_at, excluded.last_seen_at)
    )
    select array_agg(no) as told, array_agg(no) filter (where not is_fresh) as known from told`,
}

/** Whether the event happened before its person was erased. False where it names nobody. */
function isErased(event: string, userId: string): string {
  return `${event}.has_erased and coalesce(${event}.occurred_at <= (
               select x.erased_at from erased_person x
                where x.channel_oa_id = ${event}.channel_oa_id
                  and x.person_hash = person_hash(${event}.person_key, ${userId})), false)`
}

function sortable(time: string): string {
  return `to_char(${time} at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')`
}

/**
 * Erases the content of messages that their senders took back, and remembers them for messages that come later. In
 * statements of their own, because such events are rare and the search costs what it costs. Only for events that were
 * let in: their keys tell. The flush has locked everybody else out of the account, so no message slips by.
 */
const eraseUnsent: Statement = {
  name: 'erase-unsent',
  text: `
    with unsend as materialized (
      select u.channel_oa_id, u.message_id
        from unnest($1::bigint[], $2::uuid[], $3::text[]) as u (channel_oa_id, key, message_id)
        join event_key k using (channel_oa_id, key)
    ), remembered as (
      insert into unsent_message (channel_oa_id, message_id)
      select distinct channel_oa_id, message_id from unsend order by channel_oa_id, message_id
          on conflict do nothing
    )
    update event e set payload = null
      from unsend u
     where e.channel_oa_id = u.channel_oa_id and e.message_id = u.message_id and e.payload is not null`,
}

const noteSuspensions: Statement = {
  name: 'note-suspensions',
  text: `
    with newest as (
      select distinct on (s.channel_oa_id) s.channel_oa_id, s.suspended, s.occurred_at, s.key
        from unnest($1::bigint[], $2::uuid[], $3::timestamptz[], $4::text[])
             as s (channel_oa_id, key, occurred_at, suspended)
        join event_key k using (channel_oa_id, key)
       order by s.channel_oa_id, s.occurred_at desc, s.key desc
    )
    update official_account a
       set suspended = n.suspended::boolean, suspension_at = n.occurred_at, suspension_key = n.key
      from newest n
     where a.id = n.channel_oa_id
       and (n.occurred_at, n.key) > (coalesce(a.suspension_at, '-infinity'), coalesce(a.suspension_key, '${NO_KEY}'))`,
}

/** True where the batch knows a newer state than the member has. Most batches know none, which is told first. */
function isNewer(state: 'relationship' | 'conversation'): string {
  return `(a.${state} is not null and (a.${state}[1]::timestamptz, a.${state}[2]::uuid)
            > (coalesce(m.${state}_at, '-infinity'), coalesce(m.${state}_key, '${NO_KEY}')))`
}

/** @param columns the state's columns in the order of the array, each with its cast: `_at::timestamptz` */
function newest(state: 'relationship' | 'conversation', columns: string[]): string {
  return columns
    .map((column, index) => {
      const [suffix, type = 'text'] = column.split('::')
      const name = `${state}${suffix}`
      return `${name} = case when ${isNewer(state)} then a.${state}[${index + 1}]::${type} else m.${name} end`
    })
    .join(',\n             ')
}

/**
 * Commits the batch and tells for each event what became of it, in the order given. An event that stands twice
 * in the batch counts once. Throws DatabaseUnavailable, or the database's error, with nothing applied.
 */
export function flush(target: AtOnce, batch: AdmittedEvent[]): Promise<Outcome[]> {
  return flushAfter(target, batch, [])
}

/** @param before statements of the same transaction that come first, once the accounts are locked */
async function flushAfter(
  target: AtOnce,
  batch: AdmittedEvent[],
  before: BoundStatement[],
): Promise<Outcome[]> {
  const first = new Map<string, number>()
  const numbers = batch.map(({ admission, event }, index) => {
    const identity = `${admission.accountId} ${event.key.toString('latin1')}`
    const known = first.get(identity)
    if (known === undefined) first.set(identity, index)
    return known ?? index
  })
  const unique = first.size === batch.length ? batch.keys() : first.values()
  const events = [...unique].map((no) => ({ no, ...(batch[no] as AdmittedEvent) }))
  const admissions = numberAdmissions(events)
  const accountIds = [...admissions.values()].map(({ accountId }) => accountId)
  const unsends = events.filter(({ event }) => event.effect.type === 'unsend')
  const suspensions = events.filter(({ event }) => event.effect.type === 'suspension')
  const results = await target.transactionAtOnce([
    {
      statement: lockOutErasures,
      values: [int8Array(accountIds), int8Array(unsends.map(({ admission }) => admission.accountId))],
    },
    ...before,
    {
      statement: applyEvents,
      values: [...admissionColumns(admissions), ...eventColumns(events, admissions), ...otherColumns(events)],
    },
    ...(unsends.length > 0 ? [{ statement: eraseUnsent, values: unsendColumns(unsends) }] : []),
    ...(suspensions.length > 0
      ? [{ statement: noteSuspensions, values: suspensionColumns(suspensions) }]
      : []),
  ])
  const [answer] = results[1 + before.length] as Array<{ told: number[] | null; known: number[] | null }>
  const outcomes: Array<Outcome | undefined> = []
  for (const no of answer?.told ?? []) outcomes[no] = 'accepted'
  for (const no of answer?.known ?? []) outcomes[no] = 'duplicate'
  return numbers.map((no, index) => {
    const outcome = outcomes[no] ?? 'stale'
    return no !== index && outcome === 'accepted' ? 'duplicate' : outcome
  })
}

/**
 * Applies a stored event that could not be applied, once: the stored one and its key make room for it in the same
 * transaction, so it counts if it did not before, and an erasure meanwhile holds for it like for any event.
 * @param event the stored content, understood anew; the key stays the one under which it was received
 */
export async function retryEvent(database: Database, id: bigint, event: IntakeEvent): Promise<string> {
  if (event.failure !== null) return event.failure
  const [stored] = await database.query<StoredEvent>(
    `select e.channel_oa_id, e.source, e.key, e.received_at, case e.source
            when 'line' then a.channel_secret
            when 'mbox' then a.oa_hash || ' ' || coalesce(a.chat_secret, '') end as credential
       from event e join official_account a on a.id = e.channel_oa_id where e.id = $1 and e.failure is not null`,
    [id],
  )
  if (stored === undefined || stored.credential === null) return 'there is no such event that waits'
  const admission = { accountId: stored.channel_oa_id, source: stored.source, credential: stored.credential }
  const again = { admission, event: { ...event, key: Buffer.from(stored.key.replaceAll('-', ''), 'hex') } }
  const forget = { statement: forgetEvent, values: [id, stored.channel_oa_id] }
  const [outcome] = await flushAfter(database, [again], [forget])
  return outcome === 'accepted' ? 'applied' : 'it changed meanwhile: look at it again'
}

interface StoredEvent {
  [column: string]: unknown
  channel_oa_id: bigint
  source: Source
  key: string
  credential: string | null
}

// The key goes only with the event: of two who retry at once, the second finds neither, and counts nothing.
const forgetEvent: Statement = {
  name: 'forget-event',
  text: `
    with gone as (
      delete from event where id = $1 and channel_oa_id = $2 and failure is not null returning channel_oa_id, key
    )
    delete from event_key k using gone g where k.channel_oa_id = g.channel_oa_id and k.key = g.key`,
}

type NumberedEvent = AdmittedEvent & { no: number }
type NumberedAdmissions = Map<string, Admission & { no: number }>

/** A batch has few admissions: one for each account and source, unless a secret is just being changed. */
function numberAdmissions(events: NumberedEvent[]): NumberedAdmissions {
  const admissions: NumberedAdmissions = new Map()
  for (const { admission } of events) {
    const identity = identityOf(admission)
    if (!admissions.has(identity)) admissions.set(identity, { ...admission, no: admissions.size })
  }
  return admissions
}

function identityOf({ accountId, source, credential }: Admission): string {
  return `${accountId} ${source} ${credential}`
}

function admissionColumns(admissions: NumberedAdmissions): Buffer[] {
  const list = [...admissions.values()]
  return [
    int4Array(list.map(({ no }) => no)),
    int8Array(list.map(({ accountId }) => accountId)),
    textArray(list.map(({ source }) => source)),
    textArray(list.map(({ credential }) => credential)),
  ]
}

function eventColumns(events: NumberedEvent[], admissions: NumberedAdmissions): Buffer[] {
  const conversation = ({ event: { effect } }: NumberedEvent) =>
    effect.type === 'conversation' ? effect : null
  return [
    int4Array(events.map(({ no }) => no)),
    int4Array(events.map(({ admission }) => admissions.get(identityOf(admission))?.no as number)),
    textArray(events.map(({ event }) => event.kind)),
    uuidArray(events.map(({ event }) => event.key)),
    timestamptzArray(events.map(({ event }) => event.occurredAtMs)),
    textArray(events.map(({ event }) => event.userId)),
    textArray(
      events.map(({ event: { effect } }) => (effect.type === 'relationship' ? effect.relationship : null)),
    ),
    textArray(events.map((event) => conversation(event)?.id ?? null)),
    textArray(events.map((event) => conversation(event)?.status ?? null)),
    timestamptzArray(events.map((event) => conversation(event)?.atMs ?? null)),
    textArray(events.map(({ event }) => event.messageId)),
    textArray(events.map(({ event }) => event.payload)),
    textArray(events.map(({ event }) => event.failure)),
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
