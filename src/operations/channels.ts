/** Notification channels: where messages about broken accounts are sent. The activity log contains only the hosts of their targets. */
import { isEmailAddress } from '../config/parsers.ts'
import { isOwnUrl, RefusedUrl, readEndpointUrl } from '../endpoints/address.ts'
import { newSecret } from '../endpoints/messages.ts'
import { requirePrivateNetwork } from '../endpoints/settings.ts'
import { NotVisible } from '../errors.ts'
import { INT64_MAX } from '../http/path-id.ts'
import { Type } from '../http/typebox.ts'
import { refuseInput } from '../http/validate.ts'
import type { OrganizationId } from '../ids.ts'
import { changesBetween } from '../operators/activity.ts'
import type { Actor } from '../operators/actor.ts'
import { statement } from '../postgres/statement.ts'
import { LANGUAGES } from '../watch/languages.ts'
import {
  CHANNEL_FORMATS,
  type ChannelFormat,
  type ChannelSettings,
  type ChannelSummary,
  findChannel,
  listChannels,
  recordedTarget,
} from '../watch/notifications/channels.ts'
import { listNotifications } from '../watch/notifications/history.ts'
import { AllowPrivateNetwork, Default, DisplayName, Id, orNull, partial, Url } from './fields.ts'
import { type Noun, operationsOf, type Services } from './operation.ts'

/** Of one organization, and of all organizations together: every message is sent once per channel. */
const CHANNELS_MAX = 20

type AddedChannel = { id: bigint; secret: string | null }

type Channel = ChannelSettings & {
  id: bigint
  organizationId: OrganizationId | null
  format: ChannelFormat
  status: string
}

/** $1 channel id bigint. Another change of the channel waits until the transaction ends. */
const lockChannel = statement('lock-notification-channel')`
    select id, organization_id as "organizationId", name, format, target, language,
           allow_private_network as "allowPrivateNetwork", status
      from notification_channel where id = $1 for no key update`

const CHANNEL: Noun<Channel> = {
  kind: 'notification_channel',
  word: 'channel',
  plural: 'notifications',
  find: async (database, actor, id) => {
    const [locked] = await database.query<Channel>(lockChannel, [id])
    if (locked === undefined || !seesOrganization(actor, locked.organizationId))
      throw new NotVisible('channel', id)
    // A target that no key reads can be replaced.
    const target = database.secretKeys.decryptOrNull('notification_channel.target', id, locked.target)
    return { ...locked, target: target ?? '' }
  },
}
const { add, change } = operationsOf(CHANNEL, 'ownUrls', 'canEmail')

/** A read takes no lock, and neither does a test, which has no transaction. */
const SHOWN: Noun<ChannelSummary> = {
  ...CHANNEL,
  find: (database, { organizationIds }, id) => findChannel(database, organizationIds, id),
}
const { read, list, call } = operationsOf(SHOWN, 'canEmail', 'channelTester')

/** Only operators of all organizations see channels about all organizations. */
const seesOrganization = ({ organizationIds }: Actor, id: OrganizationId | null): boolean =>
  organizationIds === null || (id !== null && organizationIds.includes(id))

/** Returns no row if the organization ($1, null: all) does not exist or has $7 channels. */
const insertChannel = statement('insert-notification-channel')`
    insert into notification_channel (id, organization_id, name, format, target, allow_private_network, secret, language)
    select $8, $1, $2, $3, $4, $5, $6, $9
     where (select count(*) from notification_channel where organization_id is not distinct from $1::bigint) < $7
       and ($1 is null or exists (select from organization where id = $1))
    returning id`

/** The secrets are encrypted for the id of their row. */
const selectNextId = statement('next-id-notification-channel')`
    select nextval(pg_get_serial_sequence('notification_channel', 'id')) as id`

const updateSettings = statement('update-notification-channel')`
    update notification_channel set name = $2, target = $3, allow_private_network = $4, language = $5 where id = $1`

const setStatus = statement('set-notification-channel-status')`
    update notification_channel set status = $2 where id = $1`

const deleteChannel = statement('delete-notification-channel')`delete from notification_channel where id = $1`

/** Returns the target as it is stored. Throws `invalid_input`. */
function checkTarget(
  { target, allowPrivateNetwork, language }: ChannelSettings,
  format: ChannelFormat,
  { ownUrls, canEmail }: Pick<Services, 'ownUrls' | 'canEmail'>,
): string {
  if (format === 'webhook' && language !== 'en')
    refuseInput('language', 'must be en for webhook: programs read the codes of its messages')
  if (format === 'email') {
    if (!canEmail) refuseInput('format', 'needs a mail server: set SMTP_URL and restart the service')
    if (!isEmailAddress(target)) refuseInput('target', 'must be the address of a mailbox')
    return target
  }
  try {
    const url = readEndpointUrl(target, allowPrivateNetwork)
    if (isOwnUrl(url, ownUrls())) refuseInput('target', "is this service's own URL: a loop")
    return url.href
  } catch (error) {
    if (error instanceof RefusedUrl) refuseInput('target', error.message)
    throw error
  }
}

const SETTINGS = {
  // The URL of a chat's webhook is a credential.
  target: Object.assign(
    Url('URL of the webhook, or address of the mailbox; - reads it from standard input'),
    { secret: true },
  ),
  name: DisplayName,
  language: Type.Enum([...LANGUAGES], { description: 'language of the messages' }),
  allowPrivateNetwork: AllowPrivateNetwork,
}

export const CHANNELS = {
  list: read({
    name: 'channel.list',
    does: 'list notification channels',
    run: async ({ database, actor, services: { canEmail } }) => ({
      channels: await listChannels(database, actor.organizationIds),
      canEmail,
    }),
  }),

  show: read({
    name: 'channel.show',
    does: 'see a notification channel',
    run: async ({ target }) => ({ channel: target }),
  }),

  messages: list({
    name: 'channel.messages',
    does: 'see the messages of a channel',
    run: ({ database, target }, { after, limit }) =>
      listNotifications(database, target.id, { beforeId: after ?? INT64_MAX, limit }),
  }),

  /** Only its result contains the secret of a webhook. */
  add: add({
    name: 'channel.add',
    does: 'add a notification channel',
    help: 'add a channel and print its id and, for webhook, its secret, which is not shown again',
    records: 'notifications.added',
    input: {
      format: Type.Enum([...CHANNEL_FORMATS], {
        description: 'slack: Slack, Mattermost, Google Chat and others; webhook: signed JSON',
      }),
      target: SETTINGS.target,
      organization: Default(orNull(Id('only accounts of this organization (default: all)')), null),
      name: Default(SETTINGS.name, ''),
      language: Default(SETTINGS.language, 'en'),
      allowPrivateNetwork: Default(SETTINGS.allowPrivateNetwork, false),
    },
    run: async ({ database, actor, services, input }) => {
      const { organization: organizationId, format, name, allowPrivateNetwork, language } = input
      if (!seesOrganization(actor, organizationId))
        refuseInput('organization', 'must be one of your organizations')
      if (allowPrivateNetwork) requirePrivateNetwork(actor)
      const target = checkTarget({ ...input, target: input.target.trim() }, format, services)
      const secret = format === 'webhook' ? newSecret() : null
      const [next] = await database.query<{ id: bigint }>(selectNextId)
      const { id } = next as { id: bigint }
      const { secretKeys } = database
      const storedTarget = secretKeys.encrypt('notification_channel.target', id, target)
      const storedSecret = secretKeys.encrypt('notification_channel.secret', id, secret)
      const added = await database.query(insertChannel, [
        organizationId,
        name,
        format,
        storedTarget,
        allowPrivateNetwork,
        storedSecret,
        CHANNELS_MAX,
        id,
        language,
      ])
      if (added.length === 0)
        refuseInput('organization', `does not exist, or has ${CHANNELS_MAX} channels already`)
      const settings = { name, format, target: recordedTarget(format, target), language, allowPrivateNetwork }
      const result: AddedChannel = { id, secret }
      return { result, target: { id, organizationId }, changes: changesBetween({}, settings) }
    },
  }),

  update: change({
    name: 'channel.update',
    does: 'change a notification channel',
    help: 'change a channel; waiting messages are sent to the new target; the format cannot change',
    records: 'notifications.updated',
    input: partial(SETTINGS),
    run: async ({ database, actor, target: { id, format, ...stored }, services, input }) => {
      const { name, allowPrivateNetwork, language } = stored
      const before: ChannelSettings = { name, target: stored.target, allowPrivateNetwork, language }
      const after = { ...before, ...input }
      // An operator of some organizations keeps what one of all organizations has set, but not for another target.
      const isMoved = after.target !== before.target
      if (after.allowPrivateNetwork && (isMoved || !before.allowPrivateNetwork)) requirePrivateNetwork(actor)
      after.target = checkTarget({ ...after, target: after.target.trim() }, format, services)
      const storedTarget = database.secretKeys.encrypt('notification_channel.target', id, after.target)
      await database.query(updateSettings, [
        id,
        after.name,
        storedTarget,
        after.allowPrivateNetwork,
        after.language,
      ])
      const shown = (settings: ChannelSettings) => ({
        ...settings,
        target: recordedTarget(format, settings.target),
      })
      const changes = changesBetween(shown(before), shown(after))
      return { changes: isMoved ? { target: 'replaced', ...changes } : changes }
    },
  }),

  test: call({
    name: 'channel.test',
    does: 'test a notification channel',
    records: 'notifications.tested',
    run: async ({ database, target, services }) => {
      const result = await services.channelTester.test(database, target.id)
      return { result, changes: { status: result.status, durationMs: result.durationMs } }
    },
  }),

  /** Nothing new is collected for a paused channel. What waited for it is sent if it resumes within a day. */
  pause: change({
    name: 'channel.pause',
    does: 'pause a notification channel',
    help: 'stop sending; nothing new is collected for the channel',
    records: 'notifications.paused',
    run: async ({ database, target: { id, status } }) => {
      await database.query(setStatus, [id, 'paused'])
      return { changes: changesBetween({ status }, { status: 'paused' }) }
    },
  }),

  resume: change({
    name: 'channel.resume',
    does: 'resume a notification channel',
    help: 'send again, beginning with what has waited for less than a day',
    records: 'notifications.resumed',
    status: 'active',
    run: async ({ database, target: { id, status } }) => {
      await database.query(setStatus, [id, 'active'])
      return { changes: changesBetween({ status }, { status: 'active' }) }
    },
  }),

  remove: change({
    name: 'channel.remove',
    does: 'remove a notification channel',
    help: 'remove a channel and its messages',
    records: 'notifications.removed',
    run: async ({ database, target: { id, name, format, target } }) => {
      await database.query(deleteChannel, [id])
      return {
        changes: {
          name: [name, null],
          format: [format, null],
          target: [recordedTarget(format, target), null],
        },
      }
    },
  }),
}
