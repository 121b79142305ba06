/**
 * Sends a test message to an endpoint and returns the request and the response. It uses the address checks, the resolver and the limits
 * of deliveries, but neither the queue nor the state of the endpoint, so it also works while the endpoint is paused.
 */
import type { SecretKeys } from '../config/secret-keys.ts'
import { AppError, requireVisible } from '../errors.ts'
import { type Queryable, type Row, statement } from '../postgres/statement.ts'
import { printableUrl, RefusedUrl } from './address.ts'
import { type Content, channelSecretOf, endpointSecrets, writeMessage } from './messages.ts'
import { type Message, post } from './post.ts'
import { HostResolver } from './resolver.ts'
import { SeenResponse } from './seen-response.ts'
import { readTarget } from './targets.ts'
import { TestLimit } from './test-limit.ts'

/** What an operator needs of a response. A receiver chooses its size. */
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
    /** there was more */
    isCut: boolean
  }
}

interface TestedRow extends Row {
  channel_oa_id: bigint
  url: string
  allow_private_network: boolean
  format: 'line' | 'members'
  secret: string | null
  previous_secret: string | null
  channel_secret: string | null
  bot_user_id: string | null
}

/** $1 endpoint id bigint */
const selectTested = statement('select-endpoint-for-test')`
    select p.channel_oa_id, p.url, p.allow_private_network, p.format, p.secret, p.previous_secret, a.channel_secret, a.bot_user_id
      from endpoint p join official_account a on a.id = p.channel_oa_id
     where p.id = $1`

export class EndpointTester {
  readonly #isOwnUrl: (url: URL) => boolean
  readonly #resolver: HostResolver
  readonly #limit = new TestLimit('endpoint')

  /** @param isOwnUrl whether a URL is one of this service's own: sending there would be a loop */
  constructor(isOwnUrl: (url: URL) => boolean, resolver = new HostResolver()) {
    this.#isOwnUrl = isOwnUrl
    this.#resolver = resolver
  }

  /**
   * Throws NotVisible, `invalid_input` without a secret to sign with, and `rate_limited` or `busy`
   * if too many tests were made or are being made.
   */
  async test(database: Queryable, id: bigint, nowMs = Date.now()): Promise<TestDelivery> {
    const [tested] = await database.query<TestedRow>(selectTested, [id])
    const row = requireVisible(tested, 'endpoint', id)
    const message = writeMessage(testContent(database.secretKeys, row, id, nowMs), nowMs)
    if (message === null) throw missingSecret(row)
    return this.#limit.run(id, () => this.#send(row, message))
  }

  async #send(row: TestedRow, message: Message): Promise<TestDelivery> {
    const startedAtMs = performance.now()
    const seen = new SeenResponse(BODY_MAX_BYTES)
    const target = readTarget(row.channel_oa_id, row, this.#isOwnUrl, this.#resolver)
    const open = async () => ({ message, release: () => undefined, whenLost: () => undefined })
    const response =
      target instanceof RefusedUrl
        ? { status: null, reason: target.message }
        : await post({ ...target, watch: (received) => seen.watch(received) }, open)
    const { status = null, reason = '' } = response ?? {}
    const durationMs = Math.ceil(performance.now() - startedAtMs)
    return {
      request: { url: printableUrl(row.url), ...message },
      response: { status, reason, durationMs, ...seen.result() },
    }
  }
}

function testContent(keys: SecretKeys, row: TestedRow, endpointId: bigint, nowMs: number): Content {
  if (row.format === 'line') {
    return {
      format: 'line',
      destination: row.bot_user_id,
      // As when LINE verifies a webhook URL.
      events: '',
      channelSecret: channelSecretOf(keys, row),
      replies: true,
      isRetry: false,
    }
  }
  return {
    format: 'members',
    id: `msg_test_${endpointId}_${nowMs}`,
    type: 'endpoint.test',
    data: `{"endpointId":"${endpointId}"}`,
    ...endpointSecrets(keys, endpointId, row),
  }
}

function missingSecret({ format, channel_oa_id: accountId }: TestedRow): AppError {
  const message =
    format === 'line'
      ? `account ${accountId} has no channel secret, which signs what its endpoints receive. Set the channel secret of the account first.`
      : 'the endpoint has no secret to sign with. Rotate its secret first.'
  return new AppError('invalid_input', { message })
}
