/**
 * Examines from this machine whether GET PUBLIC_URL/api reaches this service, by TLS with a certificate that LINE accepts.
 *
 * It sends one request at most, follows no redirect, and reports nothing that a server wrote. It cannot prove that LINE reaches the
 * service: a router may treat its own network differently. Only LINE's test delivery proves that.
 */
import { Resolver } from 'node:dns/promises'
import type { IncomingMessage } from 'node:http'
import { request as httpsRequest } from 'node:https'
import { isIP, type LookupFunction } from 'node:net'
import { rootCertificates } from 'node:tls'
import { serviceName } from '../config/package.ts'
import { readStart } from '../http/listen.ts'
import { REACHABILITY_SEVERITIES, REACHABILITY_TEXTS, type ReachabilityCode } from './reachability-texts.ts'

/** Limit of the whole examination, for which `setup` waits. */
const EXAMINATION_MAX_MS = 5_000
/** The response of this service has about 50 bytes. Node.js limits the headers to 16 KiB. */
const BODY_MAX_BYTES = 16 * 1024
/** The console returns the last examination again for this time. */
const SHARED_MS = 5_000
/** c-ares retries after 1 s and gives up 2 s later, which leaves time for the request. */
const NAME_SERVER = { timeout: 1_000, tries: 2 }

export interface Reachability {
  publicUrl: string | null
  code: ReachabilityCode
  severity: 'ok' | 'warning' | 'error'
  /** the part of the message that varies, or empty */
  detail: string
  message: string
  fix: string
  checkedAt: string
}

export interface ReachabilityOptions {
  /** name servers as `address:port`; null: the system's */
  nameServers?: string[] | null
  /** By default the public ones only: LINE does not have the private authorities that this machine may trust. */
  authorities?: readonly string[]
  timeoutMs?: number
}

type Outcome = [code: ReachabilityCode, detail: string]

/** A problem is an outcome, never an exception. */
export async function examineReachability(
  publicUrl: string | null,
  options: ReachabilityOptions = {},
): Promise<Reachability> {
  const [code, detail] = await examine(publicUrl, options)
  const [message, fix] = REACHABILITY_TEXTS[code](detail)
  const severity = REACHABILITY_SEVERITIES[code]
  return { publicUrl, code, severity, detail, message, fix, checkedAt: new Date().toISOString() }
}

async function examine(
  publicUrl: string | null,
  { nameServers = null, authorities = rootCertificates, timeoutMs = EXAMINATION_MAX_MS }: ReachabilityOptions,
): Promise<Outcome> {
  if (publicUrl === null || !/^https:/i.test(publicUrl)) return ['not_configured', '']
  const url = new URL(publicUrl)
  const deadline = AbortSignal.timeout(timeoutMs)
  const host = url.hostname.replace(/^\[|\]$/g, '')
  const addresses = isIP(host) === 0 ? await resolveHost(host, nameServers, deadline) : [host]
  if (addresses.length === 0) return ['name_unresolved', host]
  return requestService(url, addresses, authorities, deadline)
}

/**
 * Returns no address if the name has none, or the name servers do not respond in time. LINE does not read this machine's /etc/hosts,
 * where the machine often has its own name with a loopback address, so this does not read it either.
 */
async function resolveHost(
  host: string,
  nameServers: string[] | null,
  deadline: AbortSignal,
): Promise<string[]> {
  const resolver = new Resolver(NAME_SERVER)
  if (nameServers !== null) resolver.setServers(nameServers)
  deadline.addEventListener('abort', () => resolver.cancel(), { once: true })
  // One after the other: some name servers never respond to a query for IPv6.
  const first = await resolver.resolve4(host).catch(() => [])
  return first.length > 0 || deadline.aborted ? first : resolver.resolve6(host).catch(() => [])
}

function requestService(
  url: URL,
  addresses: string[],
  authorities: readonly string[],
  deadline: AbortSignal,
): Promise<Outcome> {
  const found = addresses.map((address) => ({ address, family: isIP(address) }))
  const lookup: LookupFunction = (_name, { all }, callback) => {
    const [first] = found
    if (all || first === undefined) callback(null, found)
    else callback(null, first.address, first.family)
  }
  return new Promise((resolve) => {
    let isSecure = false
    const fail = (error: NodeJS.ErrnoException) => {
      resolve(explainFailure(deadline.aborted ? 'ETIMEDOUT' : error.code, isSecure))
    }
    const request = httpsRequest(`${url.href.replace(/\/$/, '')}/api`, {
      headers: { accept: 'application/json', 'user-agent': serviceName },
      agent: false,
      ca: [...authorities],
      signal: deadline,
      lookup,
    })
    request.on('error', fail)
    // After an unrequested response 101, Node.js destroys the socket and emits neither a response nor an error.
    request.once('upgrade', (_response, socket) => {
      socket.destroy()
      resolve(['other_program', '101'])
    })
    request.once('socket', (socket) => {
      socket.once('secureConnect', () => {
        isSecure = true
      })
    })
    request.once('response', (response) => {
      readStart(response, BODY_MAX_BYTES).then((body) => resolve(explainResponse(response, body)), fail)
    })
    request.end()
  })
}

function explainResponse({ statusCode }: IncomingMessage, body: string): Outcome {
  return statusCode === 200 && nameIn(body) === serviceName
    ? ['reached', '']
    : ['other_program', String(statusCode)]
}

function nameIn(body: string): unknown {
  try {
    return JSON.parse(body)?.name
  } catch {
    return null
  }
}

/** Codes come from Node.js, OpenSSL or the operating system. Messages may contain text of the server. */
function explainFailure(code = 'EUNKNOWN', isSecure: boolean): Outcome {
  // The operating system's codes have no underscore. EPROTO is OpenSSL's, for a server without TLS.
  if (/^E[A-Z0-9]+$/.test(code) && code !== 'EPROTO') return ['no_response', code]
  return [isSecure ? 'other_program' : 'certificate_refused', code]
}

/** Returns a function that examines PUBLIC_URL, at most once at a time and per SHARED_MS, however often it is called. */
export function sharedExamination(publicUrl: string | null): () => Promise<Reachability> {
  let last: Promise<Reachability> | null = null
  let endedAtMs: number | null = null
  return () => {
    if (last !== null && (endedAtMs === null || performance.now() - endedAtMs < SHARED_MS)) return last
    endedAtMs = null
    last = examineReachability(publicUrl).finally(() => {
      endedAtMs = performance.now()
    })
    return last
  }
}
