/** Sessions of the console, stored in the database for all instances. They end by the database's clock. Planner idioms: docs/planner.md. */
import { createHash, createHmac, randomBytes } from 'node:crypto'
import type { Secret } from '../config/secret.ts'
import { type Queryable, statement } from '../postgres/statement.ts'
import type { Operator } from './actor.ts'

/** A working day with its overtime. */
export const SESSION_SECONDS = 12 * 3_600

/** Beyond the limit, the session that ends first is deleted, so sign-ins cannot fill the table. */
const SESSIONS_MAX = 1_000

const ID_BYTES = 32
/** base64url of ID_BYTES. Other cookies are refused without a query. */
const ID = /^[\w-]{43}$/

/** Who signs in: the holder of CONSOLE_TOKEN, or the operator with this id. */
type SessionOwner = Secret | bigint

/** $1 id_hash bytea; $2 token_mac bytea or null; $3 int: seconds; $4 int: sessions that stay beside the new one; $5 operator id or null */
const insertSession = statement('insert-operator-session')`
    with surplus as (
      delete from operator_session
       where id_hash = any (array(select id_hash from operator_session where operator_id is not distinct from $5
                                   order by expires_at desc offset $4)))
    insert into operator_session (id_hash, token_mac, expires_at, operator_id)
    values ($1, $2, now() + $3 * interval '1 second', $5)
    returning iso(expires_at) as "endsAt"`

export interface OpenedSession {
  id: string
  endsAt: string
}

export async function openSession(database: Queryable, owner: SessionOwner): Promise<OpenedSession> {
  const id = randomBytes(ID_BYTES).toString('base64url')
  const [mac, operatorId] = typeof owner === 'bigint' ? [null, owner] : [macOf(id, owner), null]
  const values = [hashOf(id), mac, SESSION_SECONDS, SESSIONS_MAX - 1, operatorId]
  const [session] = await database.query<{ endsAt: string }>(insertSession, values)
  return { id, endsAt: (session as { endsAt: string }).endsAt }
}

export interface Session {
  /** null: a proxy signs the operator in with every request */
  endsAt: string | null
  operator: SignedIn
}

export type SignedIn = Omit<Operator, 'requestId'>

/** $1 id_hash bytea; $2 token_mac bytea or null. A session without an operator is that of the token. Others end with the password. */
const selectSession = statement('select-operator-session')`
    select iso(s.expires_at) as "endsAt", o.id as "operatorId",
           case when s.operator_id is null then 'token' else 'operator' end as kind,
           case when s.operator_id is null then 'token' else o.email end as name,
           case when s.operator_id is null then 'owner' else o.role end as role, o.organization_ids as "organizationIds"
      from operator_session s left join operator o on o.id = s.operator_id
     where s.id_hash = $1 and s.expires_at > now() and (s.token_mac = $2 or o.status = 'active' and o.password_hash is not null)`

/** Null also if the session belongs to another CONSOLE_TOKEN, or its operator is disabled. */
export async function findSession(
  database: Queryable,
  id: string,
  token: Secret | null,
): Promise<Session | null> {
  if (!ID.test(id)) return null
  const values = [hashOf(id), token && macOf(id, token)]
  const [session] = await database.query<SignedIn & { endsAt: string }>(selectSession, values)
  if (session === undefined) return null
  const { endsAt, ...operator } = session
  return { endsAt, operator }
}

const deleteSession = statement('delete-operator-session')`delete from operator_session where id_hash = $1`

export async function endSession(database: Queryable, id: string): Promise<void> {
  if (ID.test(id)) await database.query(deleteSession, [hashOf(id)])
}

const deleteSessions = statement(
  'delete-sessions-of-operator',
)`delete from operator_session where operator_id = $1`

export async function endSessionsOf(database: Queryable, operatorId: bigint): Promise<void> {
  await database.query(deleteSessions, [operatorId])
}

const hashOf = (id: string): Buffer => createHash('sha256').update(id).digest()
const macOf = (id: string, token: Secret): Buffer => createHmac('sha256', token.key()).update(id).digest()
