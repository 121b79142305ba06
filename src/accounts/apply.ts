/** Adds and updates accounts from a list. Organization and channel id identify an account. */
import { FatalError } from '../errors.ts'
import { violatedConstraint } from '../postgres/faults.ts'
import { transactionWithFreeIds } from '../postgres/schema/taken-ids.ts'
import { type Queryable, statement, type Transactions } from '../postgres/statement.ts'
import type { AccountId, OrganizationId } from './account.ts'
import { type AccountColumns, addAccount, type NewAccount, updateAccount } from './provisioning.ts'

/** Faults that are reported. Further faults are only counted. */
export const FAULTS_MAX = 20

/** Advisory lock (any fixed number) that serializes runs. Otherwise two runs could add the same account. */
const APPLY_LOCK = 730_201

const VERIFIED_COLUMNS = ['channel_secret', 'channel_access_token', 'bot_user_id', 'basic_id']

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
  changes: Partial<AccountColumns>
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

/** $1 ids bigint[], $2 names text[] */
const selectOrganizations = statement('select-organizations-by-id-or-name')`
    select id, name from organization where id = any ($1::bigint[]) or name = any ($2::text[]) order by id`

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

/** $1 account id bigint. The stored outcome belongs to the previous credentials. */
const clearVerification = statement('clear-account-verification')`
    update official_account set verification = null, verified_at = null where id = $1`

/** Returns the changes without making them. Throws a FatalError with all faults if a row cannot be applied. */
export async function planAccounts(database: Queryable, wanted: WantedAccount[]): Promise<Plan[]> {
  const faults: string[] = []
  const organizations = await findOrganizations(database, wanted, faults)
  const placed = wanted.flatMap((row) => {
    const organizationId = organizations.get(row.organization)
    return organizationId === undefined ? [] : [{ ...row, organizationId }]
  })
  const stored = await findStored(database, placed)
  const lines = new Map<string, number>()
  const plans = placed.map((row): Plan => {
    const key = keyOf(row)
    const first = lines.get(key)
    if (first !== undefined) faults.push(`line ${row.line}: the account is already in line ${first}.`)
    else lines.set(key, row.line)
    return planOf(row, stored.get(key), faults)
  })
  throwFaults(faults)
  return plans
}

/** $1 bigint: APPLY_LOCK */
const lockOtherRuns = statement('lock-account-runs')`select pg_advisory_xact_lock($1)`

/** Adds and updates all accounts in one transaction. Throws a FatalError or RefusedLine. */
export async function applyAccounts(
  database: Transactions,
  wanted: WantedAccount[],
): Promise<AppliedAccount[]> {
  let line = 0
  try {
    return await transactionWithFreeIds(database, async (transaction) => {
      await transaction.query(lockOtherRuns, [APPLY_LOCK])
      const applied: AppliedAccount[] = []
      for (const plan of await planAccounts(transaction, wanted)) {
        line = plan.line
        applied.push({ ...plan, id: await store(transaction, plan) })
      }
      return applied
    })
  } catch (error) {
    throw violatedConstraint(error) === null ? error : new RefusedLine(line, error)
  }
}

export function throwFaults(faults: string[]): void {
  if (faults.length === 0) return
  const more = faults.length - FAULTS_MAX
  const shown = faults.slice(0, FAULTS_MAX)
  if (more > 0) shown.push(`${more} more faults are not shown.`)
  throw new FatalError([...shown, 'Nothing was changed.'].join('\n'))
}

const keyOf = ({ organizationId, channelId }: { organizationId: OrganizationId; channelId: string }) =>
  `${organizationId} ${channelId}`

/** Returns organizations by their text in the file. An id takes precedence over a name that looks like one. */
async function findOrganizations(
  database: Queryable,
  wanted: WantedAccount[],
  faults: string[],
): Promise<Map<string, OrganizationId>> {
  const texts = [...new Set(wanted.map(({ organization }) => organization))]
  const ids = texts.filter((text) => /^[1-9]\d{0,17}$/.test(text))
  const rows = await database.query<{ id: bigint; name: string }>(selectOrganizations, [ids, texts])
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
    faults.push(
      isAmbiguous
        ? `line ${line}, column organization: ${named.length} organizations have this name. Write the id instead.`
        : `line ${line}, column organization: organization ${text} does not exist. Run "oa-audience organizations list" to see all organizations.`,
    )
  }
  return found
}

type StoredAccount = {
  id: AccountId
  organizationId: OrganizationId
  channelId: string
  columns: Record<string, unknown>
}
type PlacedAccount = WantedAccount & { organizationId: OrganizationId }

async function findStored(database: Queryable, placed: PlacedAccount[]): Promise<Map<string, StoredAccount>> {
  const organizationIds = [...new Set(placed.map(({ organizationId }) => organizationId))]
  const channelIds = placed.map(({ channelId }) => channelId)
  const rows = await database.query<StoredAccount>(selectStored, [organizationIds, channelIds])
  return new Map(rows.map((row) => [keyOf(row), row]))
}

function planOf(
  { line, organizationId, channelId, columns }: PlacedAccount,
  stored: StoredAccount | undefined,
  faults: string[],
): Plan {
  const name = columns.name ?? (stored?.columns.name as string | undefined) ?? ''
  if (name === '') faults.push(`line ${line}, column name: a new account needs a name.`)
  const given = Object.entries(columns) as Array<[keyof AccountColumns, string]>
  const changes = Object.fromEntries(given.filter(([column, value]) => stored?.columns[column] !== value))
  return { line, organizationId, channelId, name, storedId: stored?.id ?? null, changes }
}

async function store(transaction: Queryable, plan: Plan): Promise<AccountId> {
  const { storedId, organizationId, changes } = plan
  if (storedId === null) return (await addAccount(transaction, organizationId, changes as NewAccount)).id
  const changed = Object.keys(changes)
  if (changed.length > 0) await updateAccount(transaction, storedId, changes)
  if (changed.some((column) => VERIFIED_COLUMNS.includes(column)))
    await transaction.query(clearVerification, [storedId])
  return storedId
}
