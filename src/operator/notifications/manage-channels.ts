/** Adds, changes, pauses and removes notification channels. The activity log contains only the hosts of their targets. */

import type { OrganizationId } from '../../accounts/account.ts'
import { isEmailAddress } from '../../config/parsers.ts'
import { isOwnUrl, RefusedUrl, readEndpointUrl } from '../../endpoints/address.ts'
import { newSecret } from '../../endpoints/messages.ts'
import { NotVisible } from '../../errors.ts'
import { refuseInput } from '../../http/validate.ts'
import { type Queryable, statement, type Transactions } from '../../postgres/statement.ts'
import { type Action, type Changes, changesBetween, recordActivity } from '../activity.ts'
import { type Actor, SERVICE } from '../actor.ts'
import { type ChannelFormat, type ChannelSettings, recordedTarget } from './channels.ts'

/** Of one organization, and of all organizations together: every message is sent once per channel. */
const CHANNELS_MAX = 20

export interface NewChannel extends ChannelSettings {
  /** null: all */
  organizationId: OrganizationId | null
  format: ChannelFormat
}

export interface AddedChannel {
  id: bigint
  /** null unless the format is webhook */
  secret: string | null
}

/** What the configuration of the service allows. */
export interface ChannelLimits {
  /** base URLs of this service's API, where a channel would be a loop */
  own: URL[]
  /** SMTP_URL is set */
  canEmail: boolean
}

/**
 * Returns no row if the organization does not exist or has $7 channels.
 *
 * $1 organization id bigint, null: all; $2 name text; $3 format text; $4 target text; $5 allow_private_network boolean;
 * $6 secret text or null; $7 maximum int; $8 id bigint
 */
const insertChannel = statement('insert-notification-channel')`
    insert into notification_channel (id, organization_id, name, format, target, allow_private_network, secret)
    select $8, $1, $2, $3, $4, $5, $6
     where (select count(*) from notification_channel where organization_id is not distinct from $1::bigint) < $7
       and ($1 is null or exists (select from organization where id = $1))
    returning id`

/** The secrets are encrypted for the id of their row. */
const selectNextId = statement('next-id-notification-channel')`
    select nextval(pg_get_serial_sequence('notification_channel', 'id')) as id`

/** Throws `invalid_input` that says why a setting is refused. */
export async function addChannel(
  database: Transactions,
  actor: Actor,
  channel: NewChannel,
  limits: ChannelLimits,
): Promise<AddedChannel> {
  const { organizationId, name, format, allowPrivateNetwork } = channel
  if (!seesOrganization(actor, organizationId))
    refuseInput('organization', 'must be one of your organizations')
  if (allowPrivateNetwork) requirePrivateNetwork(actor)
  const target = checkSettings(channel, format, limits)
  const secret = format === 'webhook' ? newSecret() : null
  return database.transaction(async (transaction) => {
    const { secretKeys } = transaction
    const [next] = await transaction.query<{ id: bigint }>(selectNextId)
    const id = (next as { id: bigint }).id
    const storedTarget = secretKeys.encrypt('notification_channel.target', id, target)
    const storedSecret = secretKeys.encrypt('notification_channel.secret', id, secret)
    const [added] = await transaction.query<{ id: bigint }>(insertChannel, [
      ...[organizationId, name, format, storedTarget, allowPrivateNetwork, storedSecret, CHANNELS_MAX, id],
    ])
    if (added === undefined)
      refuseInput('organization', `does not exist, or has ${CHANNELS_MAX} channels already`)
    await recordChannel(transaction, actor, { id: added.id, organizationId }, 'notifications.added', {
      ...changesBetween({}, { format, target: recordedTarget(format, target) }),
    })
    return { id: added.id, secret }
  })
}

/** $1 channel id bigint. Another change of the channel waits until the transaction ends. */
const lockChannel = statement('lock-notification-channel')`
    select id, organization_id as "organizationId", name, format, target,
           allow_private_network as "allowPrivateNetwork", status
      from notification_channel where id = $1 for no key update`

type StoredChannel = NewChannel & { id: bigint; status: string } & Record<string, unknown>

/** $1 channel id bigint; $2 name text; $3 target text; $4 allow_private_network boolean */
const updateSettings = statement('update-notification-channel')`
    update notification_channel set name = $2, target = $3, allow_private_network = $4 where id = $1`

/** Messages that are not sent yet go to the new target. Throws NotVisible. */
export function updateChannel(
  database: Transactions,
  actor: Actor,
  id: bigint,
  changes: Partial<ChannelSettings>,
  limits: ChannelLimits,
): Promise<void> {
  return changeChannel(database, actor, id, 'notifications.updated', async (transaction, stored) => {
    const before = {
      name: stored.name,
      target: stored.target,
      allowPrivateNetwork: stored.allowPrivateNetwork,
    }
    const after: ChannelSettings = { ...before, ...changes }
    // An operator of some organizations keeps what one of all organizations has set, but not for another target.
    const isMoved = after.target !== before.target
    if (after.allowPrivateNetwork && (isMoved || !before.allowPrivateNetwork)) requirePrivateNetwork(actor)
    after.target = checkSettings(after, stored.format, limits)
    const { name, target, allowPrivateNetwork } = after
    const storedTarget = transaction.secretKeys.encrypt('notification_channel.target', id, target)
    await transaction.query(updateSettings, [id, name, storedTarget, allowPrivateNetwork])
    const shown = (settings: ChannelSettings) => ({
      ...settings,
      target: recordedTarget(stored.format, settings.target),
    })
    return { ...(isMoved && { target: 'replaced' }), ...changesBetween(shown(before), shown(after)) }
  })
}

/** $1 channel id bigint; $2 status text */
const setStatus = statement('set-notification-channel-status')`
    update notification_channel set status = $2 where id = $1`

/** Nothing new is collected for a paused channel. What waited for it is sent if it resumes within a day. Throws NotVisible. */
export function setChannelStatus(
  database: Transactions,
  actor: Actor,
  id: bigint,
  status: 'active' | 'paused',
): Promise<void> {
  const action = status === 'active' ? 'notifications.resumed' : 'notifications.paused'
  return changeChannel(database, actor, id, action, async (transaction) => {
    await transaction.query(setStatus, [id, status])
    return {}
  })
}

/** $1 channel id bigint */
const pauseActive = statement('pause-gone-notification-channel')`
    update notification_channel set status = 'paused' where id = $1 and status = 'active'
    returning organization_id as "organizationId"`

/** The receiver has responded with 410. */
export function pauseGone(database: Transactions, id: bigint): Promise<void> {
  return database.transaction(async (transaction) => {
    const [paused] = await transaction.query<{ organizationId: OrganizationId | null }>(pauseActive, [id])
    if (paused === undefined) return
    const changes = { status: ['active', 'paused'], response: 410 }
    await recordChannel(transaction, SERVICE, { id, ...paused }, 'notifications.paused', changes)
  })
}

/** $1 channel id bigint */
const deleteChannel = statement('delete-notification-channel')`delete from notification_channel where id = $1`

/** Deletes the channel with its messages. Throws NotVisible. */
export function removeChannel(database: Transactions, actor: Actor, id: bigint): Promise<void> {
  return changeChannel(
    database,
    actor,
    id,
    'notifications.removed',
    async (transaction, { name, format, target }) => {
      await transaction.query(deleteChannel, [id])
      return { name: [name, null], format: [format, null], target: [recordedTarget(format, target), null] }
    },
  )
}

/** Records what `work` changed, in its transaction. */
function changeChannel(
  database: Transactions,
  actor: Actor,
  id: bigint,
  action: Action,
  work: (transaction: Queryable, stored: StoredChannel) => Promise<Changes>,
): Promise<void> {
  return database.transaction(async (transaction) => {
    const [locked] = await transaction.query<StoredChannel>(lockChannel, [id])
    if (locked === undefined || !seesOrganization(actor, locked.organizationId))
      throw new NotVisible('channel', id)
    // A target that no key reads can be replaced.
    const target =
      transaction.secretKeys.decryptOrNull('notification_channel.target', id, locked.target) ?? ''
    const stored = { ...locked, target }
    await recordChannel(transaction, actor, stored, action, await work(transaction, stored))
  })
}

export function recordChannel(
  transaction: Queryable,
  actor: Actor,
  { id, organizationId }: { id: bigint; organizationId: OrganizationId | null },
  action: Action,
  changes: Changes,
): Promise<void> {
  return recordActivity(transaction, actor, {
    action,
    object: { kind: 'notification_channel', id },
    organizationId,
    changes,
  })
}

/** Only operators of all organizations see channels about all organizations. */
const seesOrganization = ({ organizationIds }: Actor, id: OrganizationId | null): boolean =>
  organizationIds === null || (id !== null && organizationIds.includes(id))

/** The response to a test would show what answers in the network of the service. */
function requirePrivateNetwork({ organizationIds }: Actor): void {
  if (organizationIds !== null)
    refuseInput(
      'allowPrivateNetwork',
      'reaches the private network: only operators of all organizations may set this',
    )
}

/** Returns the target as it is stored. Throws `invalid_input`. */
function checkSettings(
  settings: ChannelSettings,
  format: ChannelFormat,
  { own, canEmail }: ChannelLimits,
): string {
  if (format === 'email') {
    if (!canEmail) refuseInput('format', 'needs a mail server: set SMTP_URL and restart the service')
    if (!isEmailAddress(settings.target)) refuseInput('target', 'must be the address of a mailbox')
    return settings.target
  }
  try {
    const url = readEndpointUrl(settings.target, settings.allowPrivateNetwork)
    if (isOwnUrl(url, own)) refuseInput('target', "is this service's own URL: a loop")
    return url.href
  } catch (error) {
    if (error instanceof RefusedUrl) refuseInput('target', error.message)
    throw error
  }
}
