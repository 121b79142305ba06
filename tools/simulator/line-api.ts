/** The simulated platform's responses, with the paths, statuses and shapes of LINE's API. */
import { randomBytes } from 'node:crypto'
import type { IncomingMessage } from 'node:http'
import { text } from 'node:stream/consumers'
import { Secret } from '../../src/config/secret.ts'
import { signLine } from '../../src/line-api/line-signature.ts'
import { answerAudience } from './audiences.ts'
import { lineBody } from './events.ts'
import type { PlatformState, SimulatedAccount } from './state.ts'
import { followerStatistics, messageQuota, tokenLifetime } from './statistics.ts'

const FOLLOWERS_PAGE_DEFAULT = 300
const FOLLOWERS_PAGE_MAX = 1_000
const HOUR_MS = 3_600_000
const TESTS_PER_HOUR = 60
/** LINE waits this long for the response of a webhook. */
const WEBHOOK_TIMEOUT_MS = 2_000

const ENDPOINT_MAX_LENGTH = 500

interface Reply {
  status: number
  body: unknown
}

const NOT_FOUND: Reply = { status: 404, body: { message: 'Not found' } }

const UNAUTHORIZED: Reply = {
  status: 401,
  body: {
    message: 'Authentication failed. Confirm that the access token in the authorization header is valid.',
  },
}
const INVALID_DATE: Reply = {
  status: 400,
  body: { message: "The value for the 'date' parameter is invalid" },
}
const NO_WEBHOOK: Reply = { status: 404, body: { message: 'Webhook endpoint not found' } }

/** Whose access token the request has. */
export function callerOf(states: PlatformState[], request: IncomingMessage): PlatformState | null {
  const token = request.headers.authorization?.replace(/^Bearer /, '') ?? ''
  return states.find(({ tokens }) => tokens.has(token)) ?? null
}

/** Rejects if the client disconnects before its request is complete. */
export async function answer(states: PlatformState[], request: IncomingMessage): Promise<Reply> {
  if (!URL.canParse(request.url ?? '', 'http://localhost')) return NOT_FOUND
  const url = new URL(request.url ?? '', 'http://localhost')
  const { pathname, searchParams } = url
  const call = `${request.method} ${pathname}`
  // Every account has the same keys of LINE Login.
  if (call === 'GET /oauth2/v2.1/certs') return { status: 200, body: states[0]?.login.certs() }
  if (call === 'POST /oauth2/v3/token') return issueToken(states, await text(request))
  if (call === 'POST /v2/oauth/verify') {
    const form = new URLSearchParams(await text(request))
    return tokenInfo(states, form.get('access_token'))
  }
  if (call === 'GET /oauth2/v2.1/verify') return tokenInfo(states, searchParams.get('access_token'))
  const state = callerOf(states, request)
  if (state === null) return UNAUTHORIZED
  switch (call) {
    case 'GET /v2/bot/info':
      return { status: 200, body: botInfo(state.account) }
    case 'GET /v2/bot/followers/ids':
      return followerIds(state, searchParams)
    case 'GET /v2/bot/channel/webhook/endpoint':
      return state.settings.webhook === null ? NO_WEBHOOK : { status: 200, body: state.settings.webhook }
    case 'PUT /v2/bot/channel/webhook/endpoint':
      return setWebhook(state, await text(request))
    case 'POST /v2/bot/channel/webhook/test':
      return testWebhook(state, await text(request))
    case 'GET /v2/bot/insight/followers': {
      const body = followerStatistics(state, searchParams.get('date'))
      return body === null ? INVALID_DATE : { status: 200, body }
    }
    case 'GET /v2/bot/message/quota':
      return { status: 200, body: messageQuota(state) }
    case 'GET /v2/bot/message/quota/consumption':
      return { status: 200, body: { totalUsage: state.settings.quota.used } }
    default:
      return (await answerAudience(state, request, url)) ?? findProfile(state, call)
  }
}

/** Profiles of followers by user id, or of the members of a group or room. */
function findProfile(state: PlatformState, call: string): Reply {
  const [, userId] = /^GET \/v2\/bot\/profile\/([^/]+)$/.exec(call) ?? []
  if (userId !== undefined) return profile(state, userId, state.people.get(userId)?.isFriend === true)
  const [, groupId = '', memberId] =
    /^GET \/v2\/bot\/(?:group|room)\/([^/]+)\/member\/([^/]+)$/.exec(call) ?? []
  if (memberId === undefined) return NOT_FOUND
  return profile(state, memberId, state.groups.get(groupId)?.has(memberId) === true)
}

function tokenInfo(states: PlatformState[], token: string | null): Reply {
  const body = states.map((state) => tokenLifetime(state, token)).find((found) => found !== null)
  if (body !== undefined) return { status: 200, body }
  return { status: 400, body: { error: 'invalid_request', error_description: 'access token expired' } }
}

function issueToken(states: PlatformState[], form: string): Reply {
  const fields = new URLSearchParams(form)
  const issuer = states.find(
    ({ account }) =>
      fields.get('client_id') === account.channelId && fields.get('client_secret') === account.channelSecret,
  )
  if (issuer === undefined) {
    return {
      status: 400,
      body: { error: 'invalid_request', error_description: "Invalid 'client_credentials'." },
    }
  }
  const token = randomBytes(48).toString('base64')
  issuer.tokens.add(token)
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

function profile({ people }: PlatformState, userId: string, isVisible: boolean): Reply {
  const person = people.get(userId)
  if (person === undefined || !isVisible) return NOT_FOUND
  const { isFriend: _, ...shown } = person
  return { status: 200, body: { userId, ...shown } }
}

/** The continuation token is the encoded index of the next person. Like LINE's, it is opaque to clients. */
function followerIds({ people, settings }: PlatformState, query: URLSearchParams): Reply {
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

function setWebhook({ settings }: PlatformState, body: string): Reply {
  const endpoint = endpointIn(body)
  if (endpoint === null || !isAcceptedUrl(endpoint)) {
    return { status: 400, body: { message: 'Invalid webhook endpoint URL' } }
  }
  const apply = () => {
    // A new URL does not switch "Use webhook" on.
    settings.webhook = { endpoint, active: settings.webhook?.active === true }
  }
  if (settings.propagationMs === 0) apply()
  else setTimeout(apply, settings.propagationMs).unref()
  return { status: 200, body: {} }
}

function isAcceptedUrl(endpoint: string): boolean {
  return (
    endpoint.length <= ENDPOINT_MAX_LENGTH &&
    URL.canParse(endpoint) &&
    new URL(endpoint).protocol === 'https:'
  )
}

/** Null if the body names none. */
function endpointIn(body: string): string | null {
  try {
    const { endpoint } = JSON.parse(body) as { endpoint?: unknown }
    return typeof endpoint === 'string' ? endpoint : null
  } catch {
    return null
  }
}

async function testWebhook({ account, settings, testsAtMs }: PlatformState, body: string): Promise<Reply> {
  const endpoint = endpointIn(body) ?? settings.webhook?.endpoint
  if (endpoint === undefined) return NO_WEBHOOK
  if (testsAtMs.filter((atMs) => atMs > Date.now() - HOUR_MS).length >= TESTS_PER_HOUR) {
    return { status: 429, body: { message: 'You have reached your hourly limit' } }
  }
  testsAtMs.push(Date.now())
  const { testOrigin } = settings
  const target = testOrigin === null ? endpoint : testOrigin + new URL(endpoint).pathname
  const outcome = await sendTestDelivery(account, target)
  return { status: 200, body: { ...outcome, timestamp: new Date().toISOString() } }
}

async function sendTestDelivery(account: SimulatedAccount, endpoint: string) {
  const body = lineBody(account.botUserId, [])
  const signature = signLine(body, new Secret(account.channelSecret))
  try {
    const { ok, status } = await fetch(endpoint, {
      method: 'POST',
      headers: { 'content-type': 'application/json', 'x-line-signature': signature },
      body,
      redirect: 'manual',
      signal: AbortSignal.timeout(WEBHOOK_TIMEOUT_MS),
    })
    const reason = ok ? 'OK' : 'ERROR_STATUS_CODE'
    return { success: ok, statusCode: status, reason, detail: String(status) }
  } catch (error) {
    const reason = (error as Error).name === 'TimeoutError' ? 'REQUEST_TIMEOUT' : 'COULD_NOT_CONNECT'
    return { success: false, statusCode: 0, reason, detail: reason }
  }
}
