/** Notification channels: settings, the messages of each, and test messages. */
import type { FastifyInstance } from 'fastify'
import { bodyBytes, parseUtf8Json } from '../../http/body.ts'
import { Type } from '../../http/typebox.ts'
import { checker, Nullable, StorableText } from '../../http/validate.ts'
import { CHANNEL_FORMATS, findChannel, listChannels } from '../notifications/channels.ts'
import { listNotifications, testChannel } from '../notifications/history.ts'
import {
  addChannel,
  type ChannelLimits,
  removeChannel,
  setChannelStatus,
  updateChannel,
} from '../notifications/manage-channels.ts'
import { type ConsoleParts, Id, idOrNull, pageOf, READ_LIMIT, requireId } from './parts.ts'
import { MANAGER, operatorOf, VIEWER } from './session.ts'

/** Longer URLs are refused by common servers. */
const Target = StorableText({ minLength: 1, maxLength: 2_048 })
const SETTINGS = {
  name: Type.Optional(StorableText({ maxLength: 256 })),
  allowPrivateNetwork: Type.Optional(Type.Boolean()),
}
const checkNew = checker(
  Type.Object(
    { organization: Nullable(Id), format: Type.Enum([...CHANNEL_FORMATS]), target: Target, ...SETTINGS },
    { additionalProperties: false },
  ),
)
const checkChanges = checker(
  Type.Object({ target: Type.Optional(Target), ...SETTINGS }, { additionalProperties: false }),
)
const checkMessages = checker(Type.Object({ before: Type.Optional(Id) }, { additionalProperties: false }))

const DEFAULTS = { name: '', allowPrivateNetwork: false }

type OfId = { Params: { id: string } }

export function notificationRoutes(api: FastifyInstance, parts: ConsoleParts): void {
  const { database, config, channelTester } = parts
  const canEmail = config.smtpUrl !== null

  api.get('/notifications', VIEWER, async (request) => ({
    channels: await listChannels(database, operatorOf(request).organizationIds),
    canEmail,
  }))

  api.get<OfId>('/notifications/:id', VIEWER, async (request) => {
    const { organizationIds } = operatorOf(request)
    return { channel: await findChannel(database, organizationIds, requireId(request.params.id)) }
  })

  api.get<OfId>('/notifications/:id/messages', VIEWER, async (request) => {
    const { before } = checkMessages(request.query)
    const { organizationIds } = operatorOf(request)
    const page = { beforeId: idOrNull(before), limit: READ_LIMIT }
    const id = requireId(request.params.id)
    const messages = await listNotifications(database, organizationIds, id, page)
    const { items, next } = pageOf(messages)
    return { messages: items, next }
  })

  settingsRoutes(api, parts)

  api.post<OfId>('/notifications/:id/test', MANAGER, async (request) =>
    testChannel(database, operatorOf(request), requireId(request.params.id), channelTester),
  )
}

function settingsRoutes(api: FastifyInstance, { database, config, ownUrls }: ConsoleParts): void {
  const limits = (): ChannelLimits => ({ own: ownUrls(), canEmail: config.smtpUrl !== null })

  // Only this response contains the secret of a webhook.
  api.post('/notifications', MANAGER, async (request) => {
    const { organization, ...given } = checkNew(parseUtf8Json(bodyBytes(request)))
    const channel = { ...DEFAULTS, ...given, organizationId: idOrNull(organization ?? undefined) }
    return addChannel(database, operatorOf(request), channel, limits())
  })

  api.post<OfId>('/notifications/:id/update', MANAGER, async (request, reply) => {
    const changes = checkChanges(parseUtf8Json(bodyBytes(request)))
    const id = requireId(request.params.id)
    await updateChannel(database, operatorOf(request), id, changes, limits())
    return reply.code(204).send()
  })

  for (const [action, status] of [
    ['pause', 'paused'],
    ['resume', 'active'],
  ] as const) {
    api.post<OfId>(`/notifications/:id/${action}`, MANAGER, async (request, reply) => {
      const id = requireId(request.params.id)
      await setChannelStatus(database, operatorOf(request), id, status)
      return reply.code(204).send()
    })
  }

  api.post<OfId>('/notifications/:id/remove', MANAGER, async (request, reply) => {
    await removeChannel(database, operatorOf(request), requireId(request.params.id))
    return reply.code(204).send()
  })
}
