/**
 * Examines PUBLIC_URL from this machine:
 *
 * 1. Is it an address that LINE accepts?
 * 2. Does its name resolve, and to public addresses only?
 * 3. Does GET PUBLIC_URL/api reach this service, by TLS with a certificate that LINE accepts?
 *
 * It sends one request at most, follows no redirect, and reports nothing that a server wrote. It cannot prove that LINE reaches the
 * service: a router may treat its own network differently. Only LINE's test delivery proves that.
 */
import { isIP } from 'node:net'
import { rootCertificates } from 'node:tls'
import { isPublicAddress } from '../endpoints/address.ts'
import { HostResolver, UnresolvedName } from '../endpoints/resolver.ts'
import type { Address, SystemNames } from '../endpoints/system-names.ts'
import { isTooLongForLine, URL_MAX_LENGTH } from './accounts/point-webhook.ts'
import { requestService } from './reachability-request.ts'
import { REACHABILITY_SEVERITIES, REACHABILITY_TEXTS, type ReachabilityCode } from './reachability-texts.ts'

/** Limit of the whole examination, for which `setup` waits. */
const EXAMINATION_MAX_MS = 5_000
/** The console returns the last examination again for this time. */
const SHARED_MS = 5_000
/** The lookups are counted apart from those of accounts. */
const SHARE = 'PUBLIC_URL'

export interface ReachabilityFinding {
  code: ReachabilityCode
  severity: 'ok' | 'warning' | 'error'
  /** the part of the message that varies, or empty */
  detail: string
  message: string
  fix: string
}

export interface Reachability {
  publicUrl: string | null
  /** at least one */
  findings: ReachabilityFinding[]
  checkedAt: string
}

/** LINE does not read this machine's /etc/hosts, where the machine often has its own name with a loopback address. */
const NO_HOSTS_FILE: SystemNames = {
  read: async () => ({
    hosts: new Map([['localhost', [{ address: '127.0.0.1', family: 4 }]]]),
    searchDomains: [],
    dotsMin: 1,
  }),
}

export interface ReachabilityOptions {
  /** name servers as `address:port`; null: the system's */
  nameServers?: string[] | null
  /** By default the public ones only: LINE does not have the private authorities that this machine may trust. */
  authorities?: readonly string[]
  timeoutMs?: number
}

/** Problems are findings, never exceptions. */
export async function examineReachability(
  publicUrl: string | null,
  options: ReachabilityOptions = {},
): Promise<Reachability> {
  return { publicUrl, findings: await examine(publicUrl, options), checkedAt: new Date().toISOString() }
}

async function examine(
  publicUrl: string | null,
  { nameServers = null, authorities = rootCertificates, timeoutMs = EXAMINATION_MAX_MS }: ReachabilityOptions,
): Promise<ReachabilityFinding[]> {
  if (publicUrl === null) return [finding('url_unset')]
  const url = new URL(publicUrl)
  if (url.protocol !== 'https:') return [finding('url_not_https')]
  const findings: ReachabilityFinding[] = []
  if (isTooLongForLine(publicUrl)) findings.push(finding('url_too_long', String(URL_MAX_LENGTH)))
  if (url.port !== '') findings.push(finding('url_other_port', url.port))
  const deadline = AbortSignal.timeout(timeoutMs)
  const host = url.hostname.replace(/^\[|\]$/g, '')
  const addresses = await resolveHost(host, nameServers, deadline)
  if (addresses === null) return [...findings, finding('name_unresolved', host)]
  const notPublic = addresses.find(({ address }) => !isPublicAddress(address))
  if (notPublic !== undefined)
    findings.push(finding(isIP(host) === 0 ? 'name_private' : 'address_private', notPublic.address))
  const responses = await requestService(url, { addresses, authorities, deadline })
  return [...findings, ...responses.map(({ code, detail }) => finding(code, detail))]
}

/** Returns null if the name has no address, or the name servers do not respond in time. */
async function resolveHost(
  host: string,
  nameServers: string[] | null,
  deadline: AbortSignal,
): Promise<Address[] | null> {
  const late = new Promise<null>((resolve) =>
    deadline.addEventListener('abort', () => resolve(null), { once: true }),
  )
  const found = new HostResolver(nameServers, NO_HOSTS_FILE).resolve(host, SHARE, false).catch((error) => {
    if (error instanceof UnresolvedName) return null
    throw error
  })
  return Promise.race([found, late])
}

export function finding(code: ReachabilityCode, detail = ''): ReachabilityFinding {
  const [message, fix] = REACHABILITY_TEXTS[code](detail)
  return { code, severity: REACHABILITY_SEVERITIES[code], detail, message, fix }
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
