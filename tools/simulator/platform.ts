/**
 * A messaging platform on loopback that speaks the part of LINE's API which this service calls. The demo, the tests and
 * `oa-audience simulate` use it: LINE forbids load tests through its own. It can be told to misbehave.
 */
import { randomBytes } from 'node:crypto'
import { createServer, type IncomingMessage } from 'node:http'
import type { AddressInfo } from 'node:net'
import { text } from 'node:stream/consumers'
import { signLine } from '../../src/intake/line/signature.ts'
import { Secret } from '../../src/secret.ts'
import { lineBody, randomUserId } from './events.ts'
import { MISBEHAVIOURS, type Misbehaviour, misbehaviourOf } from './misbehaviour.ts'

export interface SimulatedAccount {
  channelId: string
  channelSecret: string
  channelAccessToken: string
  botUserId: string
  basicId: string
  displayName: string
}

export interface SimulatedPerson {
  displayName: string
  pictureUrl?: string
  language?: string
  /** follows the account; who does not has no profile for it */
  isFriend: boolean
}

export interface SimulatedPlatform {
  url: string
  account: SimulatedAccount
  /** the last calls: `GET /v2/bot/info` */
  calls: string[]
  /** by user id, in the order in which the list of followers names them */
  people: Map<string, SimulatedPerson>
  /** members of each group or room, by its id */
  groups: Map<string, Set<string>>
  settings: {
    /** verified or premium: may list its followers */
    isVerified: boolean
    /** what the LINE Developers Console has as the webhook's address; null: none is set */
    webhook: { endpoint: string; active: boolean } | null
  }
  /** replaces all answers, or those to the calls that `only` matches, until it is taken back with null */
  misbehave: (how: Misbehaviour | null, only?: RegExp) => void
  close: () => Promise<void>
}

interface Reply {
  status: number
  body: unknown
}

/** Calls remembered; a long simulation must not grow. */
const CALLS_KEPT = 10_000
const FOLLOWERS_PAGE_DEFAULT = 300
const FOLLOWERS_PAGE_MAX = 1_000
const TESTS_PER_HOUR = 60
/** How long the platform waits for a webhook's answer. */
const WEBHOOK_TIMEOUT_MS = 2_000

/** An official account that nobody has, with random credentials of the documented shapes. */
export function randomAccount(displayName: string): SimulatedAccount {
  return {
    channelId: String(2_000_000_000 + (randomBytes(4).readUInt32BE() % 1_000_000)),
    channelSecret: randomBytes(16).toString('hex'),
    channelAccessToken: randomBytes(96).toString('base64'),
    botUserId: randomUserId(),
    basicId: `@${randomBytes(4).toString('hex')}`,
    displayName,
  }
}

export async function simulatePlatform(
  account = randomAccount('Corner Coffee'),
  port = 0,
): Promise<SimulatedPlatform> {
  const calls: string[] = []
  let misbehaviour: Misbehaviour | null = null
  let misbehavesOnly = /./
  const state: State = {
    account,
    tokens: new Set([account.channelAccessToken]),
    people: new Map(),
    groups: new Map(),
    settings: { isVerified: true, webhook: null },
    testsAtMs: [],
  }
  const server = createServer((request, response) => {
    const call = `${request.method} ${request.url}`
    if (call === 'PUT /simulate/misbehaviour') {
      text(request).then(
        (name) => {
          const wanted = name.trim()
          const found = misbehaviourOf(wanted)
          if (found === null && wanted !== '') {
            response.writeHead(400).end(`one of ${Object.keys(MISBEHAVIOURS).join(', ')}, or nothing\n`)
            return
          }
          misbehaviour = found
          response.writeHead(200).end(`${wanted || 'well-behaved'}\n`)
        },
        () => response.destroy(),
      )
      return
    }
    calls.push(call)
    if (calls.length > CALLS_KEPT) calls.shift()
    if (misbehaviour !== null && misbehavesOnly.test(call)) {
      misbehaviour(request, response)
      return
    }
    answer(state, request).then(
      ({ status, body }) =>
        response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(body)),
      // a caller who hung up
      () => response.destroy(),
    )
  })
  await new Promise<void>((resolve, reject) => {
    server.once('error', reject)
    server.listen(port, '127.0.0.1', resolve)
  })
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    account,
    calls,
    people: state.people,
    groups: state.groups,
    settings: state.settings,
    misbehave: (how, only = /./) => {
      misbehaviour = how
      misbehavesOnly = only
    },
    close: () =>
      new Promise((resolve) => {
        server.close(() => resolve())
        server.closeAllConnections()
      }),
  }
}

interface State extends Pick<SimulatedPlatform, 'account' | 'people' | 'groups' | 'settings'> {
  tokens: Set<string>
  /** when webhooks were tested */
  testsAtMs: number[]
}

const NOT_FOUND: Reply = { status: 404, body: { message: 'Not found' } }

async function answer(state: State, request: IncomingMessage): Promise<Reply> {
  if (!URL.canParse(request.url ?? '', 'http://localhost')) return NOT_FOUND
  const url = new URL(request.url ?? '', 'http://localhost')
  const call = `${request.method} ${url.pathname}`
  if (call === 'POST /oauth2/v3/token') return issueToken(state, await text(request))
  if (!state.tokens.has(request.headers.authorization?.replace(/^Bearer /, '') ?? '')) {
    return {
      status: 401,
      body: {
        message: 'Authentication failed. Confirm that the access token in the authorization header is valid.',
      },
    }
  }
  if (call === 'GET /v2/bot/info') return { status: 200, body: botInfo(state.account) }
  if (call === 'GET /v2/bot/followers/ids') return followerIds(state, url.searchParams)
  if (call === 'GET /v2/bot/channel/webhook/endpoint') {
    if (state.settings.webhook) return { status: 200, body: state.settings.webhook }
    return { status: 404, body: { message: 'Webhook endpoint not found' } }
  }
  if (call === 'POST /v2/bot/channel/webhook/test') return testWebhook(state)
  const [, place, first = '', second] =
    /^GET \/v2\/bot\/(?:(profile)|group|room)\/([^/]+)(?:\/member\/([^/]+))?$/.exec(call) ?? []
  if (place === 'profile') return profile(state, first, state.people.get(first)?.isFriend === true)
  if (second !== undefined) return profile(state, second, state.groups.get(first)?.has(second) === true)
  return NOT_FOUND
}

function issueToken({ account, tokens }: State, form: string): Reply {
  const fields = new URLSearchParams(form)
  const known =
    fields.get('client_id') === account.channelId && fields.get('client_secret') === account.channelSecret
  if (!known) {
    return {
      status: 400,
      body: { error: 'invalid_request', error_description: "Invalid 'client_credentials'." },
    }
  }
  const token = randomBytes(48).toString('base64')
  tokens.add(token)
  return { status: 200, body: { token_type: 'Bearer', access_token: token, expires_in: 900 } }
}

function botInfo(account: SimulatedAccount) {
  return {
    userId: account.botUserId,
    basicId: account.basicId,
    displayName: account.displayName,
    chatMode: 'bot',
    markAsReadMode: 'auto',
  }
}

function profile({ people }: State, userId: string, isVisible: boolean): Reply {
  const person = people.get(userId)
  if (person === undefined || !isVisible) return NOT_FOUND
  const { isFriend: _, ...shown } = person
  return { status: 200, body: { userId, ...shown } }
}

/** The continuation token is the number of the next person: opaque to callers, as LINE's is. */
function followerIds({ people, settings }: State, query: URLSearchParams): Reply {
  if (!settings.isVerified) {
    return { status: 403, body: { message: 'Access to this API is not available for your account' } }
  }
  const limit = Math.min(Number(query.get('limit') ?? FOLLOWERS_PAGE_DEFAULT), FOLLOWERS_PAGE_MAX)
  const start = query.get('start')
  const from = start === null ? 0 : Number(Buffer.from(start, 'base64url').toString())
  if (!Number.isSafeInteger(from)) {
    return { status: 400, body: { message: 'Invalid start param' } }
  }
  const ids = [...people.keys()]
  const page = ids.slice(from, from + limit).filter((id) => people.get(id)?.isFriend)
  const next = from + limit < ids.length ? Buffer.from(String(from + limit)).toString('base64url') : undefined
  return { status: 200, body: { userIds: page, ...(next && { next }) } }
}

async function testWebhook({ account, settings, testsAtMs }: State): Promise<Reply> {
  if (settings.webhook === null) return { status: 404, body: { message: 'Webhook endpoint not found' } }
  if (testsAtMs.filter((atMs) => atMs > Date.now() - 3_600_000).length >= TESTS_PER_HOUR) {
    return { status: 429, body: { message: 'You have reached your hourly limit' } }
  }
  testsAtMs.push(Date.now())
  const body = lineBody(account.botUserId, [])
  const outcome = await fetch(settings.webhook.endpoint, {
    method: 'POST',
    headers: {
      'content-type': 'application/json',
      'x-line-signature': signLine(body, new Secret(account.channelSecret)),
    },
    body,
    signal: AbortSignal.timeout(WEBHOOK_TIMEOUT_MS),
  }).then(
    ({ ok, status }) => ({
      success: ok,
      statusCode: status,
      reason: ok ? 'OK' : 'ERROR_STATUS_CODE',
      detail: String(status),
    }),
    (error: Error) => {
      const reason = error.name === 'TimeoutError' ? 'REQUEST_TIMEOUT' : 'COULD_NOT_CONNECT'
      return { success: false, statusCode: 0, reason, detail: reason }
    },
  )
  return { status: 200, body: { ...outcome, timestamp: new Date().toISOString() } }
}
