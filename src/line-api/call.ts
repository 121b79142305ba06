/** Calls the messaging platform's API with time and size limits, and retries where they are safe. */
import { setTimeout as sleep } from 'node:timers/promises'
import type { Secret } from '../config/secret.ts'
import { isObject } from '../http/body.ts'
import type { Fetch } from '../http/egress-proxy.ts'
import { readStart } from '../http/listen.ts'

export interface CallTimeouts {
  attemptMs: number
  callMs: number
}

/** The platform responds in a fraction of a second. A call must end within the caller's own limit of 10 s. */
export const CALL_TIMEOUTS: CallTimeouts = { attemptMs: 3_000, callMs: 6_000 }

const ATTEMPTS = 3
/** Backoff with full jitter: a random pause up to this, doubled after each attempt. */
const PAUSE_MAX_MS = 200
/** The largest response is a page of followers: 1,000 × 72 bytes. */
const RESPONSE_MAX_BYTES = 128 * 1024
/** Characters. A shorter text is not a secret and may be part of a name. */
const SECRET_MIN_LENGTH = 8
/** Characters of the platform's reason that are kept. LINE's reasons have about 100. */
const REASON_MAX_LENGTH = 300
const RETRY_AFTER_DEFAULT_SECONDS = 5
const RETRY_AFTER_MAX_SECONDS = 3_600

export interface Rejection {
  status: number
  /** The platform's message, in one line without secrets. Null: it cannot be read. */
  reason: string | null
}

export type PlatformFault =
  /** The account stores neither an access token nor channel id and secret. */
  | { type: 'no_credentials' }
  /** The stored token cannot be sent in an HTTP header, for example because it contains a line break. */
  | { type: 'malformed_token' }
  /** The platform issues no token for the channel id and secret. Status 400 or 401: they are wrong. */
  | ({ type: 'refused_credentials' } & Rejection)
  /** The platform rejects the request: 401 bad token, 403 not allowed, 404 not found. */
  | ({ type: 'refused' } & Rejection)
  /** The platform is unreachable, slow or rate limiting, or its response is not valid. */
  | { type: 'unavailable'; retryAfterSeconds: number }

export type PlatformResult<T> = { ok: true; value: T } | { ok: false; fault: PlatformFault }

export const refused = (
  status: number,
  reason: string | null = null,
): { ok: false; fault: PlatformFault } => ({ ok: false, fault: { type: 'refused', status, reason } })

/** The end of a message: `(status 403): Not available for your account`. */
export function statusAndReason({ status, reason }: Rejection): string {
  return reason === null ? `(status ${status})` : `(status ${status}): ${reason}`
}

export const UNAVAILABLE = {
  ok: false,
  fault: { type: 'unavailable', retryAfterSeconds: RETRY_AFTER_DEFAULT_SECONDS },
} as const

export interface Platform {
  baseUrl: string
  timeouts: CallTimeouts
  fetch: Fetch
}

export interface Call {
  method: 'GET' | 'POST' | 'PUT' | 'DELETE'
  path: string
  token?: Secret
  form?: URLSearchParams | FormData
  json?: unknown
  /** Secrets of the request, which are removed from the response. */
  secrets: Secret[]
  /** Idempotent, so a failed attempt may be repeated. */
  isRepeatable: boolean
  signal?: AbortSignal | undefined
}

/** Never rejects. The value is unchecked JSON. After a 429 or a Retry-After, the caller decides when to retry. */
export async function callPlatform(
  { baseUrl, timeouts, fetch }: Platform,
  call: Call,
): Promise<PlatformResult<unknown>> {
  const deadlineMs = Date.now() + timeouts.callMs
  for (let attempt = 1; ; attempt += 1) {
    const timeoutMs = Math.min(timeouts.attemptMs, deadlineMs - Date.now())
    const { result, mayRepeat } = await attemptCall(fetch, baseUrl, call, timeoutMs)
    if (!mayRepeat || !call.isRepeatable || attempt >= ATTEMPTS) return result
    await sleep(Math.random() * PAUSE_MAX_MS * 2 ** (attempt - 1))
    if (call.signal?.aborted || Date.now() >= deadlineMs) return result
  }
}

interface Attempt {
  result: PlatformResult<unknown>
  mayRepeat: boolean
}

async function attemptCall(
  fetch: Fetch,
  baseUrl: string,
  { method, path, token, form, json, secrets, signal }: Call,
  timeoutMs: number,
): Promise<Attempt> {
  // AbortSignal.any leaks memory into a long-lived source signal with every call.
  const controller = new AbortController()
  const abort = () => controller.abort()
  const timer = setTimeout(abort, Math.max(0, timeoutMs))
  signal?.addEventListener('abort', abort, { once: true })
  if (signal?.aborted) abort()
  try {
    const response = await fetch(baseUrl + path, {
      method,
      headers: {
        ...(token ? { authorization: `Bearer ${token.reveal()}` } : {}),
        ...(json === undefined ? {} : { 'content-type': 'application/json' }),
      },
      ...(json === undefined ? {} : { body: JSON.stringify(json) }),
      ...(form ? { body: form } : {}),
      signal: controller.signal,
      redirect: 'error',
    })
    const text = await Promise.race([
      readStart(response.body, RESPONSE_MAX_BYTES),
      whenAborted(controller.signal),
    ])
    if (response.ok) return { result: { ok: true, value: parse(text, secrets) }, mayRepeat: false }
    return refusedAttempt(response, text, secrets)
  } catch {
    // Network error, timeout or invalid JSON: the page of a proxy, or the beginning of an oversized response. The error's message may
    // contain a secret, so it is dropped.
    return { result: UNAVAILABLE, mayRepeat: true }
  } finally {
    clearTimeout(timer)
    signal?.removeEventListener('abort', abort)
  }
}

function refusedAttempt(response: Response, text: string, secrets: Secret[]): Attempt {
  const { status } = response
  if (status >= 500 || status === 429 || status === 408) {
    const requested = readRetryAfter(response)
    const retryAfterSeconds = requested ?? RETRY_AFTER_DEFAULT_SECONDS
    return {
      result: { ok: false, fault: { type: 'unavailable', retryAfterSeconds } },
      mayRepeat: requested === null && status !== 429,
    }
  }
  const body = parse(text, secrets)
  // The platform returns no such status for these calls, and gives its reason in JSON. A proxy may do otherwise.
  if (status < 400 || [407, 451].includes(status) || !isObject(body))
    return { result: UNAVAILABLE, mayRepeat: true }
  return { result: refused(status, readReason(body)), mayRepeat: false }
}

function readReason(body: Record<string, unknown>): string | null {
  const message = body.message ?? body.error_description
  if (typeof message !== 'string') return null
  const line = message.replace(/[\p{C}\p{Z}]+/gu, ' ').trim()
  return line.slice(0, REASON_MAX_LENGTH).toWellFormed() || null
}

/** In Node 20, reading a body with a false `content-encoding: gzip` can hang and ignore the abort signal. */
function whenAborted(signal: AbortSignal): Promise<never> {
  return new Promise((_, reject) => {
    const abort = () => reject(new Error('the call was aborted'))
    if (signal.aborted) abort()
    else signal.addEventListener('abort', abort, { once: true })
  })
}

/** Parses JSON. Removes secrets, and characters that PostgreSQL cannot store (U+0000 and unpaired surrogates), from all texts. */
function parse(text: string, secrets: Secret[]): unknown {
  const hidden = secrets.map((secret) => secret.reveal()).filter(({ length }) => length >= SECRET_MIN_LENGTH)
  const clean = (field: string) =>
    hidden.reduce(
      (rest, secret) => rest.replaceAll(secret, '[secret]'),
      field.replaceAll('\0', '').toWellFormed(),
    )
  // LINE's response to a DELETE has no body.
  if (text === '') return null
  return JSON.parse(text, (_, value: unknown) => (typeof value === 'string' ? clean(value) : value))
}

function readRetryAfter(response: Response): number | null {
  const header = response.headers.get('retry-after')
  if (header === null) return null
  const seconds = /^\d+$/.test(header) ? Number(header) : Math.ceil((Date.parse(header) - Date.now()) / 1000)
  return seconds > 0 ? Math.min(seconds, RETRY_AFTER_MAX_SECONDS) : null
}
