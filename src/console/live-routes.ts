/** GET /api/live: the newest events, for a page that asks again every second. */
import type { FastifyInstance } from 'fastify'
import { prepareTail, readTail, type TailEvent } from '../audience/events.ts'
import { type Static, Type } from '../http/typebox.ts'
import { checker } from '../http/validate.ts'
import type { Queryable } from '../postgres/statement.ts'
import { type ConsoleParts, Id, ShortText } from './parts.ts'
import { operatorOf, VIEWER } from './session.ts'

/** Events of one response. A page that asks every second shows more than anybody reads. */
const SHOWN_MAX = 100
/** Ids are read again by the next read, because they do not commit in order. */
const READ_MAX = 500
const READ_INTERVAL_MS = 1_000
const PREPARE_INTERVAL_MS = 10_000

const filterSchema = Type.Object(
  { account: Type.Optional(Id), source: Type.Optional(ShortText), kind: Type.Optional(ShortText) },
  { additionalProperties: false },
)
const checkFilter = checker(filterSchema)

export function liveRoutes(api: FastifyInstance, { database }: ConsoleParts): void {
  const tail = new Tail(database)
  api.get('/live', VIEWER, async (request) => {
    const filter = checkFilter(request.query)
    const { organizationIds } = operatorOf(request)
    const visible = (await tail.read()).filter(
      (event) =>
        (organizationIds === null || organizationIds.includes(event.organizationId)) &&
        matches(event, filter),
    )
    return { events: visible.slice(0, SHOWN_MAX) }
  })
}

function matches(event: TailEvent, { account, source, kind }: Static<typeof filterSchema>): boolean {
  return (
    (account === undefined || String(event.accountId) === account) &&
    (source === undefined || event.source === source) &&
    (kind === undefined || event.kind === kind)
  )
}

/** Everybody who watches shares one read per second of the events of all organizations. */
class Tail {
  readonly #database: Queryable
  #events: Promise<TailEvent[]> = Promise.resolve([])
  #readAtMs = Number.NEGATIVE_INFINITY
  #preparedAtMs = Number.NEGATIVE_INFINITY

  constructor(database: Queryable) {
    this.#database = database
  }

  /** The newest events first. */
  read(): Promise<TailEvent[]> {
    const now = performance.now()
    if (now - this.#readAtMs < READ_INTERVAL_MS) return this.#events
    this.#readAtMs = now
    this.#events = this.#load(now)
    return this.#events
  }

  async #load(now: number): Promise<TailEvent[]> {
    if (now - this.#preparedAtMs >= PREPARE_INTERVAL_MS) {
      this.#preparedAtMs = now
      await prepareTail(this.#database).catch(() => undefined)
    }
    return readTail(this.#database, READ_MAX)
  }
}
