/** Sessions of the console, stored in the database for all instances. They end by the database's clock. */
import { createHash, createHmac, randomBytes } from 'node:crypto'
import type { Secret } from '../config/secret.ts'
import { type Queryable, statement } from '../postgres/statement.ts'

/** A working day with its overtime. */
export const SESSION_SECONDS = 12 * 3_600

/** Far more than operators have browsers. Beyond the limit, the session that ends first is deleted, so sign-ins cannot fill the table. */
const SESSIONS_MAX = 1_000

const ID_BYTES = 32
/** base64url of ID_BYTES. Other cookies are refused without a query. */
const ID = /^[\w-]{43}$/

/** $1 id_hash bytea; $2 token_mac bytea; $3 int: seconds; $4 int: sessions that stay beside the new one */
const insertSession = statement('insert-operator-session')`
    with surplus as (
      delete from operator_session
       where id_hash = any (array(select id_hash from operator_session order by expires_at desc offset $4)))
    insert into operator_session (id_hash, token_mac, expires_at)
    values ($1, $2, now() + $3 * interval '1 second')
    returning to_char(expires_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as "endsAt"`

/** @returns the session's id, which only its browser may know, and the end of the session */
export async function openSession(
  database: Queryable,
  token: Secret,
): Promise<{ id: string; endsAt: string }> {
  const id = randomBytes(ID_BYTES).toString('base64url')
  const values = [hashOf(id), macOf(id, token), SESSION_SECONDS, SESSIONS_MAX - 1]
  const [session] = await database.query<{ endsAt: string }>(insertSession, values)
  return { id, endsAt: (session as { endsAt: string }).endsAt }
}

/** $1 id_hash bytea; $2 token_mac bytea */
const selectSession = statement('select-operator-session')`
    select to_char(expires_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as "endsAt"
      from operator_session
     where id_hash = $1 and token_mac = $2 and expires_at > now()`

/** Returns the end of the session, or null if it does not exist, has ended, or belongs to another CONSOLE_TOKEN. */
export async function findSessionEnd(database: Queryable, id: string, token: Secret): Promise<string | null> {
  if (!ID.test(id)) return null
  const [session] = await database.query<{ endsAt: string }>(selectSession, [hashOf(id), macOf(id, token)])
  return session?.endsAt ?? null
}

/** $1 id_hash bytea */
const deleteSession = statement('delete-operator-session')`delete from operator_session where id_hash = $1`

export async function endSession(database: Queryable, id: string): Promise<void> {
  if (ID.test(id)) await database.query(deleteSession, [hashOf(id)])
}

const hashOf = (id: string): Buffer => createHash('sha256').update(id).digest()
const macOf = (id: string, token: Secret): Buffer => createHmac('sha256', token.key()).update(id).digest()
