/** GET /api/live: server-sent events with newly committed events. */
import type { FastifyInstance, FastifyReply } from 'fastify'
import { describeFault } from '../../http/error-envelope.ts'
import { Shares } from '../../http/shares.ts'
import { type Static, Type } from '../../http/typebox.ts'
import { checker } from '../../http/validate.ts'
import type { Queryable } from '../../postgres/statement.ts'
import type { OrganizationIds } from '../actor.ts'
import { lastEventId, prepareTail, readTail, type TailEvent } from '../events.ts'
import { toJson } from '../format.ts'
import { type ConsoleParts, Id, refuseBusy, ShortText, sharesOf } from './parts.ts'
import { operatorOf, VIEWER } from './session.ts'

const ALL_STREAMS = { key: 'all', max: 20, refusal: refuseBusy }
/** A browser opens 6 connections over HTTP/1.1. */
const STREAMS_OF_ONE_MAX = { operator: 6, organization: 10 }
/** Bytes buffered for a slow reader. Further frames are counted as skipped. */
const BACKLOG_MAX_BYTES = 256 * 1024
/** Proxies often cut a silent response after 60 s. */
const HEARTBEAT_MS = 15_000

const filterSchema = Type.Object(
  { account: Type.Optional(Id), source: Type.Optional(ShortText), kind: Type.Optional(ShortText) },
  { additionalProperties: false },
)
const checkFilter = checker(filterSchema)
type Filter = Static<typeof filterSchema>

export function liveRoutes(api: FastifyInstance, { database, requireRole }: ConsoleParts): void {
  const tail = new LiveTail(database, (error) =>
    api.log.warn(describeFault(error, false), 'the live tail cannot be read'),
  )
  const streams = new Set<Stream>()
  const shares = new Shares()
  api.addHook('preClose', async () => {
    for (const stream of streams) stream.end()
  })

  api.get('/live', VIEWER, (request, reply) => {
    const filter = checkFilter(request.query)
    const end = shares.begin([...sharesOf(operatorOf(request), STREAMS_OF_ONE_MAX), ALL_STREAMS])
    const stream = new Stream(reply, filter)
    streams.add(stream)
    // Each frame is for the operator of this moment. The page opens a stream again if the check failed with the database.
    const unwatch = tail.watch((frame) =>
      requireRole(request).then(
        ({ organizationIds }) => stream.send(frame, organizationIds),
        () => stream.end(),
      ),
    )
    const heartbeat = setInterval(() => stream.beat(), HEARTBEAT_MS)
    heartbeat.unref()
    stream.onEnd(() => {
      clearInterval(heartbeat)
      unwatch()
      end()
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

  send({ events, skipped }: TailFrame, visible: OrganizationIds): void {
    const matching = events.filter(
      (event) => (visible === null || visible.includes(event.organizationId)) && matches(event, this.#filter),
    )
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

// Follows stored events with one poller for all streams. It reads only committed rows, so it delays no flush.

const POLL_MS = 1_000
/** Rows read per poll, newest first. Further rows are counted as skipped. */
const ROWS_PER_POLL = 500
/**
 * Ids do not commit in order. A transaction of a request ends within 5 s, so all ids above the greatest one of 5 s ago are read again.
 */
const OVERLAP_POLLS = 6
/** Newest events that a page shows before the next ones arrive. */
const RECENT_MAX = 50
/** Polls between two summaries of the index. */
const PREPARE_POLLS = 10

export interface TailFrame {
  /** oldest first */
  events: TailEvent[]
  /** approximate number of events that are in no frame */
  skipped: number
}

type Watcher = (frame: TailFrame) => Promise<void>

export class LiveTail {
  readonly #database: Queryable
  readonly #onError: (error: Error) => void
  readonly #watchers = new Set<Watcher>()
  #recent: TailEvent[] = []
  #isPolling = false

  constructor(database: Queryable, onError: (error: Error) => void) {
    this.#database = database
    this.#onError = onError
  }

  /** @returns ends the watch; the poller stops after the last one */
  watch(watcher: Watcher): () => void {
    this.#watchers.add(watcher)
    if (this.#recent.length > 0) void watcher({ events: this.#recent, skipped: 0 })
    if (!this.#isPolling) void this.#poll()
    return () => void this.#watchers.delete(watcher)
  }

  async #poll(): Promise<void> {
    this.#isPolling = true
    let seen: Seen | null = null
    let mustPrepare = true
    for (let poll = 1; this.#watchers.size > 0; poll += 1) {
      try {
        if (mustPrepare) await prepareTail(this.#database).catch(() => undefined)
        seen ??= new Seen((await lastEventId(this.#database)) - BigInt(RECENT_MAX))
        const frame = seen.newOf(await readTail(this.#database, seen.readAfter, ROWS_PER_POLL))
        mustPrepare = poll % PREPARE_POLLS === 0
        this.#recent = [...this.#recent, ...frame.events].slice(-RECENT_MAX)
        await Promise.all(Array.from(this.#watchers, (watcher) => watcher(frame)))
      } catch (error) {
        mustPrepare = true
        this.#onError(error as Error)
      }
      await new Promise((resolve) => setTimeout(resolve, POLL_MS).unref())
    }
    this.#isPolling = false
    // The next watch would show a gap.
    this.#recent = []
  }
}

/** Tracks which events were already in a frame. */
class Seen {
  /** The greatest id at each of the last polls, oldest first. */
  readonly #greatest: bigint[]
  readonly #ids = new Set<bigint>()

  constructor(lastId: bigint) {
    this.#greatest = [lastId]
  }

  get readAfter(): bigint {
    return this.#greatest[0] as bigint
  }

  newOf(rows: TailEvent[]): TailFrame {
    const fresh = rows.filter(({ id }) => !this.#ids.has(id))
    const before = this.#greatest.at(-1) as bigint
    const greatest = fresh[0] !== undefined && fresh[0].id > before ? fresh[0].id : before
    // Ids have gaps, so this is an upper bound. It is only used if the rows did not fit.
    const passed = Number(greatest - before) - fresh.length
    const skipped = rows.length < ROWS_PER_POLL ? 0 : Math.max(0, passed)
    for (const { id } of fresh) this.#ids.add(id)
    this.#greatest.push(greatest)
    if (this.#greatest.length > OVERLAP_POLLS) this.#greatest.shift()
    for (const id of this.#ids) if (id <= this.readAfter) this.#ids.delete(id)
    return { events: fresh.reverse(), skipped }
  }
}
