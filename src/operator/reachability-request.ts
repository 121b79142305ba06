/** Requests GET PUBLIC_URL/api, and explains the response or the failure. */
import type { IncomingHttpHeaders, IncomingMessage } from 'node:http'
import { request as httpsRequest } from 'node:https'
import type { LookupFunction } from 'node:net'
import type { PeerCertificate, TLSSocket } from 'node:tls'
import { serviceName } from '../config/package.ts'
import type { Address } from '../endpoints/system-names.ts'
import { readStart } from '../http/read-start.ts'
import { METRICS_NOT_FOUND } from '../observability/metrics-page.ts'
import type { ReachabilityCode } from './reachability-texts.ts'

/** The response of this service has about 50 bytes. */
const BODY_MAX_BYTES = 16 * 1024
const HEADERS_MAX_BYTES = 16 * 1024
/** Renewal programs renew a certificate of 90 days 30 days before its end, and shorter ones after two thirds of their life. */
const SOON_MAX_MS = 14 * 86_400_000
const SOON_MAX_SHARE = 0.2

interface Outcome {
  code: ReachabilityCode
  detail: string
}

export interface RequestOptions {
  /** where to connect */
  addresses: Address[]
  authorities: readonly string[]
  deadline: AbortSignal
}

interface Progress {
  isConnected: boolean
  certificate: PeerCertificate | null
}

/** Resolves with what is wrong, or with `reached`. */
export async function requestService(url: URL, options: RequestOptions): Promise<Outcome[]> {
  const progress: Progress = { isConnected: false, certificate: null }
  const result = await getService(url, options, progress).catch((error) =>
    explainFailure(error, url, progress),
  )
  return [...examineCertificate(progress.certificate), result]
}

const outcome = (code: ReachabilityCode, detail: string | number = ''): Outcome => ({
  code,
  detail: String(detail),
})

function getService(
  url: URL,
  { addresses, authorities, deadline }: RequestOptions,
  progress: Progress,
): Promise<Outcome> {
  const lookup: LookupFunction = (_name, { all }, callback) => {
    const [first] = addresses
    if (all || first === undefined) callback(null, addresses)
    else callback(null, first.address, first.family)
  }
  return new Promise((resolve, reject) => {
    const request = httpsRequest(`${url.href.replace(/\/$/, '')}/api`, {
      headers: { accept: 'application/json', 'user-agent': serviceName },
      agent: false,
      ca: [...authorities],
      maxHeaderSize: HEADERS_MAX_BYTES,
      signal: deadline,
      lookup,
    })
    request.on('error', reject)
    // After an unrequested response 101, Node.js destroys the socket and emits neither a response nor an error.
    request.once('upgrade', (_response, socket) => {
      socket.destroy()
      reject(new Error('unexpected upgrade'))
    })
    request.once('socket', (socket) => {
      socket.once('connect', () => {
        progress.isConnected = true
      })
      socket.once('secureConnect', () => {
        progress.certificate = (socket as TLSSocket).getPeerCertificate()
      })
    })
    request.once('response', (response) => {
      readStart(response, BODY_MAX_BYTES).then(
        (body) => resolve(explainResponse(url, response, body)),
        reject,
      )
    })
    request.end()
  })
}

function explainResponse(url: URL, { statusCode = 0, headers }: IncomingMessage, body: string): Outcome {
  const json = parseObject(body)
  if (statusCode === 200 && json?.name === serviceName) return outcome('reached')
  if (statusCode === 404 && isOwnError(json))
    return headers['content-security-policy'] === undefined
      ? outcome('path_unknown', `${url.pathname.replace(/\/$/, '')}/api`)
      : outcome('console_reached')
  if (body.trim() === METRICS_NOT_FOUND) return outcome('metrics_reached')
  if (statusCode >= 300 && statusCode < 400) return outcome('redirected', targetOf(headers, url))
  if ([401, 403, 407, 511].includes(statusCode)) return outcome('login_required', statusCode)
  if (statusCode >= 500) return outcome('service_unavailable', statusCode)
  if (statusCode < 300 && headers['content-type']?.includes('html')) return outcome('web_page')
  return outcome('other_service', statusCode)
}

function parseObject(text: string): Record<string, unknown> | null {
  try {
    const value: unknown = JSON.parse(text)
    return typeof value === 'object' && value !== null ? (value as Record<string, unknown>) : null
  } catch {
    return null
  }
}

/** Whether this is the error envelope of this service. */
const isOwnError = (json: Record<string, unknown> | null): boolean =>
  json?.statusCode === 404 && typeof json.requestId === 'string'

/** Without path and query, where login pages have tokens. */
function targetOf({ location = '' }: IncomingHttpHeaders, url: URL): string {
  return URL.canParse(location, url.href) ? new URL(location, url.href).origin : '?'
}

function explainFailure(error: NodeJS.ErrnoException, url: URL, progress: Progress): Outcome {
  const code = error.name === 'AbortError' || error.name === 'TimeoutError' ? 'ETIMEDOUT' : error.code
  // Codes come from Node.js, OpenSSL or the operating system. Messages may contain text of the server.
  const reason = /^[A-Z][A-Z0-9_]{1,63}$/.test(code ?? '') ? String(code) : 'EUNKNOWN'
  if (!progress.isConnected) return outcome('not_connected', reason)
  if (progress.certificate !== null) return outcome('no_response', reason)
  switch (reason) {
    case 'DEPTH_ZERO_SELF_SIGNED_CERT':
    case 'SELF_SIGNED_CERT_IN_CHAIN':
    case 'CERT_UNTRUSTED':
      return outcome('certificate_untrusted')
    case 'UNABLE_TO_VERIFY_LEAF_SIGNATURE':
    case 'UNABLE_TO_GET_ISSUER_CERT':
    case 'UNABLE_TO_GET_ISSUER_CERT_LOCALLY':
      return outcome('certificate_incomplete')
    case 'ERR_TLS_CERT_ALTNAME_INVALID':
      return outcome('certificate_wrong_name', url.hostname)
    case 'CERT_HAS_EXPIRED':
      return outcome('certificate_expired')
    case 'CERT_NOT_YET_VALID':
      return outcome('certificate_not_yet_valid')
    default:
      return outcome('tls_failed', reason)
  }
}

function examineCertificate(certificate: PeerCertificate | null): Outcome[] {
  if (certificate === null) return []
  const [fromMs, toMs] = [Date.parse(certificate.valid_from), Date.parse(certificate.valid_to)]
  const soonMs = Math.min(SOON_MAX_MS, (toMs - fromMs) * SOON_MAX_SHARE)
  if (!(toMs - Date.now() < soonMs)) return []
  return [outcome('certificate_expires_soon', new Date(toMs).toISOString().slice(0, 10))]
}
