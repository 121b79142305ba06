import type { FastifyReply } from 'fastify'
import { AppError } from '../errors.ts'
import { ownerShare, readerShare, type TextParts } from '../http/streamer.ts'
import type { OrganizationIds } from '../operators/actor.ts'
import type { ConsoleParts } from './parts.ts'
import { operatorOf } from './session.ts'

interface Download {
  /** whose data the file has */
  organizationIds: OrganizationIds
  fileName: string
  mediaType: string
  /** Stores the entry of the activity log, before the first part is read. It is not called for a download that is refused. */
  record?: () => Promise<void>
  read: () => TextParts
}

/** Sends a file to an operator, part by part, for as long as the operator may use the route and sees the organizations. */
export function sendDownload(
  reply: FastifyReply,
  { streamer, requireRole }: Pick<ConsoleParts, 'streamer' | 'requireRole'>,
  { organizationIds, fileName, mediaType, record, read }: Download,
): Promise<FastifyReply> {
  const { operatorId, name } = operatorOf(reply.request)
  const reader = {
    // A team shares CONSOLE_TOKEN, and its only stream.
    shares: [
      readerShare(`operator ${operatorId ?? name}`),
      ...(organizationIds ?? []).map((id) => ownerShare('organization', id)),
    ],
    check: async () => {
      const operator = await requireRole(reply.request)
      if (!includesAll(operator.organizationIds, organizationIds)) throw new AppError('forbidden')
    },
  }
  return streamer.send(reply, mediaType, reader, async function* () {
    await record?.()
    reply.header('content-disposition', `attachment; filename="${fileName}"`)
    yield* read()
  })
}

const includesAll = (seen: OrganizationIds, ids: OrganizationIds): boolean =>
  seen === null || ids?.every((id) => seen.includes(id)) === true
