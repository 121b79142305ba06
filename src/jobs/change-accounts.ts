/**
 * `accounts.change`: makes one change to many accounts. The accounts are chosen when the job starts. Each is changed, recorded and
 * counted in one transaction, by the functions that change a single one. A verification, which calls LINE, is made before its
 * transaction, so a killed process may repeat the last ones.
 */
import { findAccount } from '../accounts/account.ts'
import { addKeyOf } from '../accounts/clients.ts'
import { findVisibleAccount, type VisibleAccount, verifyAccount } from '../accounts/manage-accounts.ts'
import { UnreadableSecret } from '../config/secret-keys.ts'
import { ROWS_PER_STATEMENT, removeEndpointBatch, retryFailedBatch, setStatus } from '../endpoints/manage.ts'
import { addEndpointOf, type NewEndpoint, updateEndpointOf } from '../endpoints/settings.ts'
import { AppError, NotVisible, requireVisible, toFatalError } from '../errors.ts'
import { INT64_MIN } from '../http/path-id.ts'
import type { AccountId } from '../ids.ts'
import { type Action, type Changes, recordAccount, recordActivity } from '../operators/activity.ts'
import type { Actor } from '../operators/actor.ts'
import { violatedConstraint } from '../postgres/faults.ts'
import { type Queryable, statement } from '../postgres/statement.ts'
import type { Mute } from '../watch/account-status.ts'
import { setMuteOf } from '../watch/mutes.ts'
import { actorOf, type Job, jobStarted, soleOrganization, startJob } from './job.ts'
import {
  type AccountOutcome,
  insertAccounts,
  nextAccounts,
  type Result,
  type Selection,
  selectAccounts,
  storeResults,
} from './job-accounts.ts'
import { addCounts, platformOf, type RunStep, type Step } from './step.ts'

/** As many as the account monitor checks at the same time. */
const VERIFIED_AT_ONCE = 4

const BEGINNING = { afterId: String(INT64_MIN) }

export type AccountsChange =
  | { change: 'verify'; settings: object }
  | { change: 'mute'; settings: Mute }
  | { change: 'unmute'; settings: object }
  | { change: 'endpoint'; settings: Omit<NewEndpoint, 'accountId'> }
  /** Instances of 0.3.0, which may run the job, read `expiresAt`. */
  | { change: 'key'; settings: { client: string; expiresAt: null } }
  | { change: 'endpoints'; settings: EndpointsChange }

export const ENDPOINT_ACTIONS = ['pause', 'resume', 'retry', 'move', 'remove'] as const

/** `endpoint` is the URL that the endpoints have, and `url` the one that `move` gives them. */
type EndpointsChange = {
  endpoint: string
  action: (typeof ENDPOINT_ACTIONS)[number]
  url?: string | undefined
}

/** @param shown what the job and the activity log show of the settings. Throws `invalid_input` and `too_many_jobs`. */
export async function startChange(
  transaction: Queryable,
  actor: Actor,
  selection: Selection,
  { change, settings }: AccountsChange,
  shown: Record<string, unknown>,
): Promise<bigint> {
  const accounts = await selectAccounts(transaction, actor, selection)
  const kind = 'accounts.change'
  const job = {
    kind,
    accountId: null,
    organizationId: soleOrganization(accounts),
    parameters: { change, ...shown, settings },
    total: accounts.length,
  } as const
  const activity = jobStarted(kind, { change, ...shown, accounts: accounts.length })
  const id = await startJob(transaction, actor, job, activity)
  await transaction.query(insertAccounts, [id, accounts.map((account) => account.id)])
  return id
}

/** `isStarted`: a part of the next account is changed already. */
type Position = { afterId: string; isStarted?: true }

export const changeAccounts: RunStep = async (job, step) => {
  const given = job.parameters as AccountsChange
  const { afterId: after, isStarted = false } = (job.position ?? BEGINNING) as Position
  const afterId = BigInt(after)
  const actor = actorOf(job, step.organizationIds)
  const ids = await nextAccounts(
    step.database,
    job.id,
    afterId,
    given.change === 'verify' ? VERIFIED_AT_ONCE : 1,
  )
  const [id] = ids
  if (id === undefined)
    return step.commit(async () => ({ position: null, done: job.done, tally: tallyOf(job, []) }))
  if (given.change === 'verify') {
    const results = await Promise.all(ids.map((each) => refusable(() => verify(step, actor, each))))
    return advance(job, step, ids, async () => results)
  }
  // A refusal rolls back what was changed before it.
  const refused = await refusable(async () => {
    await advance(job, step, ids, async (transaction) => {
      const account = requireVisible(await findVisibleAccount(transaction, actor, id), 'account', id)
      const result = await changeAccount(transaction, actor, account, given)
      if (result === null) return null
      return [isStarted && result.outcome === 'unchanged' ? { outcome: 'changed' } : result]
    })
    return null
  })
  if (refused !== null) await advance(job, step, ids, async () => [refused])
}

/** @param work returns null if the same accounts need another step */
function advance(
  job: Job,
  { commit }: Step,
  ids: AccountId[],
  work: (transaction: Queryable) => Promise<Result[] | null>,
): Promise<void> {
  return commit(async (transaction) => {
    const results = await work(transaction)
    if (results === null) {
      const position = { ...((job.position ?? BEGINNING) as Position), isStarted: true }
      return { position, done: job.done, tally: tallyOf(job, []) }
    }
    await storeResults(transaction, job.id, ids, results)
    const done = job.done + BigInt(ids.length)
    return { position: { afterId: String(ids.at(-1)) }, done, tally: tallyOf(job, results) }
  })
}

function tallyOf({ tally }: Job, results: Result[]) {
  const count = (name: AccountOutcome) => results.filter(({ outcome }) => outcome === name).length
  return addCounts(tally, {
    changed: count('changed'),
    unchanged: count('unchanged'),
    refused: count('refused'),
    // Keys and secrets of endpoints that were not shown yet.
    secrets: results.filter(({ objectId }) => objectId).length,
  })
}

/** Throws an error that is not about the account. */
async function refusable<T>(work: () => Promise<T>): Promise<T | Result> {
  try {
    return await work()
  } catch (error) {
    const message = sentenceOf(error)
    if (message === null) throw error
    return { outcome: 'refused', message }
  }
}

const TOO_MANY_ENDPOINTS = 'the account already has 20 endpoints, which is the limit.'

function sentenceOf(error: unknown): string | null {
  if (error instanceof UnreadableSecret) return error.message
  if (error instanceof NotVisible) return `${error.noun} ${error.id} does not exist.`
  const constraint = violatedConstraint(error)
  if (constraint !== null)
    return constraint === 'endpoint_max_per_account' ? TOO_MANY_ENDPOINTS : 'the database refuses the change.'
  const isRefusal =
    error instanceof AppError && ['invalid_input', 'platform_unavailable'].includes(error.code)
  return isRefusal ? toFatalError(error).message : null
}

/** An account that passes counts as changed. */
async function verify(step: Step, actor: Actor, id: AccountId): Promise<Result> {
  const { database } = step
  requireVisible(await findVisibleAccount(database, actor, id), 'account', id)
  const account = requireVisible(await findAccount(database, id), 'account', id)
  const { verified, checks } = await verifyAccount({ ...platformOf(step), database }, actor, account, {})
  if (verified) return { outcome: 'changed' }
  return { outcome: 'refused', message: checks.find(({ ok }) => ok === false)?.message ?? '' }
}

/** $1 account id bigint, $2 url text, $3 format text */
const selectSameEndpoint = statement('select-same-endpoint')`
    select from endpoint where channel_oa_id = $1 and url = $2 and format = $3 limit 1`

/** $1 client id bigint, $2 account id bigint, $3 organization ids bigint[], null: all */
const selectAccess = statement('select-access-of-client')`
    select c.status = 'active' as "isActive",
           exists (select from api_key k where k.api_client_id = c.id and k.channel_oa_id = $2 and k.status = 'active')
             as "hasKey"
      from api_client c
     where c.id = $1
       and ($3::bigint[] is null
            or exists (select from api_key k where k.api_client_id = c.id and visible(k.organization_id, $3)))`

/** Returns null if a part remains for another transaction. */
async function changeAccount(
  transaction: Queryable,
  actor: Actor,
  account: VisibleAccount,
  given: Exclude<AccountsChange, { change: 'verify' }>,
): Promise<Result | null> {
  const { id: accountId } = account
  switch (given.change) {
    case 'mute':
    case 'unmute': {
      const mute = given.change === 'mute' ? given.settings : null
      const changes = await setMuteOf(transaction, accountId, mute)
      if (changes === null) return { outcome: 'unchanged' }
      await recordAccount(transaction, actor, mute ? 'account.muted' : 'account.unmuted', account, changes)
      return { outcome: 'changed' }
    }
    case 'endpoints':
      return changeEndpoints(transaction, actor, account, given.settings)
    case 'endpoint': {
      const { settings } = given
      const same = await transaction.query(selectSameEndpoint, [accountId, settings.url, settings.format])
      if (same.length > 0) return { outcome: 'unchanged' }
      const added = await addEndpointOf(transaction, actor, { ...settings, accountId }, [])
      await recordEndpoint(transaction, actor, 'endpoint.added', account, added.result.id, added.changes)
      return { outcome: 'changed', objectId: added.result.secret === null ? null : added.result.id }
    }
    case 'key': {
      const client = BigInt(given.settings.client)
      const values = [client, accountId, actor.organizationIds]
      const [access] = await transaction.query<{ isActive: boolean; hasKey: boolean }>(selectAccess, values)
      const { isActive, hasKey } = requireVisible(access, 'client', client)
      if (hasKey) return { outcome: 'unchanged' }
      if (!isActive) return { outcome: 'refused', message: `client ${client} is not active.` }
      const added = await addKeyOf(transaction, actor, client, accountId)
      const { id, organizationId } = added.target
      await recordActivity(transaction, actor, {
        ...{ action: 'key.added', object: { kind: 'key', id } },
        ...{ organizationId, accountId, changes: added.changes },
      })
      return { outcome: 'changed', objectId: added.result.id }
    }
  }
}

/** $1 account id bigint, $2 url text */
const selectEndpointsOfUrl = statement('select-endpoints-of-url')`
    select id, name from endpoint where channel_oa_id = $1 and url = $2 order by id`

async function changeEndpoints(
  transaction: Queryable,
  actor: Actor,
  account: VisibleAccount,
  { endpoint: present, action, url = present }: EndpointsChange,
): Promise<Result | null> {
  type Endpoint = { id: bigint; name: string }
  const endpoints = await transaction.query<Endpoint>(selectEndpointsOfUrl, [account.id, present])
  let isChanged = false
  let isComplete = true
  for (const { id, name } of endpoints) {
    switch (action) {
      case 'pause':
      case 'resume': {
        const changes = await setStatus(transaction, id, action === 'pause' ? 'paused' : 'active')
        if (changes === null) continue
        await recordEndpoint(transaction, actor, `endpoint.${action}d`, account, id, changes)
        break
      }
      case 'move': {
        const changes = await updateEndpointOf(transaction, actor, id, { url }, [])
        if (Object.keys(changes).length === 0) continue
        await recordEndpoint(transaction, actor, 'endpoint.updated', account, id, changes)
        break
      }
      case 'retry': {
        const count = await retryFailedBatch(transaction, id)
        if (count === 0) continue
        await recordEndpoint(transaction, actor, 'endpoint.retried', account, id, { deliveries: count })
        isComplete &&= count < ROWS_PER_STATEMENT
        break
      }
      case 'remove':
        if ((await removeEndpointBatch(transaction, id)) < ROWS_PER_STATEMENT)
          await recordEndpoint(transaction, actor, 'endpoint.removed', account, id, { name: [name, null] })
        else isComplete = false
    }
    isChanged = true
  }
  if (!isComplete) return null
  return { outcome: isChanged ? 'changed' : 'unchanged' }
}

function recordEndpoint(
  transaction: Queryable,
  actor: Actor,
  action: Action & `endpoint.${string}`,
  { id: accountId, organizationId }: VisibleAccount,
  id: bigint,
  changes: Changes,
): Promise<void> {
  const object = { kind: 'endpoint', id } as const
  return recordActivity(transaction, actor, { action, object, organizationId, accountId, changes })
}
