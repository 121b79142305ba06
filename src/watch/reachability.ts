/**
 * Examines from this machine whether GET PUBLIC_URL/api reaches this service, by TLS with a certificate that LINE accepts. It follows no
 * redirect, and reports nothing that a server wrote. Only LINE's test delivery proves that LINE reaches the service.
 */
import type { IncomingMessage } from 'node:http'
import { request as httpsRequest } from 'node:https'
import { isIP } from 'node:net'
import { rootCertificates } from 'node:tls'
import { serviceName } from '../config/package.ts'
import { lookupWith } from '../endpoints/address.ts'
import { HostResolver, UnresolvedName } from '../endpoints/resolver.ts'
import { readStart } from '../http/listen.ts'
import { textsIn } from './languages.ts'
import { fill } from './problem-texts.ts'

/** `setup` waits for it. */
const EXAMINATION_MAX_MS = 5_000
const BODY_MAX_BYTES = 16 * 1024

/** `warning`: many routers refuse connections from their own network to their public address, and accept those from the internet. */
const SEVERITIES = {
  not_configured: 'warning',
  name_unresolved: 'error',
  no_response: 'warning',
  certificate_refused: 'error',
  other_program: 'error',
  reached: 'ok',
} as const

type ReachabilityCode = keyof typeof SEVERITIES

export interface Reachability {
  publicUrl: string | null
  code: ReachabilityCode
  severity: 'ok' | 'warning' | 'error'
  /** the part of the message that varies */
  detail: string
  message: string
  fix: string
  checkedAt: string
}

export interface ReachabilityOptions {
  /** name servers as `address:port`; null: the system's */
  nameServers?: string[] | null
  /** the public ones: LINE does not have the private authorities that this machine may trust */
  authorities?: readonly string[]
  timeoutMs?: number
}

type Outcome = [code: ReachabilityCode, detail: string]

export async function examineReachability(
  publicUrl: string | null,
  options: ReachabilityOptions = {},
): Promise<Reachability> {
  const [code, detail] = await examine(publicUrl, options)
  const { message, fix } = textsIn('en').publicUrl[code]
  const texts = { message: fill(message, { detail }), fix }
  return {
    publicUrl,
    code,
    severity: SEVERITIES[code],
    detail,
    ...texts,
    checkedAt: new Date().toISOString(),
  }
}

async function examine(
  publicUrl: string | null,
  { nameServers = null, authorities = rootCertificates, timeoutMs = EXAMINATION_MAX_MS }: ReachabilityOptions,
): Promise<Outcome> {
  if (publicUrl === null || !/^https:/i.test(publicUrl)) return ['not_configured', '']
  const url = new URL(publicUrl)
  const deadline = AbortSignal.timeout(timeoutMs)
  // LINE does not read this machine's /etc/hosts, where the machine often has its own name, so this does not read it either.
  const resolver = new HostResolver(nameServers)
  return new Promise((resolve) => {
    let isResolved = isIP(url.hostname.replace(/^\[|\]$/g, '')) !== 0
    let isSecure = false
    const fail = (error: NodeJS.ErrnoException) => {
      const isUnresolved = error instanceof UnresolvedName || (deadline.aborted && !isResolved)
      if (isUnresolved) resolve(['name_unresolved', url.hostname])
      else resolve(explainFailure(deadline.aborted ? 'ETIMEDOUT' : error.code, isSecure))
    }
    const request = httpsRequest(`${url.href.replace(/\/$/, '')}/api`, {
      headers: { accept: 'application/json', 'user-agent': serviceName },
      agent: false,
      ca: [...authorities],
      signal: deadline,
      lookup: lookupWith(resolver, { share: '', allowPrivateNetwork: true }),
    })
    request.on('error', fail)
    // After an unrequested response 101, Node.js destroys the socket and emits neither a response nor an error.
    request.once('upgrade', (_response, socket) => {
      socket.destroy()
      resolve(['other_program', '101'])
    })
    request.once('socket', (socket) => {
      socket.once('lookup', () => {
        isResolved = true
      })
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

function explainFailure(code = 'EUNKNOWN', isSecure: boolean): Outcome {
  // The operating system's codes have no underscore. EPROTO is OpenSSL's, for a server without TLS.
  if (/^E[A-Z0-9]+$/.test(code) && code !== 'EPROTO') return ['no_response', code]
  return [isSecure ? 'other_program' : 'certificate_refused', code]
}
