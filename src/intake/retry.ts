/** Events that could not be applied, tried again: `oa-audience events retry`. */
import { chatInboxOf } from '../accounts/account.ts'
import type { Database } from '../postgres/database.ts'
import { DatabaseUnavailable, LOCK_TIMEOUT, sqlStateOf } from '../postgres/faults.ts'
import type { Row, Statement } from '../postgres/statement.ts'
import { credentialOf } from './apply-events.ts'
import { type IntakeEvent, InvalidEvent, type Source } from './event.ts'
import { flushWithRetry } from './flush.ts'

/**
 * Reads the stored content of an event anew. Throws an InvalidEvent.
 * @param occurredAtMs when it happened, or was received where it does not say: it keeps its place among the others
 * @param chatInboxId the account's inbox of the support chat, by now; null: all are
 */
export type Understand = (
  source: Source,
  payload: string,
  occurredAtMs: number,
  chatInboxId: string | null,
) => IntakeEvent

export const APPLIED = 'applied'

/**
 * Applies a stored event that could not be applied, once, as this version of the program understands it: the stored one and
 * its key make room for it in the same transaction, so it counts if it did not before, and an erasure meanwhile holds
 * for it like for any event. Returns in words what became of it; throws DatabaseUnavailable.
 */
export async function retryEvent(database: Database, id: bigint, understand: Understand): Promise<string> {
  const [stored] = await database.query<StoredEvent>(selectWaiting, [id])
  if (stored === undefined) return 'there is no such event that waits'
  const { channel_oa_id: accountId, source, credential } = stored
  if (credential === null) return 'its account has no channel secret: store one first'
  const key = Buffer.from(stored.key.replaceAll('-', ''), 'hex')
  const forget = {
    statement: forgetEvent,
    values: [id, accountId, source, credential, String(stored.payload === null)],
  }
  try {
    const event =
      stored.payload === null
        ? remainsOf(stored)
        : understand(source, stored.payload, stored.occurred_at_ms, stored.chat_inbox_id)
    if (event === null) return 'its content was erased'
    if (event.failure !== null) return event.failure
    const again = { admission: { accountId, source, credential }, event: { ...event, key } }
    const [outcome] = await flushWithRetry(database, database, [again], { before: [forget] })
    return outcome === 'accepted' ? APPLIED : 'it changed meanwhile: look at it again'
  } catch (error) {
    if (error instanceof InvalidEvent) return error.message
    const isAway = error instanceof DatabaseUnavailable && sqlStateOf(error) !== LOCK_TIMEOUT
    if (isAway || sqlStateOf(error) === null) throw error
    // Others may well be applied.
    return `the database refused to apply it (SQLSTATE ${sqlStateOf(error)})`
  }
}

/**
 * What an event still tells whose content was erased, a message that was taken back or a group that others joined, of people
 * who were not. Null where it names nobody.
 */
function remainsOf(stored: StoredEvent): Omit<IntakeEvent, 'key'> | null {
  const { source, kind, occurred_at_ms: occurredAtMs, user_id: userId, message_id: messageId } = stored
  const otherUserIds = stored.other_user_ids ?? []
  // Of which inbox it was is gone with its content.
  if (source === 'mbox' && stored.chat_inbox_id !== null) return null
  if (userId === null && otherUserIds.length === 0) return null
  const event = { source, kind, occurredAtMs, userId, otherUserIds, messageId, payload: null, failure: null }
  return { ...event, effect: { type: 'none' } }
}

interface StoredEvent extends Row {
  channel_oa_id: bigint
  source: Source
  kind: string
  key: string
  user_id: string | null
  other_user_ids: string[] | null
  message_id: string | null
  occurred_at_ms: number
  payload: string | null
  chat_inbox_id: string | null
  credential: string | null
}

const selectWaiting: Statement = {
  name: 'select-waiting-event',
  text: `
    select e.channel_oa_id, e.source, e.kind, e.key, e.user_id, e.other_user_ids, e.message_id, e.payload,
           round(extract(epoch from e.occurred_at) * 1000)::float8 as occurred_at_ms,
           ${chatInboxOf('a')} as chat_inbox_id, ${credentialOf('a', 'e.source')} as credential
      from event e join official_account a on a.id = e.channel_oa_id where e.id = $1 and e.failure is not null`,
}

// The key goes only with the event, and only while its content is as it was read: of two who retry at once the second finds
// neither, and who read the content before an erasure finds it erased. Then the key is still there, and nothing counts. Nor
// does the event go where the account has another credential by now, for the flush would not let it in; it keeps this one until
// the flush is over.
const forgetEvent: Statement = {
  name: 'forget-event',
  text: `
    with account as materialized (
      select a.id from official_account a where a.id = $2 and ${credentialOf('a', '$3::text')} = $4 for share
    ), gone as (
      delete from event e using account a
       where e.id = $1 and e.channel_oa_id = a.id and e.failure is not null and (e.payload is null) = $5::boolean
      returning e.channel_oa_id, e.key
    )
    delete from event_key k using gone g where k.channel_oa_id = g.channel_oa_id and k.key = g.key`,
}
