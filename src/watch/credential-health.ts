/** Finds clients and keys that will soon expire, or that have not been used for long, for `doctor`. */
import type { Severity } from '../endpoints/endpoint-health.ts'
import { age } from '../http/format.ts'
import { type Queryable, statement } from '../postgres/statement.ts'

/** Two weeks are enough to give a program another secret or a later time. */
const EXPIRES_SOON_DAYS = 14
const UNUSED_DAYS = 90
/** More of them would hide the other findings of `doctor`. */
const FINDINGS_MAX = 50

/** $1 days before the expiry int, $2 days without use int, $3 maximum number of rows int */
const selectCredentials = statement('select-credentials-to-review')`
    with client as (
      select id, expires_at, last_used_at, created_at from api_client
       where status = 'active' and (expires_at is null or expires_at > now())
    ), credential as (
      select 'client' as kind, id, expires_at, last_used_at, created_at from client
      union all
      select 'key', k.id, k.expires_at, k.last_used_at, k.created_at
        from api_key k join client c on c.id = k.api_client_id
       where k.status = 'active' and (k.expires_at is null or k.expires_at > now())
    ), reviewed as (
      select kind, id, case when expires_at < now() + $1 * interval '1 day' then expires_at end as expires_at,
             coalesce(last_used_at, created_at) < now() - $2 * interval '1 day' as is_unused
        from credential
    )
    select kind, id, extract(epoch from expires_at - now())::float8 as "expiresInSeconds", is_unused as "isUnused"
      from reviewed where expires_at is not null or is_unused
     order by expires_at, kind, id
     limit $3`

/** `expiresInSeconds` is null unless it is soon. */
type Credential = {
  kind: 'client' | 'key'
  id: bigint
  expiresInSeconds: number | null
  isUnused: boolean
}

export async function examineCredentials(
  database: Queryable,
): Promise<Array<{ check: string; severity: Severity; message: string }>> {
  const values = [EXPIRES_SOON_DAYS, UNUSED_DAYS, FINDINGS_MAX]
  const rows = await database.query<Credential>(selectCredentials, values)
  return rows.flatMap(({ kind, id, expiresInSeconds, isUnused }) => {
    const check = `${kind} ${id}`
    const expires = `expires in ${age(expiresInSeconds ?? 0)}; run oa-audience ${kind}s update ${id} --expires-at TIME, or replace it`
    const unused = `has not been used for ${UNUSED_DAYS} days; if no program needs it, run oa-audience ${kind}s revoke ${id}`
    return [
      ...(expiresInSeconds === null ? [] : [{ check, severity: 'warning' as const, message: expires }]),
      ...(isUnused ? [{ check, severity: 'ok' as const, message: unused }] : []),
    ]
  })
}
