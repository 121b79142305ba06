/**
 * Applies a batch of events to the database: one transaction, committed when this returns. This is where
 * exactly once is decided, by the primary key of event_key.
 */
import type { AccountId } from '../accounts/account.ts'
import { lockOutErasures } from '../audience/erasure-lock.ts'
import type { Database, Statement } from '../postgres/database.ts'
import type { IntakeEvent } from './event.ts'

export type Outcome = 'accepted' | 'duplicate' | 'unknown_account'

export interface AddressedEvent {
  accountId: AccountId
  event: IntakeEvent
}

/**
 * Stores the events that are new and applies them to members.
 *
 * What an event does to a member is commutative and idempotent: counts add up distinct events, first and last
 * seen are a minimum and a maximum, relationship and conversation are the newest by (time, key). So neither
 * order nor repetition nor the instance that flushes can matter.
 */
const applyEvents: Statement = {
  name: 'apply-events',
  text: `
    with incoming as (
      select e.*, a.organization_id, a.person_key
        from unnest($1::int[], $2::bigint[], $3::text[], $4::text[], $5::uuid[], $6::timestamptz[], $7::text[],
                    $8::text[], $9::text[], $10::timestamptz[], $11::text[], $12::text[])
             as e (no, channel_oa_id, source, kind, key, occurred_at, relationship,
                   conversation_id, conversation_status, conversation_at, payload, failure)
        join official_account a on a.id = e.channel_oa_id
    ), fresh as (
      insert into event_key (channel_oa_id, key)
      select channel_oa_id, key from incoming order by channel_oa_id, key
          on conflict do nothing
      returning channel_oa_id, key
    ), person as (
      select p.user_id, p.is_source, e.*, coalesce(x.erased_at >= e.occurred_at, false) as erased
        from unnest($13::int[], $14::text[], $15::boolean[]) as p (no, user_id, is_source)
        join incoming e using (no)
        join fresh using (channel_oa_id, key)
        left join erased_person x
          on x.channel_oa_id = e.channel_oa_id and x.person_hash = person_hash(e.person_key, p.user_id)
    ), named as (
      select no, bool_or(erased) as erased,
             max(user_id) filter (where is_source and not erased) as user_id,
             array_agg(user_id) filter (where not is_source and not erased) as other_user_ids
        from person group by no
    ), stored as (
      -- An event from before an erasure keeps its kind and time, so that it is known; nothing of its content.
      insert into event (channel_oa_id, source, kind, key, occurred_at, user_id, other_user_ids, payload, failure)
      select e.channel_oa_id, e.source, e.kind, e.key, e.occurred_at, n.user_id, n.other_user_ids,
             case when n.erased then null else e.payload end, e.failure
        from incoming e join fresh using (channel_oa_id, key) left join named n using (no)
    ), activity as (
      select channel_oa_id, organization_id, user_id, source = 'tracking' as tracked,
             count(*) as event_count, min(occurred_at) as first_seen_at, max(occurred_at) as last_seen_at,
             max(occurred_at) filter (where relationship = 'following') as followed_at,
             max(occurred_at) filter (where relationship = 'blocked') as blocked_at,
             (array_agg(no order by occurred_at desc, key desc) filter (where relationship is not null))[1]
               as relationship_no,
             (array_agg(no order by conversation_at desc, key desc) filter (where conversation_at is not null))[1]
               as conversation_no
        from person where not erased and failure is null
       group by channel_oa_id, organization_id, user_id, source = 'tracking'
    ), applied as (
      insert into audience_member as m (
             channel_oa_id, organization_id, user_id, event_count, first_seen_at, last_seen_at,
             followed_at, blocked_at, relationship, relationship_at, relationship_key,
             conversation_id, conversation_status, conversation_at, conversation_key)
      select a.channel_oa_id, a.organization_id, a.user_id, a.event_count, a.first_seen_at, a.last_seen_at,
             a.followed_at, a.blocked_at, coalesce(r.relationship, 'unknown'), r.occurred_at, r.key,
             c.conversation_id, c.conversation_status, c.conversation_at, c.key
        from activity a
        left join incoming r on r.no = a.relationship_no
        left join incoming c on c.no = a.conversation_no
       where not a.tracked
       order by a.channel_oa_id, a.user_id
          on conflict on constraint audience_member_user do update set
             event_count = m.event_count + excluded.event_count,
             first_seen_at = least(m.first_seen_at, excluded.first_seen_at),
             last_seen_at = greatest(m.last_seen_at, excluded.last_seen_at),
             followed_at = greatest(m.followed_at, excluded.followed_at),
             blocked_at = greatest(m.blocked_at, excluded.blocked_at),
             (relationship, relationship_at, relationship_key) = (
               select excluded.relationship, excluded.relationship_at, excluded.relationship_key
                where ${isNewer('relationship')}
                union all
               select m.relationship, m.relationship_at, m.relationship_key
                limit 1),
             (conversation_id, conversation_status, conversation_at, conversation_key) = (
               select excluded.conversation_id, excluded.conversation_status,
                      excluded.conversation_at, excluded.conversation_key
                where ${isNewer('conversation')}
                union all
               select m.conversation_id, m.conversation_status, m.conversation_at, m.conversation_key
                limit 1),
             updated_at = case
               when ${isNewer('relationship')} or ${isNewer('conversation')}
                    or excluded.followed_at > m.followed_at or excluded.blocked_at > m.blocked_at
               then now() else m.updated_at end
    ), tracked as (
      insert into tracked_activity as t (channel_oa_id, user_id, event_count, first_seen_at, last_seen_at)
      select channel_oa_id, user_id, event_count, first_seen_at, last_seen_at
        from activity where tracked order by channel_oa_id, user_id
          on conflict (channel_oa_id, user_id) do update set
             event_count = t.event_count + excluded.event_count,
             first_seen_at = least(t.first_seen_at, excluded.first_seen_at),
             last_seen_at = greatest(t.last_seen_at, excluded.last_seen_at)
    )
    select e.no, f.key is not null as fresh
      from incoming e left join fresh f using (channel_oa_id, key)`,
}

/** True where the batch knows a newer state than the member has. Null, and so false, where it knows none. */
function isNewer(state: 'relationship' | 'conversation'): string {
  return `((excluded.${state}_at, excluded.${state}_key)
            > (coalesce(m.${state}_at, '-infinity'), coalesce(m.${state}_key, '00000000-0000-0000-0000-000000000000')))`
}

/**
 * Commits the batch and tells for each event what became of it, in the order given. An event that stands twice
 * in the batch counts once. Throws DatabaseUnavailable, or the database's error, with nothing applied.
 */
export async function flush(database: Database, batch: AddressedEvent[]): Promise<Outcome[]> {
  const first = new Map<string, number>()
  const numbers = batch.map(({ accountId, event }, index) => {
    const identity = `${accountId} ${event.key}`
    const known = first.get(identity)
    if (known === undefined) first.set(identity, index)
    return known ?? index
  })
  const unique = [...first.values()].map((no) => ({ no, ...(batch[no] as AddressedEvent) }))
  const rows = await database.transactionAtOnce<{ no: number; fresh: boolean }>([
    { statement: lockOutErasures, values: [[...new Set(unique.map(({ accountId }) => accountId))]] },
    { statement: applyEvents, values: [...eventColumns(unique), ...personColumns(unique)] },
  ])
  const outcomes = new Map(rows.map(({ no, fresh }) => [no, fresh ? 'accepted' : 'duplicate'] as const))
  return numbers.map((no, index) => {
    const outcome = outcomes.get(no) ?? 'unknown_account'
    return no !== index && outcome === 'accepted' ? 'duplicate' : outcome
  })
}

type NumberedEvent = AddressedEvent & { no: number }

function eventColumns(events: NumberedEvent[]): unknown[] {
  const conversation = ({ event: { effect } }: NumberedEvent) =>
    effect.type === 'conversation' ? effect : null
  return [
    events.map(({ no }) => no),
    events.map(({ accountId }) => accountId),
    events.map(({ event }) => event.source),
    events.map(({ event }) => event.kind),
    events.map(({ event }) => event.key),
    events.map(({ event }) => isoTime(event.occurredAtMs)),
    events.map(({ event: { effect } }) => (effect.type === 'relationship' ? effect.relationship : null)),
    events.map((event) => conversation(event)?.id ?? null),
    events.map((event) => conversation(event)?.status ?? null),
    events.map((event) => isoTime(conversation(event)?.atMs ?? null)),
    events.map(({ event }) => event.payload),
    events.map(({ event }) => event.failure),
  ]
}

function isoTime(ms: number | null): string | null {
  return ms === null ? null : new Date(ms).toISOString()
}

function personColumns(events: NumberedEvent[]): unknown[] {
  const people = events.flatMap(({ no, event }) => [
    ...(event.userId === null ? [] : [{ no, userId: event.userId, isSource: true }]),
    ...event.otherUserIds
      .filter((userId) => userId !== event.userId)
      .map((userId) => ({ no, userId, isSource: false })),
  ])
  return [
    people.map(({ no }) => no),
    people.map(({ userId }) => userId),
    people.map(({ isSource }) => isSource),
  ]
}
