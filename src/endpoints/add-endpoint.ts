/** Adds an endpoint for an operator, alone or as one of many. */

import { findAccountDetails } from '../accounts/accounts.ts'
import { refuseInput } from '../http/validate.ts'
import type { Changes } from '../operators/activity.ts'
import type { Actor } from '../operators/actor.ts'
import type { Queryable } from '../postgres/statement.ts'
import { printableUrl } from './address.ts'
import { type AddedEndpoint, addEndpoint, type NewEndpoint } from './settings.ts'

/** What reaches the private network shows what answers there, by its test. Operators of some organizations must not look around in it. */
export function requirePrivateNetwork(
  { organizationIds }: Actor,
  field: 'allowPrivateNetwork' | 'url' = 'allowPrivateNetwork',
): void {
  if (organizationIds !== null)
    refuseInput(field, 'reaches the private network: only operators of all organizations may set this')
}

/** Throws NotVisible for the account, and `invalid_input`. @param own the base URLs of this service */
export async function addEndpointOf(
  transaction: Queryable,
  actor: Actor,
  endpoint: NewEndpoint,
  own: URL[],
): Promise<{
  result: AddedEndpoint
  target: { id: bigint; organizationId: bigint; accountId: bigint }
  changes: Changes
}> {
  const { accountId, url, format } = endpoint
  if (endpoint.allowPrivateNetwork) requirePrivateNetwork(actor)
  const { organizationId } = await findAccountDetails(transaction, actor.organizationIds, accountId)
  const result = await addEndpoint(transaction, endpoint, own)
  const changes = { url: [null, printableUrl(url)], format: [null, format] }
  return { result, target: { id: result.id, organizationId, accountId }, changes }
}
