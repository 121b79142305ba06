import type { FastifyReply } from 'fastify'
import type { TextParts } from '../../http/streamer.ts'
import type { Operator } from '../actor.ts'
import { type ConsoleParts, readerOf } from './parts.ts'

interface Download {
  fileName: string
  mediaType: string
  /** Stores the entry of the activity log, before the first part is read. It is not called for a download that is refused. */
  record: () => Promise<void>
  read: () => TextParts
}

/** Sends a file to an operator, part by part. */
export function sendDownload(
  reply: FastifyReply,
  { streamer }: Pick<ConsoleParts, 'streamer'>,
  operator: Operator,
  { fileName, mediaType, record, read }: Download,
): Promise<FastifyReply> {
  return streamer.send(reply, mediaType, readerOf(operator), async function* () {
    await record()
    reply.header('content-disposition', `attachment; filename="${fileName}"`)
    yield* read()
  })
}
