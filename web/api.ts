/** Requests to the service. Every response is JSON. Ids are strings. */

import type { ErrorDetail } from '../src/errors.ts'
import { noteServerTime } from './clock.ts'

/** The JSON form of a value of the service. */
export type Json<T> = T extends bigint
  ? string
  : T extends Array<infer Item>
    ? Array<Json<Item>>
    : T extends object
      ? { [Name in keyof T]: Json<T[Name]> }
      : T

export class ApiError extends Error {
  readonly status: number
  /** the invalid fields of the request */
  readonly details: ErrorDetail[]
  readonly requestId: string | null
  readonly retryAfterSeconds: number | null

  constructor(
    message: string,
    {
      status,
      details = [],
      requestId,
      retryAfter,
    }: { status: number; details?: ErrorDetail[]; requestId?: string; retryAfter: string | null },
  ) {
    super(message)
    this.status = status
    this.details = details
    this.requestId = requestId ?? null
    this.retryAfterSeconds = retryAfter === null ? null : Number(retryAfter)
  }
}

/** Called when the session has ended. */
let onSignedOut: () => void = () => undefined
export function listenForSignOut(listener: () => void): void {
  onSignedOut = listener
}

export const get = <T>(path: string, signal?: AbortSignal): Promise<T> =>
  request<T>('GET', path, undefined, signal)
export const post = <T>(path: string, body?: unknown): Promise<T> =>
  request<T>('POST', path, body === undefined ? undefined : ['application/json', JSON.stringify(body)])
/** Sends the content of a file. */
export const postText = <T>(path: string, text: string): Promise<T> =>
  request<T>('POST', path, ['text/csv', text])
/** Sends a part of a file. */
export const postBytes = <T>(path: string, bytes: Blob): Promise<T> =>
  request<T>('POST', path, [undefined, bytes])

async function request<T>(
  method: string,
  path: string,
  body: [type: string | undefined, content: string | Blob] | undefined,
  signal?: AbortSignal,
): Promise<T> {
  const [type, sent = null] = body ?? []
  const response = await fetch(path, {
    method,
    headers: { 'x-console': '1', ...(type === undefined ? {} : { 'content-type': type }) },
    body: sent,
    signal: signal ?? null,
  }).catch(rejectAsUnreachable)
  noteServerTime(response)
  if (response.status === 204) return undefined as T
  // An error response may come from a proxy, with any body. If the body of a successful one is missing, the connection was cut off
  // or the request was aborted.
  const content = response.json().catch(response.ok ? rejectAsUnreachable : () => ({}))
  const json = (await content) as { message?: string; details?: ErrorDetail[]; requestId?: string }
  if (response.ok) return json as T
  if (response.status === 401 && path.startsWith('/api/')) onSignedOut()
  throw new ApiError(json.message ?? '', {
    status: response.status,
    ...(json.details === undefined ? {} : { details: json.details }),
    ...(json.requestId === undefined ? {} : { requestId: json.requestId }),
    retryAfter: response.headers.get('retry-after'),
  })
}

function rejectAsUnreachable(error: Error): never {
  if (error.name === 'AbortError') throw error
  throw new ApiError('', { status: 0, retryAfter: null })
}

/** Builds `?a=1&b=2` from the values that are set. */
export function queryOf(values: Record<string, string | null | undefined>): string {
  const query = new URLSearchParams()
  for (const [name, value] of Object.entries(values)) if (value) query.set(name, value)
  const text = query.toString()
  return text === '' ? '' : `?${text}`
}
