/** Adds and updates accounts from a list. Organization and channel id identify an account. */
import type { AccountId, OrganizationId } from '../../accounts/account.ts'
import { type AccountColumns, decryptAccount, type NewAccount } from '../../accounts/provisioning.ts'
import { FatalError } from '../../errors.ts'
import { violatedConstraint } from '../../postgres/faults.ts'
import { transactionWithFreeIds } from '../../postgres/schema/taken-ids.ts'
import { type Queryable, statement, type Transactions } from '../../postgres/statement.ts'
import type { Changes } from '../activity.ts'
import type { Actor } from '../actor.ts'
import { accountChanges } from './account-fields.ts'
import { describeOwner, findOwners } from './channels.ts'
import { addAccountIn, updateAccountIn } from './manage-accounts.ts'

/** Faults in an error message. Further faults are only counted. */
const FAULTS_MAX = 20

/** What is wrong with a line of a file, without any of its cells. */
export interface FileFault {
  /** from 1; the line on which the record ends */
  line: number
  /** the name or the number of the column; null: the whole line */
  column: string | null
  message: string
}

/** A file with faults. Nothing was changed. */
export class RefusedFile extends FatalError {
  readonly faults: FileFault[]

  constructor(faults: FileFault[]) {
    const more = faults.length - FAULTS_MAX
    const shown = faults.slice(0, FAULTS_MAX).map(({ line, column, message }) => {
      const place = column === null ? '' : `, column ${column}`
      return `line ${line}${place}: ${message}`
    })
    if (more > 0) shown.push(`${more} more faults are not shown.`)
    super([...shown, 'Nothing was changed.'].join('\n'))
    this.faults = faults
  }
}

/** Advisory lock (any fixed number) that serializes runs. Otherwise two runs could add the same account. */
const APPLY_LOCK = 730_201

export interface WantedAccount {
  /** Line number in the file, from 1. */
  line: number
  organization: string
  channelId: string
  /** The columns to set, including `channel_id`. All others keep their values. */
  columns: Partial<AccountColumns>
}

export interface Plan {
  line: number
  organizationId: OrganizationId
  channelId: string
  name: string
  /** Null: the account will be added. */
  storedId: AccountId | null
  columns: Partial<AccountColumns>
  /** by field, without any secret */
  changes: Changes
}

export type AppliedAccount = Plan & { id: AccountId }

/** A constraint refused the row of a line. `cause` is the database's error. */
export class RefusedLine extends Error {
  override readonly name = 'RefusedLine'
  readonly line: number

  constructor(line: number, cause: unknown) {
    super(`line ${line} is refused`, { cause })
    this.line = line
  }
}

/** $1 ids bigint[], $2 names text[], $3 organization ids of the actor bigint[], null: all */
const selectOrganizations = statement('select-organizations-by-id-or-name')`
    select id, name from organization
     where (id = any ($1::bigint[]) or name = any ($2::text[])) and ($3::bigint[] is null or id = any ($3))
     order by id`

/**
 * Secrets are compared in this process, because PostgreSQL may log parameters.
 *
 * $1 organization ids bigint[], $2 channel ids text[]
 */
const selectStored = statement('select-stored-accounts')`
    select id, organization_id as "organizationId", channel_id as "channelId",
           to_jsonb(account) - 'person_key' as columns
      from official_account account
     where organization_id = any ($1::bigint[]) and channel_id = any ($2::text[])`

/** Returns the changes without making them. Throws a RefusedFile with all faults if a line cannot be applied. */
export async function planAccounts(
  database: Queryable,
  actor: Actor,
  wanted: WantedAccount[],
): Promise<Plan[]> {
  const faults: FileFault[] = []
  const organizations = await findOrganizations(database, actor, wanted, faults)
  const placed = wanted.flatMap((row) => {
    const organizationId = organizations.get(row.organization)
    return organizationId === undefined ? [] : [{ ...row, organizationId }]
  })
  const stored = await findStored(database, placed)
  const owners = await findOwners(
    database,
    actor,
    placed.map(({ channelId }) => channelId),
  )
  const lines = new Map<string, number>()
  const plans = placed.map((row): Plan => {
    const { line, channelId } = row
    const first = lines.get(channelId)
    const known = stored.get(keyOf(row))
    const owner = known === undefined ? owners.get(channelId) : undefined
    if (first !== undefined)
      faults.push({ line, column: null, message: `the account is already in line ${first}.` })
    else lines.set(channelId, line)
    if (owner !== undefined) faults.push({ line, column: 'channel_id', message: describeOwner(owner) })
    return planOf(row, known, faults)
  })
  throwFaults(faults)
  return plans
}

/** $1 bigint: APPLY_LOCK */
const lockOtherRuns = statement('lock-account-runs')`select pg_advisory_xact_lock($1)`

/**
 * Adds and updates all accounts in one transaction. Throws a RefusedFile or RefusedLine.
 * @param onApplied runs in the transaction
 */
export async function applyAccounts(
  database: Transactions,
  actor: Actor,
  wanted: WantedAccount[],
  onApplied: (transaction: Queryable, applied: AppliedAccount[]) => Promise<void> = async () => undefined,
): Promise<AppliedAccount[]> {
  let line = 0
  try {
    return await transactionWithFreeIds(database, async (transaction) => {
      await transaction.query(lockOtherRuns, [APPLY_LOCK])
      const applied: AppliedAccount[] = []
      for (const plan of await planAccounts(transaction, actor, wanted)) {
        line = plan.line
        applied.push({ ...plan, id: await store(transaction, actor, plan) })
      }
      await onApplied(transaction, applied)
      return applied
    })
  } catch (error) {
    throw violatedConstraint(error) === null ? error : new RefusedLine(line, error)
  }
}

export function throwFaults(faults: FileFault[]): void {
  if (faults.length > 0) throw new RefusedFile(faults)
}

const keyOf = ({ organizationId, channelId }: { organizationId: OrganizationId; channelId: string }) =>
  `${organizationId} ${channelId}`

/** Returns organizations by their text in the file. An id takes precedence over a name that looks like one. */
async function findOrganizations(
  database: Queryable,
  { organizationIds }: Actor,
  wanted: WantedAccount[],
  faults: FileFault[],
): Promise<Map<string, OrganizationId>> {
  const texts = [...new Set(wanted.map(({ organization }) => organization))]
  const ids = texts.filter((text) => /^[1-9]\d{0,17}$/.test(text))
  const rows = await database.query<{ id: bigint; name: string }>(selectOrganizations, [
    ids,
    texts,
    organizationIds,
  ])
  const found = new Map<string, OrganizationId>()
  for (const text of texts) {
    const named = rows.filter(({ name }) => name === text)
    const match = rows.find(({ id }) => String(id) === text) ?? named[0]
    const isAmbiguous = named.length > 1 && match === named[0]
    if (match !== undefined && !isAmbiguous) {
      found.set(text, match.id)
      continue
    }
    const { line } = wanted.find(({ organization }) => organization === text) as WantedAccount
    const message = isAmbiguous
      ? `${named.length} organizations have this name. Write the id instead.`
      : 'no organization has this id or name.'
    faults.push({ line, column: 'organization', message })
  }
  return found
}

type StoredAccount = {
  id: AccountId
  organizationId: OrganizationId
  channelId: string
  columns: Partial<AccountColumns>
}
type PlacedAccount = WantedAccount & { organizationId: OrganizationId }

async function findStored(database: Queryable, placed: PlacedAccount[]): Promise<Map<string, StoredAccount>> {
  const organizationIds = [...new Set(placed.map(({ organizationId }) => organizationId))]
  const channelIds = placed.map(({ channelId }) => channelId)
  const rows = await database.query<StoredAccount>(selectStored, [organizationIds, channelIds])
  const decrypted = rows.map((row) => ({
    ...row,
    columns: decryptAccount(database.secretKeys, row.id, row.columns),
  }))
  return new Map(decrypted.map((row) => [keyOf(row), row]))
}

function planOf(
  { line, organizationId, channelId, columns }: PlacedAccount,
  stored: StoredAccount | undefined,
  faults: FileFault[],
): Plan {
  const name = columns.name ?? stored?.columns.name ?? ''
  if (name === '') faults.push({ line, column: 'name', message: 'a new account needs a name.' })
  const changes = accountChanges(stored?.columns ?? {}, columns)
  return { line, organizationId, channelId, name, storedId: stored?.id ?? null, columns, changes }
}

async function store(transaction: Queryable, actor: Actor, plan: Plan): Promise<AccountId> {
  const { storedId, organizationId, columns, changes } = plan
  if (storedId === null)
    return (await addAccountIn(transaction, actor, organizationId, columns as NewAccount)).id
  if (Object.keys(changes).length > 0) await updateAccountIn(transaction, actor, storedId, columns)
  return storedId
}
