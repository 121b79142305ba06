/** `oa-audience events retry`: applies events that were stored without effect. */
import { lockOutErasures, waitForSenders } from '../accounts/erasure-lock.ts'
import { DatabaseUnavailable, LOCK_TIMEOUT, sqlStateOf } from '../postgres/faults.ts'
import { type Row, statement, type Transactions } from '../postgres/statement.ts'
import { InvalidEvent } from './event.ts'
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
  if (stored === undefined) return 'there is no failed event with this id'
  try {
    return await storeAgain(database, id, stored)
  } catch (error) {
    if (error instanceof InvalidEvent) return error.message
    const state = sqlStateOf(error)
    const isDown = error instanceof DatabaseUnavailable && state !== LOCK_TIMEOUT
    if (isDown || state === null) throw error
    return `the database refused to apply it (SQLSTATE ${state})`
  }
}

async function storeAgain(database: Transactions, id: bigint, stored: StoredEvent): Promise<string> {
  const { accountId, credentialsVersion, payload, atMs, chatInboxId } = stored
  // The message was unsent, or a person in the event was erased.
  if (payload === null) return 'its content was erased'
  const key = Buffer.from(stored.key.replaceAll('-', ''), 'hex')
  const source = sourceNamed(stored.source)
  const event = source.reparse(JSON.parse(payload), atMs, { chatInboxId }, key)
  if (event.failure !== null) return event.failure
  const admission = { accountId, credentialsVersion, source }
  const before = [
    { statement: lockOutErasures, values: [accountId] },
    { statement: deleteUnapplied, values: [id, accountId, credentialsVersion] },
  ]
  const batch = [{ admission, event: { ...event, key }, forwarded: null }]
  const [outcome] = await flush(database.pipeline, batch, { before })
  if (outcome !== 'accepted') return 'it was changed at the same time: check it again'
  if (event.effect.type !== 'unsend') return APPLIED
  // Bodies that were read before the unsend was committed may still be written.
  return database.query(waitForSenders, [accountId]).then(
    () => APPLIED,
    () => 'it was applied, but a process that does not continue may still send the message to an endpoint',
  )
}

function sourceNamed(name: string): SourceModule {
  const source = SOURCES.find((known) => known.name === name)
  if (source === undefined) throw new InvalidEvent(`this version does not know the source ${name}`)
  return source
}

interface StoredEvent extends Row {
  accountId: bigint
  credentialsVersion: bigint
  chatInboxId: string | null
  source: string
  key: string
  atMs: number
  payload: string | null
}

/** Driven by event_failure_id, whose condition it repeats. $1 bigint: the event. */
const selectUnapplied = statement('select-unapplied-event')`
    select e.channel_oa_id as "accountId", a.credentials_version as "credentialsVersion",
           nullif(btrim(a.chat_inbox_id), '') as "chatInboxId", e.source, e.key, e.payload,
           round(extract(epoch from e.occurred_at) * 1000)::float8 as "atMs"
      from event e join official_account a on a.id = e.channel_oa_id
     where e.id = $1 and e.failure >= ''`

/**
 * $1 bigint: the event; $2 bigint: its account; $3 bigint: the account's credentials_version. Deletes nothing if another retry got
 * here first, if the person was erased since, or if the flush would not admit the event. The flush then finds the key and counts
 * nothing. The lock on the account keeps its credentials until the commit.
 */
const deleteUnapplied = statement('delete-unapplied-event')`
    with account as materialized (
      select id from official_account where id = $2 and credentials_version = $3 for share
    ), deleted as (
      delete from event e using account a
       where e.id = $1 and e.channel_oa_id = a.id and e.failure >= '' and e.payload is not null
      returning e.channel_oa_id, e.key
    )
    delete from event_key k using deleted d where k.channel_oa_id = d.channel_oa_id and k.key = d.key`
