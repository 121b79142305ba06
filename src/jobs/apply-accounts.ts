/** Adds and updates accounts from a list. Organization and channel id identify an account. */
import { accountChanges, describeOwner, findOwners } from '../accounts/account-fields.ts'
import { addAccountIn, updateAccountIn } from '../accounts/manage-accounts.ts'
import { addOrganizationOf } from '../accounts/organizations.ts'
import { type AccountColumns, decryptAccount, type NewAccount } from '../accounts/provisioning.ts'
import { AppError, FatalError } from '../errors.ts'
import type { AccountId, OrganizationId } from '../ids.ts'
import type { Changes } from '../operators/activity.ts'
import type { Actor } from '../operators/actor.ts'
import { violatedConstraint } from '../postgres/faults.ts'
import { APPLY_LOCK, takeLock } from '../postgres/locks.ts'
import { type Queryable, statement, type Transactions } from '../postgres/statement.ts'

/** Faults in an error message. Further faults are only counted. */
const FAULTS_MAX = 20

/** What is wrong with a line of a file, without any of its cells. */
export interface FileFault {
  /** from 1; the last line of the record */
  line: number
  /** name or number; null: the whole line */
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
    if (more > 0) shown.push(`Further faults, not shown: ${more}.`)
    super([...shown, 'Nothing was changed.'].join('\n'))
    this.faults = faults
  }
}

export interface WantedAccount {
  line: number
  /** id or name */
  organization: string
  channelId: string
  /** to set, including `channel_id`; all others keep their values */
  columns: Partial<AccountColumns>
}

export interface ApplyOptions {
  faults?: FileFault[]
  /** adds the organizations that the file names and nobody has added */
  addsOrganizations?: boolean
}

export type Plan = WantedAccount & {
  /** null: the organization will be added */
  organizationId: OrganizationId | null
  name: string
  /** null: the account will be added */
  storedId: AccountId | null
  /** by field, without any secret */
  changes: Changes
}

export type AppliedAccount = Plan & { id: AccountId; organizationId: OrganizationId }

/** A constraint refused the row of a line. `cause` is the database's error. */
export class RefusedLine extends Error {
  override readonly name = 'RefusedLine'
  readonly line: number

  constructor(line: number, cause: unknown) {
    super(`line ${line} is refused`, { cause })
    this.line = line
  }
}

/** Secrets are compared in this process, because PostgreSQL may log parameters. */
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
  { faults: found = [], addsOrganizations = false }: ApplyOptions = {},
): Promise<Plan[]> {
  const faults = [...found]
  const texts = wanted.map(({ organization }) => organization)
  const { organizations, refused } = await findOrganizations(database, actor, texts, addsOrganizations)
  for (const [text, message] of refused) {
    const { line } = wanted.find(({ organization }) => organization === text) as WantedAccount
    faults.push({ line, column: 'organization', message })
  }
  const placed = wanted.flatMap((row) => {
    const organizationId = organizations.get(row.organization)
    // The reader has refused a row without a channel id.
    return organizationId === undefined || row.channelId === '' ? [] : [{ ...row, organizationId }]
  })
  const channelIds = placed.map(({ channelId }) => channelId)
  const stored = await findStored(database, placed, channelIds)
  const owners = await findOwners(database, actor, channelIds)
  const lines = new Map<string, number>()
  const plans = placed.map((row): Plan => {
    const { line, channelId, columns } = row
    const refuse = (column: string | null, message: string) => faults.push({ line, column, message })
    const first = lines.get(channelId)
    if (first !== undefined) refuse(null, `the account is already in line ${first}.`)
    else lines.set(channelId, line)
    const known = stored.get(keyOf(row))
    const owner = known === undefined ? owners.get(channelId) : undefined
    if (owner !== undefined) refuse('channel_id', describeOwner(owner))
    const name = columns.name ?? known?.columns.name ?? ''
    if (name === '') refuse('name', 'a new account needs a name.')
    const changes = accountChanges(known?.columns ?? {}, columns)
    return { ...row, name, storedId: known?.id ?? null, changes }
  })
  throwFaults(faults.toSorted((a, b) => a.line - b.line))
  return plans
}

/** Adds and updates all accounts, and starts a job for them, in one transaction. Throws a RefusedFile or RefusedLine. */
export async function applyAccounts(
  database: Transactions,
  actor: Actor,
  wanted: WantedAccount[],
  startJob: (transaction: Queryable, applied: AppliedAccount[]) => Promise<bigint>,
  options: ApplyOptions = {},
): Promise<{ accounts: AppliedAccount[]; jobId: bigint }> {
  return database.transaction(async (transaction) => {
    await takeLock(transaction, APPLY_LOCK)
    const accounts: AppliedAccount[] = []
    const added = new Map<string, OrganizationId>()
    const apply = async (plan: Plan): Promise<AppliedAccount> => {
      const organizationId =
        plan.organizationId ??
        added.get(plan.organization) ??
        (await addOrganizationOf(transaction, actor, plan.organization))
      added.set(plan.organization, organizationId)
      const placed = { ...plan, organizationId }
      return { ...placed, id: await store(transaction, actor, placed) }
    }
    for (const plan of await planAccounts(transaction, actor, wanted, options)) {
      const account = await apply(plan).catch((error) => {
        throw violatedConstraint(error) === null ? error : new RefusedLine(plan.line, error)
      })
      accounts.push(account)
    }
    return { accounts, jobId: await startJob(transaction, accounts) }
  })
}

export function throwFaults(faults: FileFault[]): void {
  if (faults.length > 0) throw new RefusedFile(faults)
}

const keyOf = ({ organizationId, channelId }: { organizationId: OrganizationId | null; channelId: string }) =>
  `${organizationId} ${channelId}`

type StoredAccount = {
  id: AccountId
  organizationId: OrganizationId
  channelId: string
  columns: Partial<AccountColumns>
}

async function findStored(
  database: Queryable,
  placed: Array<{ organizationId: OrganizationId | null }>,
  channelIds: string[],
): Promise<Map<string, StoredAccount>> {
  const organizationIds = [...new Set(placed.flatMap(({ organizationId }) => organizationId ?? []))]
  const rows = await database.query<StoredAccount>(selectStored, [organizationIds, channelIds])
  return new Map(
    rows.map((row) => {
      const columns = decryptAccount(database.secretKeys, row.id, row.columns)
      return [keyOf(row), { ...row, columns }]
    }),
  )
}

async function store(
  transaction: Queryable,
  actor: Actor,
  plan: Plan & { organizationId: OrganizationId },
): Promise<AccountId> {
  const { storedId, organizationId, columns, changes } = plan
  if (storedId === null)
    return (await addAccountIn(transaction, actor, organizationId, columns as NewAccount)).id
  if (Object.keys(changes).length > 0) await updateAccountIn(transaction, actor, storedId, columns)
  return storedId
}

// Organizations, which a file names by id or name.

/** $1 ids bigint[], $2 names text[], $3 organization ids bigint[], null: all */
const selectNamedOrganizations = statement('select-organizations-by-id-or-name')`
    select id, name from organization
     where (id = any ($1::bigint[]) or name = any ($2::text[])) and visible(id, $3)
     order by id`

interface FileOrganizations {
  /** by their text in the file; null: it will be added */
  organizations: Map<string, OrganizationId | null>
  /** what is wrong with each other text */
  refused: Map<string, string>
}

/**
 * An id takes precedence over a name that looks like one. Throws `forbidden` if the actor may not add organizations.
 * @param texts may repeat; an empty one is ignored, because the reader of the file has refused it
 */
async function findOrganizations(
  database: Queryable,
  { organizationIds }: Actor,
  texts: string[],
  addsOrganizations: boolean,
): Promise<FileOrganizations> {
  // Others would not see the new organizations.
  if (addsOrganizations && organizationIds !== null)
    throw new AppError('forbidden', { message: 'Only an owner of all organizations can add one' })
  const distinct = [...new Set(texts)].filter((text) => text !== '')
  const ids = distinct.filter((text) => /^[1-9]\d{0,17}$/.test(text))
  const values = [ids, distinct, organizationIds]
  const rows = await database.query<{ id: bigint; name: string }>(selectNamedOrganizations, values)
  const organizations = new Map<string, OrganizationId | null>()
  const refused = new Map<string, string>()
  for (const text of distinct) {
    const named = rows.filter(({ name }) => name === text)
    const match = rows.find(({ id }) => String(id) === text) ?? named[0]
    if (named.length > 1 && match === named[0])
      refused.set(text, `${named.length} organizations have this name. Write the id instead.`)
    else if (match !== undefined) organizations.set(text, match.id)
    // Digits are meant as an id, which nobody can choose.
    else if (addsOrganizations && !/^\d+$/.test(text)) organizations.set(text, null)
    else refused.set(text, 'no organization has this id or name.')
  }
  return { organizations, refused }
}
