/** Completes a restored database before any service uses it, and lists what was revoked after the backup and works again. */
import { LedgerDamage, readLedger } from '../../audience/erasure/ledger-files.ts'
import { FatalError } from '../../errors.ts'
import { recordActivity } from '../../operators/activity.ts'
import { commandActor } from '../../operators/actor.ts'
import { int8Array, textArray } from '../../postgres/binary-array.ts'
import type { Database } from '../../postgres/database.ts'
import { begin, commit, type Queryable, statement } from '../../postgres/statement.ts'
import type { Manifest } from './files.ts'

/** $1 timestamptz: all lost changes were made at or after it; $2 bigint: limit of the change numbers in the backup */
const recordRestoreOf = statement('record-restore')`
    select to_char(record_restore($1, $2), 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as "restoredAt"`

const dropMarker = statement('drop-restore-marker')`drop table if exists unfinished_restore`

const selectMembersEndpoints = statement('select-members-endpoints')`
    select id from endpoint where format = 'members' order by id`

export interface Restored {
  restoredAt: string
  /** endpoints that may have states that the restored database lacks */
  membersEndpoints: bigint[]
  revived: Revived[] | null
  /** number of texts in the ledger that are not lines */
  unreadable: number
}

/** Throws a FatalError if this machine's clock is before the backup, because clients may already have read these times. */
export function requireLaterClock({ backupAt }: Manifest): void {
  if (Date.now() >= Date.parse(backupAt)) return
  throw new FatalError(
    `the backup is of ${backupAt}, which is in the future. Set the clock of this machine, then try again.`,
  )
}

/** Uses one transaction, so a service finds either a complete restore or the marker that refuses it. */
export function recordRestore(
  database: Database,
  { backupAt, changeLimit, ...manifest }: Manifest,
  ledger: string | null,
): Promise<Restored> {
  return database.session(async (session: Queryable) => {
    await session.query(begin)
    const [row] = await session.query<{ restoredAt: string }>(recordRestoreOf, [backupAt, changeLimit])
    const restoredAt = row?.restoredAt ?? ''
    await recordActivity(session, commandActor(), {
      action: 'database.restored',
      object: { kind: 'database', id: null },
      organizationId: null,
      changes: { backupAt, restoredAt, version: manifest.version },
    })
    const damage = new LedgerDamage()
    const revived = ledger === null ? null : await listRevived(session, ledger, backupAt, damage)
    await session.query(dropMarker)
    await session.query(commit)
    const endpoints = await session.query<{ id: bigint }>(selectMembersEndpoints)
    const membersEndpoints = endpoints.map(({ id }) => id)
    return { restoredAt, membersEndpoints, revived, unreadable: damage.unreadable }
  })
}

/** What a restore brings back although it was revoked after the backup, as far as ERASURE_LEDGER has it. */
interface Revived {
  kind: string
  id: bigint
  revokedAt: string
  command: string
}

/** By the kind of unrecorded_revocation. The ledger has ids only, so the operator adds a role. 0.3.0 wrote `-expiry`: a time was set. */
const COMMANDS: Record<string, (id: bigint) => string> = {
  client: (id) => `clients revoke ${id}`,
  'client-secret': (id) => `clients rotate ${id}`,
  'client-expiry': (id) => `clients revoke ${id}`,
  key: (id) => `keys revoke ${id}`,
  'key-expiry': (id) => `keys revoke ${id}`,
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

/** The oldest first. */
async function listRevived(
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
