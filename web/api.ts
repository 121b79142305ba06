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
  /** 0: the service did not respond */
  status = 0
  /** the invalid fields of the request */
  details: ErrorDetail[] = []
  requestId: string | null = null
  retryAfterSeconds = 0

  constructor(message: string, given: Partial<Omit<ApiError, keyof Error>>) {
    super(message)
    Object.assign(this, given)
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
  const json = await content
  if (response.ok) return json as T
  if (response.status === 401 && path.startsWith('/api/')) onSignedOut()
  const { message = '', details = [], requestId = null } = json as Partial<ApiError>
  const retryAfterSeconds = Number(response.headers.get('retry-after'))
  throw new ApiError(message, { status: response.status, details, requestId, retryAfterSeconds })
}

function rejectAsUnreachable(error: Error): never {
  if (error.name === 'AbortError') throw error
  throw new ApiError('', {})
}

/** Builds `?a=1&b=2` from the values that are set. */
export function queryOf(values: Record<string, string | null | undefined>): string {
  const query = new URLSearchParams()
  for (const [name, value] of Object.entries(values)) if (value) query.set(name, value)
  const text = query.toString()
  return text === '' ? '' : `?${text}`
}
