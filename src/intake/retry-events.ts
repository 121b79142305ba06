/** `oa-audience events retry`: applies events that were stored without effect. */
import { lockOutErasures, waitForSenders } from '../postgres/erasure-lock.ts'
import { DatabaseUnavailable, LOCK_TIMEOUT, sqlStateOf } from '../postgres/faults.ts'
import { type Row, statement, type Transactions } from '../postgres/statement.ts'
import { type IntakeEvent, InvalidEvent, NO_EFFECT } from './event.ts'
import { flush } from './flush.ts'
import type { SourceModule } from './source.ts'
import { SOURCES } from './sources.ts'

export const APPLIED = 'applied'

/**
 * Reads a stored event again with this version of the program, and applies it. The transaction that stores it again also deletes
 * the stored event and its key. So the event counts once, and an erasure since then applies to it as to any event. Returns APPLIED
 * or the reason why it was not applied. Throws DatabaseUnavailable.
 */
export async function retryEvent(database: Transactions, id: bigint): Promise<string> {
  const [stored] = await database.query<StoredEvent>(selectUnapplied, [id])
  if (stored === undefined) return 'there is no unapplied event with this id'
  try {
    const event = stored.payload === null ? remainsOf(stored) : reparse(stored)
    if (event === null) return 'its content was erased'
    if (event.failure !== null) return event.failure
    return await storeAgain(database, id, stored, event)
  } catch (error) {
    if (error instanceof InvalidEvent) return error.message
    const state = sqlStateOf(error)
    const isDown = error instanceof DatabaseUnavailable && state !== LOCK_TIMEOUT
    if (isDown || state === null) throw error
    return `the database refused to apply it (SQLSTATE ${state})`
  }
}

async function storeAgain(
  database: Transactions,
  id: bigint,
  stored: StoredEvent,
  event: Omit<IntakeEvent, 'key'>,
): Promise<string> {
  const { channel_oa_id: accountId, credentials_version: credentialsVersion } = stored
  const key = keyOf(stored)
  const admission = { accountId, credentialsVersion, source: sourceNamed(stored.source) }
  const batch = [{ admission, event: { ...event, key }, forwarded: null }]
  const before = [
    { statement: lockOutErasures, values: [accountId] },
    {
      statement: deleteUnapplied,
      values: [id, accountId, credentialsVersion, String(stored.payload === null)],
    },
  ]
  const [outcome] = await flush(database.pipeline, batch, { before })
  if (outcome !== 'accepted') return 'it was changed at the same time: check it again'
  return event.effect.type === 'unsend' ? await outliveSenders(database, accountId) : APPLIED
}

/** Waits for bodies that were read before the unsend was committed and may still be written to an endpoint. */
async function outliveSenders(database: Transactions, accountId: bigint): Promise<string> {
  try {
    await database.query(waitForSenders, [accountId])
    return APPLIED
  } catch (error) {
    if (sqlStateOf(error) !== LOCK_TIMEOUT) throw error
    return 'it was applied, but a process that does not continue may still send the message to an endpoint'
  }
}

/** Throws InvalidEvent. */
function reparse(stored: StoredEvent): IntakeEvent {
  const { source, payload, occurred_at_ms: atMs, chat_inbox_id: chatInboxId } = stored
  return sourceNamed(source).reparse(JSON.parse(payload ?? 'null'), atMs, { chatInboxId }, keyOf(stored))
}

function keyOf({ key }: StoredEvent): Buffer {
  return Buffer.from(key.replaceAll('-', ''), 'hex')
}

function sourceNamed(name: string): SourceModule {
  const source = SOURCES.find((known) => known.name === name)
  if (source === undefined) throw new InvalidEvent(`this version does not know the source ${name}`)
  return source
}

/**
 * Returns an event without its content, which was erased because its message was unsent or because another person in it was erased.
 * It can still be applied to the remaining people. Null: it contains nobody, or its account cannot be determined.
 */
function remainsOf(stored: StoredEvent): Omit<IntakeEvent, 'key'> | null {
  const { kind, user_id: userId, group_id: groupId, message_id: messageId } = stored
  const otherUserIds = stored.other_user_ids ?? []
  const source = sourceNamed(stored.source)
  if (source.needsContent?.({ chatInboxId: stored.chat_inbox_id })) return null
  if (userId === null && otherUserIds.length === 0) return null
  return {
    kind,
    occurredAtMs: stored.occurred_at_ms,
    userId,
    otherUserIds,
    claimedAtMs: null,
    isOwnAct: source.isOwnActWithoutContent(kind),
    groupId,
    messageId,
    effect: NO_EFFECT,
    payload: null,
    failure: null,
  }
}

interface StoredEvent extends Row {
  channel_oa_id: bigint
  credentials_version: bigint
  chat_inbox_id: string | null
  source: string
  kind: string
  key: string
  user_id: string | null
  other_user_ids: string[] | null
  group_id: string | null
  message_id: string | null
  occurred_at_ms: number
  payload: string | null
}

/** Driven by event_failure_id, whose condition it repeats. $1 bigint: the event. */
const selectUnapplied = statement('select-unapplied-event')`
    select e.channel_oa_id, a.credentials_version, nullif(btrim(a.chat_inbox_id), '') as chat_inbox_id, e.source, e.kind,
           e.key, e.user_id, e.other_user_ids, e.group_id, e.message_id, e.payload,
           round(extract(epoch from e.occurred_at) * 1000)::float8 as occurred_at_ms
      from event e join official_account a on a.id = e.channel_oa_id
     where e.id = $1 and e.failure >= ''`

/**
 * $1 bigint: the event; $2 bigint: its account; $3 bigint: the account's credentials_version; $4 boolean: its content is erased.
 * Deletes nothing if another retry got here first, if the person was erased since, or if the flush would not admit the event. The
 * flush then finds the key and counts nothing. The lock on the account keeps its credentials until the commit.
 */
const deleteUnapplied = statement('delete-unapplied-event')`
    with account as materialized (
      select id from official_account where id = $2 and credentials_version = $3 for share
    ), deleted as (
      delete from event e using account a
       where e.id = $1 and e.channel_oa_id = a.id and e.failure >= '' and (e.payload is null) = $4::boolean
      returning e.channel_oa_id, e.key
    )
    delete from event_key k using deleted d where k.channel_oa_id = d.channel_oa_id and k.key = d.key`
