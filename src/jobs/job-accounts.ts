/** The accounts of a job that changes many of them: which ones it has, and what became of each. */
import { refuseRequest } from '../errors.ts'
import { INT64_MIN } from '../http/path-id.ts'
import type { AccountId, OrganizationId } from '../ids.ts'
import type { Actor, OrganizationIds } from '../operators/actor.ts'
import { type Queryable, statement } from '../postgres/statement.ts'
import type { AccountStatus } from '../watch/account-status.ts'

/** One statement stores them, in about 0.3 s. */
export const ACCOUNTS_MAX = 30_000

/** Without `accounts`, all that match the others. */
export interface Selection {
  accounts?: AccountId[] | undefined
  status?: AccountStatus | undefined
  /** reason of the worst problem */
  problem?: string | undefined
  organization?: OrganizationId | undefined
  /** part of the name, basic id, id or organization */
  q?: string | undefined
}

export const OUTCOMES = ['changed', 'unchanged', 'refused'] as const
export type AccountOutcome = (typeof OUTCOMES)[number]

export interface Result {
  outcome: AccountOutcome
  message?: string
  /** the key or the endpoint that was added with a secret */
  objectId?: bigint | null
}

type Chosen = { id: AccountId; organizationId: OrganizationId }

/**
 * $1 organization ids bigint[], null: all; $2 account ids bigint[], null: any; $3 status text or null; $4 reason text or null;
 * $5 organization id bigint or null; $6 part of a name or an id text; $7 maximum number of rows int
 */
const selectMatching = statement('select-accounts-of-selection')`
    select a.id, a.organization_id as "organizationId"
      from official_account a
      join organization o on o.id = a.organization_id
      left join account_check k on k.channel_oa_id = a.id
     where visible(a.organization_id, $1) and a.is_being_removed is not true
       and ($2::bigint[] is null or a.id = any ($2))
       and ($3::text is null or coalesce(k.status, 'quiet') = $3)
       and ($4::text is null or k.problems->0->>'reason' = $4)
       and ($5::bigint is null or a.organization_id = $5)
       and strpos(lower(concat_ws(chr(10), a.id, a.name, a.basic_id, o.name)), lower($6)) > 0
     order by a.id
     limit $7`

/** Throws `invalid_input` for none, and for more than ACCOUNTS_MAX. */
export async function selectAccounts(
  database: Queryable,
  { organizationIds }: Actor,
  { accounts, status, problem, organization, q }: Selection,
): Promise<Chosen[]> {
  const filters = [accounts ?? null, status ?? null, problem ?? null, organization ?? null, q?.trim() ?? '']
  const chosen = await database.query<Chosen>(selectMatching, [organizationIds, ...filters, ACCOUNTS_MAX + 1])
  if (chosen.length === 0) refuseRequest('No account matches.')
  if (chosen.length > ACCOUNTS_MAX) refuseRequest(`More than ${ACCOUNTS_MAX} accounts match.`)
  return chosen
}

/** $1 job id bigint, $2 account ids bigint[] */
export const insertAccounts = statement('insert-job-accounts')`
    insert into changed_account (job_id, channel_oa_id) select $1, unnest($2::bigint[])`

/** $1 job id bigint, $2 after this account id bigint, $3 maximum number of rows int */
const selectNext = statement('select-next-job-accounts')`
    select channel_oa_id as id from changed_account where job_id = $1 and channel_oa_id > $2 order by channel_oa_id limit $3`

export async function nextAccounts(
  database: Queryable,
  jobId: bigint,
  afterId: AccountId | null,
  limit: number,
): Promise<AccountId[]> {
  const rows = await database.query<{ id: AccountId }>(selectNext, [jobId, afterId ?? INT64_MIN, limit])
  return rows.map(({ id }) => id)
}

/** $1 job id bigint, $2 account ids bigint[], $3 outcomes text[], $4 messages text[], $5 object ids bigint[] */
const updateResults = statement('store-results-of-job-accounts')`
    update changed_account r set outcome = t.outcome, message = t.message, object_id = t.object_id
      from unnest($2::bigint[], $3::text[], $4::text[], $5::bigint[]) as t (id, outcome, message, object_id)
     where r.job_id = $1 and r.channel_oa_id = t.id`

export async function storeResults(
  transaction: Queryable,
  jobId: bigint,
  ids: AccountId[],
  results: Result[],
): Promise<void> {
  const outcomes = results.map(({ outcome }) => outcome)
  const messages = results.map(({ message }) => message ?? null)
  const objectIds = results.map(({ objectId }) => objectId ?? null)
  await transaction.query(updateResults, [jobId, ids, outcomes, messages, objectIds])
}

export type AccountResult = {
  id: AccountId
  name: string
  outcome: AccountOutcome | null
  message: string | null
}

/** $1 job id bigint; $2 outcome text, null: any; $3 organization ids bigint[], null: all; $4 after this id bigint; $5 rows int */
const selectResults = statement('list-results-of-job-accounts')`
    select a.id, a.name, r.outcome, r.message
      from changed_account r join official_account a on a.id = r.channel_oa_id
     where r.job_id = $1 and ($2::text is null or r.outcome = $2) and visible(a.organization_id, $3) and r.channel_oa_id > $4
     order by r.channel_oa_id
     limit $5`

/** The order is that of the ids of accounts. A null outcome: the turn of the account has not come. */
export function listResults(
  database: Queryable,
  organizationIds: OrganizationIds,
  { jobId, outcome = null }: { jobId: bigint; outcome?: AccountOutcome | null },
  { afterId, limit }: { afterId: AccountId; limit: number },
): Promise<AccountResult[]> {
  return database.query(selectResults, [jobId, outcome, organizationIds, afterId, limit])
}

/**
 * Only the person who started the job gets the secrets, once it has ended.
 *
 * $1 job id bigint, $2 operator id bigint or null, $3 actor text, $4 organization ids bigint[], null: all
 */
const takeObjects = statement('take-secrets-of-job-accounts')`
    with own as (
      update job set tally = tally - 'secrets'
       where id = $1 and operator_id is not distinct from $2::bigint and actor = $3 and finished_at is not null
      returning id, parameters->>'change' as change
    ), added as materialized (
      select r.channel_oa_id, r.object_id, own.change
        from own join changed_account r on r.job_id = own.id join official_account a on a.id = r.channel_oa_id
       where r.object_id is not null and visible(a.organization_id, $4)
    ), taken as (
      update changed_account r set object_id = null from added where r.job_id = $1 and r.channel_oa_id = added.channel_oa_id
    )
    select added.channel_oa_id as "accountId", object_id as id, k.key, p.secret
      from added
      left join api_key k on change = 'key' and k.id = object_id
      left join endpoint p on change = 'endpoint' and p.id = object_id
     order by 1`

/** `id` is that of the key or the endpoint. */
export type AddedSecret = { accountId: AccountId; id: bigint; secret: string }

/** Each key, or secret of an endpoint, is returned once. */
export async function takeSecrets(
  transaction: Queryable,
  { operatorId, name, organizationIds }: Actor,
  jobId: bigint,
): Promise<AddedSecret[]> {
  type Taken = { accountId: AccountId; id: bigint; key: string | null; secret: string | null }
  const taken = await transaction.query<Taken>(takeObjects, [jobId, operatorId, name, organizationIds])
  return taken.flatMap(({ accountId, id, key, secret: stored }) => {
    const secret = key ?? transaction.secretKeys.decryptOrNull('endpoint.secret', id, stored)
    // Removed meanwhile.
    return secret === null ? [] : [{ accountId, id, secret }]
  })
}
