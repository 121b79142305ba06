/** Adds, changes, pauses, tests and removes endpoints. Throws NotVisible for others than the actor sees. URLs appear in the activity log as they are printed, without tokens. */
import { printableUrl } from '../../endpoints/address.ts'
import {
  discardRotation,
  finishRotation,
  pauseEndpoint,
  removeEndpointBatch,
  rotateSecret,
} from '../../endpoints/manage.ts'
import {
  type AddedEndpoint,
  type EndpointSettings,
  addEndpoint as insertEndpoint,
  type NewEndpoint,
  updateEndpoint as updateSettings,
} from '../../endpoints/settings.ts'
import type { EndpointTester, TestDelivery } from '../../endpoints/test-delivery.ts'
import { requireVisible } from '../../errors.ts'
import { refuseInput } from '../../http/validate.ts'
import { transactionWithFreeIds } from '../../postgres/schema/taken-ids.ts'
import { type Queryable, statement, type Transactions } from '../../postgres/statement.ts'
import { findAccountDetails } from '../accounts/accounts.ts'
import { type Action, type Changes, changesBetween, recordActivity } from '../activity.ts'
import type { Actor } from '../actor.ts'
import { type EndpointOfJob, startBacklog } from '../jobs/endpoint-backlog.ts'

/** Throws NotVisible for the account, and `invalid_input` that says why a setting is refused. */
export function addEndpoint(
  database: Transactions,
  actor: Actor,
  endpoint: NewEndpoint,
  own: URL[],
): Promise<AddedEndpoint> {
  if (endpoint.allowPrivateNetwork) requirePrivateNetwork(actor, 'allowPrivateNetwork')
  return transactionWithFreeIds(database, async (transaction) => {
    const account = await findAccountDetails(transaction, actor.organizationIds, endpoint.accountId)
    const added = await insertEndpoint(transaction, endpoint, own)
    await recordActivity(transaction, actor, {
      action: 'endpoint.added',
      object: { kind: 'endpoint', id: added.id },
      ...{ organizationId: account.organizationId, accountId: account.id },
      changes: { url: [null, printableUrl(endpoint.url)], format: [null, endpoint.format] },
    })
    return added
  })
}

/** Throws NotVisible. If the receiver is another one, a job makes its backlog due. */
export function updateEndpoint(
  database: Transactions,
  actor: Actor,
  id: bigint,
  changes: Partial<EndpointSettings>,
  own: URL[],
): Promise<{ jobId: bigint | null }> {
  return changeEndpoint(database, actor, id, 'endpoint.updated', async (transaction, endpoint) => {
    const updated = await updateSettings(transaction, id, changes, own)
    if (updated.after.allowPrivateNetwork) {
      if (!updated.before.allowPrivateNetwork) requirePrivateNetwork(actor, 'allowPrivateNetwork')
      if (updated.before.url !== updated.after.url) requirePrivateNetwork(actor, 'url')
    }
    const { before, after, resumption } = updated
    const jobId = resumption && (await startBacklog(transaction, actor, endpoint, resumption, null))
    return { result: { jobId }, changes: changesBetween(printable(before), printable(after)) }
  })
}

/**
 * An endpoint that may reach the private network shows what answers there, by its test. Operators of some organizations must not
 * look around in the network of the service.
 */
function requirePrivateNetwork({ organizationIds }: Actor, field: 'allowPrivateNetwork' | 'url'): void {
  if (organizationIds !== null)
    refuseInput(field, 'reaches the private network: only operators of all organizations may set this')
}

const printable = (settings: EndpointSettings) => ({ ...settings, url: printableUrl(settings.url) })

/** Deliveries are kept. */
export function pause(database: Transactions, actor: Actor, id: bigint): Promise<void> {
  return changeEndpoint(database, actor, id, 'endpoint.paused', async (transaction) => ({
    result: await pauseEndpoint(transaction, id),
  }))
}

/** Returns the new secret. */
export function rotate(database: Transactions, actor: Actor, id: bigint): Promise<string> {
  return changeEndpoint(database, actor, id, 'endpoint.rotated', async (transaction) => ({
    result: await rotateSecret(transaction, id),
    changes: { secret: 'replaced' },
  }))
}

const ENDINGS = {
  new: { action: 'endpoint.rotation_finished', end: finishRotation },
  previous: { action: 'endpoint.rotation_discarded', end: discardRotation },
} as const

/** Deletes the other secret. Throws `invalid_input` if the endpoint is not rotating. */
export function endRotation(
  database: Transactions,
  actor: Actor,
  id: bigint,
  kept: keyof typeof ENDINGS,
): Promise<void> {
  const { action, end } = ENDINGS[kept]
  return changeEndpoint(database, actor, id, action, async (transaction) => ({
    result: await end(transaction, id),
  }))
}

/** Deletes a batch of unsent deliveries, and with the last one the endpoint. */
export async function removeBatch(
  database: Transactions,
  actor: Actor,
  id: bigint,
): Promise<{ deleted: number; isLast: boolean }> {
  return database.transaction(async (transaction) => {
    const endpoint = await findEndpointOf(transaction, actor, id)
    const batch = await removeEndpointBatch(transaction, id)
    const changes = { name: [endpoint.name, null] }
    if (batch.isLast) await record(transaction, actor, endpoint, 'endpoint.removed', changes)
    return batch
  })
}

/** Sends a test message: see endpoints/test-delivery.ts. */
export async function test(
  database: Transactions,
  actor: Actor,
  id: bigint,
  tester: EndpointTester,
): Promise<TestDelivery> {
  const endpoint = await findEndpointOf(database, actor, id)
  // The receiver may take seconds, so the test is not part of a transaction.
  const delivery = await tester.test(database, id)
  await record(database, actor, endpoint, 'endpoint.tested', { status: delivery.response.status })
  return delivery
}

type Endpoint = EndpointOfJob & { name: string }

/** $1 endpoint id bigint; $2 organization ids bigint[], null: all */
const selectEndpoint = statement('select-endpoint-of-organizations')`
    select p.id, p.name, a.id as "accountId", a.organization_id as "organizationId"
      from endpoint p join official_account a on a.id = p.channel_oa_id
     where p.id = $1 and visible(a.organization_id, $2)`

export async function findEndpointOf(
  database: Queryable,
  { organizationIds }: Actor,
  id: bigint,
): Promise<Endpoint> {
  const [endpoint] = await database.query<Endpoint>(selectEndpoint, [id, organizationIds])
  return requireVisible(endpoint, 'endpoint', id)
}

/** Records what `work` did, in its transaction. */
function changeEndpoint<T>(
  database: Transactions,
  actor: Actor,
  id: bigint,
  action: Action,
  work: (transaction: Queryable, endpoint: Endpoint) => Promise<{ result: T; changes?: Changes }>,
): Promise<T> {
  return database.transaction(async (transaction) => {
    const endpoint = await findEndpointOf(transaction, actor, id)
    const { result, changes = {} } = await work(transaction, endpoint)
    await record(transaction, actor, endpoint, action, changes)
    return result
  })
}

function record(
  transaction: Queryable,
  actor: Actor,
  { id, organizationId, accountId }: Endpoint,
  action: Action,
  changes: Changes,
): Promise<void> {
  const object = { kind: 'endpoint' as const, id }
  return recordActivity(transaction, actor, { action, object, organizationId, accountId, changes })
}
