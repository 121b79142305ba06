/** What the form, fleet files and commands require of a channel id and secret before they are stored. */

import { Secret } from '../config/secret.ts'
import { AppError } from '../errors.ts'
import type { LineApi } from '../line-api/client.ts'
import type { Actor } from '../operators/actor.ts'
import { type Queryable, statement } from '../postgres/statement.ts'
import type { AccountId, OrganizationId } from './account.ts'
import type { AccountColumns } from './provisioning.ts'

type ChannelOwner = {
  id: AccountId
  channelId: string
  name: string
  organizationId: OrganizationId
  organizationName: string
}

const selectOwners = statement('select-accounts-of-channels')`
    select a.id, a.channel_id as "channelId", a.name, o.id as "organizationId", o.name as "organizationName"
      from official_account a join organization o on o.id = a.organization_id
     where a.channel_id = any ($1::text[]) and visible(a.organization_id, $2)
     order by a.id desc`

/**
 * The rule: a channel belongs to one of the accounts that the actor sees. Accounts of other organizations do not count, because a
 * refusal would say that they exist, and somebody else could reserve a channel.
 */
export async function findOwners(
  database: Queryable,
  { organizationIds }: Actor,
  channelIds: string[],
): Promise<Map<string, ChannelOwner>> {
  const rows = await database.query<ChannelOwner>(selectOwners, [channelIds, organizationIds])
  return new Map(rows.map((row) => [row.channelId, row]))
}

export function describeOwner({ channelId, id, name, organizationId, organizationName }: ChannelOwner) {
  const quoted = (text: string) => JSON.stringify(text)
  return `channel ${channelId} is already account ${id} ${quoted(name)} of organization ${organizationId} ${quoted(organizationName)}.`
}

/** Throws `invalid_input` if another account that the actor sees has the channel. */
export async function requireFreeChannel(
  database: Queryable,
  actor: Actor,
  channelId: string | null | undefined,
): Promise<void> {
  if (!channelId) return
  const owner = (await findOwners(database, actor, [channelId])).get(channelId)
  if (owner !== undefined) throw refusal('channelId', describeOwner(owner))
}

const refusal = (path: string, message: string) =>
  new AppError('invalid_input', { message, details: [{ path, message }] })

/**
 * `proven`: LINE issues a token for the channel id and secret. `unproven`: LINE did not respond. `not_asked`: neither has changed, one of
 * both is missing, or the operator did not want it.
 */
export type Proof = 'proven' | 'unproven' | 'not_asked'

type ChannelColumns = Partial<Pick<AccountColumns, 'channel_id' | 'channel_secret'>>

export const REFUSED =
  'LINE refuses this channel id and secret. Compare both with the LINE Developers Console, "Basic settings". Nothing was changed.'

/** For the operator who stored an unproven secret. */
export const UNPROVEN =
  'LINE does not respond, so nothing proves that channel id and secret belong together. Verify the account with a test delivery.'

/** Throws `invalid_input` if LINE refuses the channel id and secret. No transaction may be open, because LINE may take seconds. */
export async function proveChannel(lineApi: LineApi | null, channel: ChannelColumns): Promise<Proof> {
  if (lineApi === null) return 'not_asked'
  const proof = await askLine(lineApi, channel)
  if (proof === 'refused') throw refusal('channelSecret', REFUSED)
  return proof
}

/** Never throws. */
export async function askLine(
  lineApi: LineApi,
  { channel_id: channelId, channel_secret: secret }: ChannelColumns,
): Promise<Proof | 'refused'> {
  if (!channelId || !secret?.trim()) return 'not_asked'
  const result = await lineApi.proveChannel(channelId, new Secret(secret))
  if (result.ok) return 'proven'
  // Another status comes from something between this service and LINE, or from a fault of LINE.
  const { fault } = result
  return fault.type === 'refused_credentials' && [400, 401].includes(fault.status) ? 'refused' : 'unproven'
}
