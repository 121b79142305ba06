/** What a restore brings back although it was revoked after the backup, as far as ERASURE_LEDGER has it. */
import { type LedgerDamage, readLedger } from '../../audience/erasure/ledger-files.ts'
import { int8Array, textArray } from '../../postgres/binary-array.ts'
import { type Queryable, statement } from '../../postgres/statement.ts'

export interface Revived {
  kind: string
  id: bigint
  revokedAt: string
  command: string
}

/** By the kind of unrecorded_revocation. The ledger has ids only, so the operator adds a time or a role. */
const COMMANDS: Record<string, (id: bigint) => string> = {
  client: (id) => `clients revoke ${id}`,
  'client-secret': (id) => `clients rotate ${id}`,
  'client-expiry': (id) => `clients update ${id} --expires-at TIME`,
  key: (id) => `keys revoke ${id}`,
  'key-expiry': (id) => `keys update ${id} --expires-at TIME`,
  operator: (id) => `operators disable ${id}`,
  'operator-rights': (id) => `operators update ${id} --role ROLE`,
  'operator-password': (id) => `operators invite ${id}`,
  account: (id) => `accounts remove ${id}`,
  endpoint: (id) => `endpoints remove ${id}`,
  notifications: (id) => `notifications remove ${id}`,
}

/**
 * A row that the backup lacks is not there, and one that was revoked before it is not active.
 *
 * $1 text[]: kinds; $2 bigint[]: ids. Returns the positions of those that work.
 */
const selectWorking = statement('select-revived')`
    select line.position::int as position
      from unnest($1::text[], $2::bigint[]) with ordinality as line (kind, id, position)
     where case split_part(line.kind, '-', 1)
             when 'client' then exists (select from api_client c where c.id = line.id and c.status = 'active')
             when 'key' then exists (select from api_key k where k.id = line.id and k.status = 'active')
             when 'operator' then exists (select from operator o where o.id = line.id and o.status = 'active')
             when 'account' then exists (select from official_account a
                                          where a.id = line.id and a.is_being_removed is not true)
             when 'endpoint' then exists (select from endpoint e where e.id = line.id)
             when 'notifications' then exists (select from notification_channel n where n.id = line.id)
           end
     order by line.position`

/**
 * Returns the revocations since the backup whose object works in the restored database, the oldest first.
 * @param damage receives what could not be read
 */
export async function listRevived(
  session: Queryable,
  directory: string,
  backupAt: string,
  damage: LedgerDamage,
): Promise<Revived[]> {
  const latest = new Map<string, Omit<Revived, 'command'>>()
  for await (const entry of readLedger(directory, damage)) {
    if (!('kind' in entry)) continue
    const { kind, id } = entry
    const revokedAt = new Date(entry.revokedAt).toISOString()
    const earlier = latest.get(`${kind} ${id}`)
    if (entry.revokedAt >= Date.parse(backupAt) && revokedAt > (earlier?.revokedAt ?? ''))
      latest.set(`${kind} ${id}`, { kind, id, revokedAt })
  }
  const revoked = [...latest.values()].sort((a, b) => (a.revokedAt < b.revokedAt ? -1 : 1))
  const rows = await session.query<{ position: number }>(selectWorking, [
    textArray(revoked.map(({ kind }) => kind)),
    int8Array(revoked.map(({ id }) => id)),
  ])
  return rows.flatMap(({ position }) => {
    const found = revoked[position - 1] as Omit<Revived, 'command'>
    const command = COMMANDS[found.kind]
    return command === undefined ? [] : [{ ...found, command: `oa-audience ${command(found.id)}` }]
  })
}
