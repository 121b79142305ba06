/** Finds clients and keys that will soon expire, or that have not been used for long, for `doctor`. */

import type { Severity } from '../endpoints/endpoint-health.ts'
import { age } from '../http/format.ts'
import { type Queryable, statement } from '../postgres/statement.ts'

/** Two weeks are enough to give a program another secret or a later time. */
const EXPIRES_SOON_DAYS = 14
const UNUSED_DAYS = 90
/** Lines of `doctor`. More of them would hide its other findings. */
const FINDINGS_MAX = 50

/**
 * Returns active credentials that have not expired. An expiry of `infinity`, which other programs may store, is never soon.
 *
 * $1 days before the expiry int, $2 days without use int, $3 maximum number of rows int
 */
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

interface Credential {
  [column: string]: unknown
  kind: 'client' | 'key'
  id: bigint
  /** null: not soon */
  expiresInSeconds: number | null
  isUnused: boolean
}

/** Returns no finding if there is nothing to review. */
export async function examineCredentials(
  database: Queryable,
): Promise<Array<{ check: string; severity: Severity; message: string }>> {
  const rows = await database.query<Credential>(selectCredentials, [
    EXPIRES_SOON_DAYS,
    UNUSED_DAYS,
    FINDINGS_MAX + 1,
  ])
  const findings = rows.slice(0, FINDINGS_MAX).flatMap(findingsOf)
  if (rows.length <= FINDINGS_MAX) return findings
  const message = `more clients and keys expire soon or are not used; run oa-audience clients list and keys list`
  return [...findings, { check: 'clients', severity: 'ok', message }]
}

function findingsOf({ kind, id, expiresInSeconds, isUnused }: Credential) {
  const findings: Array<{ check: string; severity: Severity; message: string }> = []
  const check = `${kind} ${id}`
  if (expiresInSeconds !== null) {
    const message = `expires in ${age(expiresInSeconds)}; run oa-audience ${kind}s update ${id} --expires-at TIME, or replace it`
    findings.push({ check, severity: 'warning', message })
  }
  if (isUnused) {
    const message = `has not been used for ${UNUSED_DAYS} days; if no program needs it, run oa-audience ${kind}s revoke ${id}`
    findings.push({ check, severity: 'ok', message })
  }
  return findings
}
