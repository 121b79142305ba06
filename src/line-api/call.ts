/** One call of the messaging platform's API: limits on time and size, retries where they are safe, faults in a closed union. */
import { setTimeout as sleep } from 'node:timers/promises'
import { platformCall } from '../observability/facts.ts'
import type { Secret } from '../secret.ts'

/** One attempt. The platform answers in a fraction of a second. */
const ATTEMPT_TIMEOUT_MS = 3_000
/** All attempts of a call together: a caller's own 10 s must hold what comes before and after, too. */
const CALL_TIMEOUT_MS = 6_000
const ATTEMPTS = 3
/** Pauses between attempts are random between 0 and this, doubled each time: callers who failed together part. */
const PAUSE_MAX_MS = 200
/** A platform that asks for a longer pause is not waited for: whoever called decides what to do meanwhile. */
const RETRY_AFTER_MAX_WAIT_MS = 1_000
/** Bytes. The largest answer is a page of 1,000 followers, at most 72 bytes each. */
const ANSWER_MAX_BYTES = 128 * 1024
/** Characters. What is shorter is no secret, and may well be part of a name. */
const SECRET_MIN_LENGTH = 8
/** What callers are told when the platform names no time of its own. */
const RETRY_AFTER_SECONDS = 5
/** A platform that names a longer time is believed no further. */
const RETRY_AFTER_MAX_SECONDS = 3_600

export type PlatformFault =
  /** neither an access token nor channel id and secret are stored */
  | { type: 'no_credentials' }
  /** the stored token cannot even be sent: a line break was copied with it, for example */
  | { type: 'malformed_token' }
  /** the platform issues no token for this channel id and secret */
  | { type: 'refused_credentials'; status: number }
  /** the platform understood and said no: 401 a bad token, 403 not allowed, 404 no such thing */
  | { type: 'refused'; status: number }
  /** away, slow, limiting, or answering something that is none of its answers */
  | { type: 'unavailable'; retryAfterSeconds: number }

export type PlatformResult<T> = { ok: true; value: T } | { ok: false; fault: PlatformFault }

export const refused = (status: number): { ok: false; fault: PlatformFault } => ({
  ok: false,
  fault: { type: 'refused', status },
})

export const UNAVAILABLE = {
  ok: false,
  fault: { type: 'unavailable', retryAfterSeconds: RETRY_AFTER_SECONDS },
} as const

export interface Call {
  method: 'GET' | 'POST'
  path: string
  token?: Secret
  form?: URLSearchParams
  /** what was sent and must not come back in what is read, whatever the platform answers */
  secrets: Secret[]
  /** repeating it does no harm */
  isRepeatable: boolean
  /** gives up earlier than the call's own limits */
  signal?: AbortSignal | undefined
}

/** Calls the platform, again where that is safe and may help. Never throws; a value is any JSON at all. */
export function callPlatform(baseUrl: string, call: Call): Promise<PlatformResult<unknown>> {
  const facts = { method: call.method, path: pathPattern(call.path) }
  return platformCall.run(facts, () => callWithRetry(baseUrl, call))
}

/** `/v2/bot/group/:id/member/:id`: without people, groups and parameters. */
function pathPattern(path: string): string {
  return path.replace(/\?.*/, '').replace(/(?<=\/(profile|group|room|member)\/)[^/]+/g, ':id')
}

async function callWithRetry(baseUrl: string, call: Call): Promise<PlatformResult<unknown>> {
  const deadlineMs = Date.now() + CALL_TIMEOUT_MS
  for (let attempt = 1; ; attempt += 1) {
    const timeoutMs = Math.min(ATTEMPT_TIMEOUT_MS, deadlineMs - Date.now())
    const { result, pauseMs } = await attemptCall(baseUrl, call, timeoutMs)
    const mayHelp = !result.ok && result.fault.type === 'unavailable'
    if (!mayHelp || !call.isRepeatable || attempt === ATTEMPTS) return result
    const pause = pauseMs ?? Math.random() * PAUSE_MAX_MS * 2 ** (attempt - 1)
    if (pause > RETRY_AFTER_MAX_WAIT_MS || Date.now() + pause >= deadlineMs) return result
    await sleep(pause, undefined, { signal: call.signal }).catch(() => undefined)
    if (call.signal?.aborted) return result
  }
}

async function attemptCall(
  baseUrl: string,
  { method, path, token, form, secrets, signal }: Call,
  timeoutMs: number,
): Promise<{ result: PlatformResult<unknown>; pauseMs?: number }> {
  // Not AbortSignal.any: a signal that lives as long as the process would keep a little of every call for ever.
  const controller = new AbortController()
  const abort = () => controller.abort()
  const timer = setTimeout(abort, Math.max(0, timeoutMs))
  signal?.addEventListener('abort', abort, { once: true })
  if (signal?.aborted) abort()
  try {
    const response = await fetch(baseUrl + path, {
      method,
      headers: token ? { authorization: `Bearer ${token.reveal()}` } : {},
      ...(form ? { body: form } : {}),
      signal: controller.signal,
      redirect: 'error',
    })
    const text = await Promise.race([readLimited(response), whenAborted(controller.signal)])
    if (response.ok) return { result: { ok: true, value: parse(text, secrets) } }
    if (response.status >= 500 || response.status === 429 || response.status === 408) {
      const named = retryAfterSeconds(response)
      const fault = { type: 'unavailable', retryAfterSeconds: named ?? RETRY_AFTER_SECONDS } as const
      return { result: { ok: false, fault }, ...(named === null ? {} : { pauseMs: named * 1000 }) }
    }
    // Words of something that stands between: of the platform they would be no answer to anything asked here.
    if (response.status < 400 || [407, 451].includes(response.status)) return { result: UNAVAILABLE }
    return { result: refused(response.status) }
  } catch {
    // No network, no answer in time, too long an answer, no JSON, a token that is no header: the error's words
    // may quote what was sent, so they go no further.
    return { result: UNAVAILABLE }
  } finally {
    clearTimeout(timer)
    signal?.removeEventListener('abort', abort)
  }
}

/** Node 20 never ends the reading of what says gzip and is not, if the connection ends with it, whatever is aborted. */
function whenAborted(signal: AbortSignal): Promise<never> {
  return new Promise((_, reject) => {
    const abort = () => reject(new Error('the answer was given up'))
    if (signal.aborted) abort()
    else signal.addEventListener('abort', abort, { once: true })
  })
}

/** Reads the body and gives up, closing the connection, as soon as it is longer than any answer of the platform. */
async function readLimited(response: Response): Promise<string> {
  const chunks: Uint8Array[] = []
  let size = 0
  for await (const chunk of response.body ?? []) {
    size += chunk.byteLength
    if (size > ANSWER_MAX_BYTES) throw new Error('the answer is too long')
    chunks.push(chunk)
  }
  return Buffer.concat(chunks).toString('utf8')
}

/**
 * Texts come out so that PostgreSQL can store them (neither the character 0 nor half a surrogate pair), and without what
 * was sent in confidence.
 */
function parse(text: string, secrets: Secret[]): unknown {
  const hidden = secrets.map((secret) => secret.reveal()).filter(({ length }) => length >= SECRET_MIN_LENGTH)
  const clean = (field: string) =>
    hidden.reduce(
      (rest, secret) => rest.replaceAll(secret, '[secret]'),
      field.replaceAll('\0', '').toWellFormed(),
    )
  return JSON.parse(text, (_, value: unknown) => (typeof value === 'string' ? clean(value) : value))
}

/** Seconds, or a date as HTTP writes it. */
function retryAfterSeconds(response: Response): number | null {
  const header = response.headers.get('retry-after')
  if (header === null) return null
  const seconds = /^\d+$/.test(header) ? Number(header) : Math.ceil((Date.parse(header) - Date.now()) / 1000)
  return seconds > 0 ? Math.min(seconds, RETRY_AFTER_MAX_SECONDS) : null
}
