/** GET /api/live: server-sent events with newly committed events. */
import type { FastifyInstance, FastifyReply } from 'fastify'
import { AppError } from '../../errors.ts'
import { describeFault } from '../../http/error-envelope.ts'
import { type Static, Type } from '../../http/typebox.ts'
import { checker } from '../../http/validate.ts'
import type { TailEvent } from '../events.ts'
import { toJson } from '../format.ts'
import { Id, ShortText } from './input.ts'
import { LiveTail, type TailFrame } from './live-tail.ts'
import type { ConsoleParts } from './parts.ts'
import type { Sessions } from './session.ts'

/** Open streams per instance. */
const WATCHERS_MAX = 20
/** Bytes buffered for a slow reader. Further frames are counted as skipped. */
const BACKLOG_MAX_BYTES = 256 * 1024
/** Proxies often cut a silent response after 60 s. A stream outlives its session by this time at most. */
const HEARTBEAT_MS = 15_000

const filterSchema = Type.Object(
  { account: Type.Optional(Id), source: Type.Optional(ShortText), kind: Type.Optional(ShortText) },
  { additionalProperties: false },
)
const checkFilter = checker(filterSchema)
type Filter = Static<typeof filterSchema>

export function liveRoutes(
  api: FastifyInstance,
  { database, heartbeatMs = HEARTBEAT_MS }: ConsoleParts,
  { isOpen }: Pick<Sessions, 'isOpen'>,
): void {
  const tail = new LiveTail(database, (error) =>
    api.log.warn(describeFault(error, false), 'the live tail cannot be read'),
  )
  const streams = new Set<Stream>()
  api.addHook('preClose', async () => {
    for (const stream of streams) stream.end()
  })

  api.get('/live', (request, reply) => {
    const filter = checkFilter(request.query)
    if (tail.watcherCount >= WATCHERS_MAX) throw new AppError('busy', { retryAfterSeconds: 10 })
    const stream = new Stream(reply, filter)
    streams.add(stream)
    const unwatch = tail.watch((frame) => stream.send(frame))
    const heartbeat = setInterval(async () => {
      // While the database does not respond, there is nothing to send.
      if (await isOpen(request).catch(() => true)) stream.beat()
      else stream.end()
    }, heartbeatMs)
    heartbeat.unref()
    stream.onEnd(() => {
      clearInterval(heartbeat)
      unwatch()
      streams.delete(stream)
    })
  })
}

class Stream {
  readonly #response: FastifyReply['raw']
  readonly #filter: Filter
  #unsent = 0

  constructor(reply: FastifyReply, filter: Filter) {
    this.#filter = filter
    reply.hijack()
    this.#response = reply.raw
    this.#response.writeHead(200, {
      ...reply.getHeaders(),
      'content-type': 'text/event-stream; charset=utf-8',
      // Without this header, nginx buffers the response.
      'x-accel-buffering': 'no',
    } as Record<string, string>)
    // Without a listener, a broken connection would end the process.
    this.#response.on('error', () => undefined)
    this.#write(': watching\n\n')
  }

  beat(): void {
    this.#write(': still here\n\n')
  }

  send({ events, skipped }: TailFrame): void {
    const matching = events.filter((event) => matches(event, this.#filter))
    if (this.#response.writableLength > BACKLOG_MAX_BYTES) {
      this.#unsent += matching.length + skipped
      return
    }
    const missed = this.#unsent + skipped
    if (matching.length === 0 && missed === 0) return
    this.#unsent = 0
    this.#write(`data: ${toJson({ events: matching, skipped: missed })}\n\n`)
  }

  /** The poller may send a frame between the end of the response and its close. */
  #write(text: string): void {
    if (!this.#response.writableEnded) this.#response.write(text)
  }

  end(): void {
    this.#response.end()
  }

  onEnd(listener: () => void): void {
    this.#response.once('close', listener)
  }
}

function matches(event: TailEvent, { account, source, kind }: Filter): boolean {
  return (
    (account === undefined || String(event.accountId) === account) &&
    (source === undefined || event.source === source) &&
    (kind === undefined || event.kind === kind)
  )
}
