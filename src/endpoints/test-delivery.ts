/** Sends a test message to an endpoint, apart from the queue and the state of the endpoint: it may be paused. */
import { LRUCache } from 'lru-cache'
import type { SecretKeys } from '../config/secret-keys.ts'
import { AppError, refuseRequest, requireVisible } from '../errors.ts'
import { Shares } from '../http/shares.ts'
import { type Queryable, statement } from '../postgres/statement.ts'
import { type AddressChecks, type EndpointAddress, printableUrl, type Route } from './address.ts'
import { type Content, MissingSecret, writeMessage } from './messages.ts'
import { type Message, sendNow } from './post.ts'
import { HostResolver } from './resolver.ts'
import { SeenResponse } from './response.ts'

/** What an operator needs of a response. An endpoint chooses its size. */
const BODY_MAX_BYTES = 4_096

export interface TestDelivery {
  request: {
    /** without a query string, which may be a token */
    url: string
    headers: Record<string, string>
    body: string
  }
  response: {
    /** null: there was no HTTP response */
    status: number | null
    /** why there was no response, otherwise empty */
    reason: string
    durationMs: number
    headers: Array<[name: string, value: string]>
    /** the beginning of the body as text */
    body: string
    isCut: boolean
  }
}

type TestedRow = Content & EndpointAddress

/** Without events, as when LINE verifies a webhook URL. $1 endpoint id bigint */
const selectTested = statement('select-endpoint-for-test')`
    select p.id as endpoint_id, p.channel_oa_id, p.url, p.allow_private_network, p.format, p.secret, p.previous_secret,
           a.channel_secret, a.bot_user_id as destination, '' as events, true as replies, null as "repliesTo", 1 as attempts,
           concat('msg_test_', p.id, '_', (extract(epoch from clock_timestamp()) * 1000)::bigint) as message_id,
           'endpoint.test' as type, concat('{"endpointId":"', p.id, '"}') as data
      from endpoint p join official_account a on a.id = p.channel_oa_id
     where p.id = $1`

export class EndpointTester {
  readonly #checks: AddressChecks
  readonly #limit = new TestLimit('endpoint')

  /** @param isOwnUrl whether a URL is one of this service's own: sending there would be a loop */
  constructor(isOwnUrl: (url: URL) => boolean, route: Route = new HostResolver()) {
    this.#checks = { isOwnUrl, route }
  }

  /** Throws NotVisible, `invalid_input` without a secret to sign with, and `rate_limited` or `busy`. */
  async test(database: Queryable, id: bigint): Promise<TestDelivery> {
    const [tested] = await database.query<TestedRow>(selectTested, [id])
    const row = requireVisible(tested, 'endpoint', id)
    const message = messageOf(database.secretKeys, row)
    return this.#limit.run(id, () => this.#send(row, message))
  }

  async #send(row: TestedRow, message: Message): Promise<TestDelivery> {
    const startedAtMs = performance.now()
    const seen = new SeenResponse(BODY_MAX_BYTES)
    const { status, reason } = await sendNow(row.channel_oa_id, row, message, this.#checks, seen)
    const durationMs = Math.ceil(performance.now() - startedAtMs)
    return {
      request: { url: printableUrl(row.url), ...message },
      response: { status, reason, durationMs, ...seen.result() },
    }
  }
}

function messageOf(keys: SecretKeys, row: TestedRow): Message {
  try {
    return writeMessage(keys, row, Date.now()) as Message
  } catch (error) {
    if (!(error instanceof MissingSecret)) throw error
    const message =
      row.format === 'line'
        ? `account ${row.channel_oa_id} has no channel secret, which signs what its endpoints receive. Set the channel secret of the account first.`
        : 'the endpoint has no secret to sign with. Rotate its secret first.'
    refuseRequest(message)
  }
}

const TEST_INTERVAL_MS = 2_000
/** Of one process and kind. A request may last 10 s, with a body of 20 KiB: see post.ts and response.ts. */
const TESTS_IN_FLIGHT_MAX = 8
const REMEMBERED_MAX = 10_000

/** Limits tests of endpoints, so that nobody uses them to load one. */
export class TestLimit {
  readonly #refusals: { repetition: () => AppError; further: () => AppError }
  readonly #recent = new LRUCache<bigint, true>({ max: REMEMBERED_MAX, ttl: TEST_INTERVAL_MS })
  readonly #shares = new Shares()

  constructor(what: 'endpoint' | 'channel') {
    const repetition = `This ${what} was tested a moment ago. Wait 2 seconds, then test it again.`
    const further = `Too many ${what}s are being tested. Wait 10 seconds, then try again.`
    this.#refusals = {
      repetition: () => new AppError('rate_limited', { message: repetition, retryAfterSeconds: 2 }),
      further: () => new AppError('busy', { message: further, retryAfterSeconds: 10 }),
    }
  }

  async run<T>(id: bigint, test: () => Promise<T>): Promise<T> {
    const { repetition, further } = this.#refusals
    if (this.#recent.has(id)) throw repetition()
    const end = this.#shares.begin([
      { key: String(id), max: 1, refusal: repetition },
      { key: 'all', max: TESTS_IN_FLIGHT_MAX, refusal: further },
    ])
    this.#recent.set(id, true)
    return test().finally(end)
  }
}
