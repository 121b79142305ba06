/** Parsers of environment variables. Each throws an Error whose message says what the value must be and never quotes it. */
import { isIP } from 'node:net'
import { ENCODING, isHost, parseDatabaseUrl, parseReplicasUrl } from './database-url.ts'

export function integer(min: number, max: number): (text: string) => number {
  return (text) => {
    const value = /^\d{1,12}$/.test(text) ? Number(text) : Number.NaN
    if (!(value >= min && value <= max)) throw new Error(`must be a whole number from ${min} to ${max}`)
    return value
  }
}

export function boolean(text: string): boolean {
  if (text === 'true' || text === '1') return true
  if (text === 'false' || text === '0') return false
  throw new Error('must be true or false')
}

export function oneOf<T extends string>(allowed: readonly T[]): (text: string) => T {
  return (text) => {
    const value = allowed.find((candidate) => candidate === text)
    if (value === undefined) throw new Error(`must be one of ${allowed.join(', ')}`)
    return value
  }
}

export function matching(pattern: RegExp, requirement: string): (text: string) => string {
  return (text) => {
    if (!pattern.test(text)) throw new Error(requirement)
    return text
  }
}

export function atLeast(length: number): (text: string) => string {
  return matching(new RegExp(`^.{${length},}$`, 's'), `must have at least ${length} characters`)
}

export function listenAddress(text: string): string {
  if (/^[A-Za-z0-9.:_-]+$/.test(text) && isHost(text)) return text
  throw new Error('must be an IP address or a host name, such as 0.0.0.0')
}

const hasHost = (text: string) =>
  URL.canParse(text) && new URL(text).hostname !== '' && isHost(new URL(text).hostname)

/** Query options are rejected, because ioredis would only fail on an invalid one when it connects. */
export function redisUrl(text: string): string {
  if (!/^rediss?:\/\/[^/?#\s]+(\/\d{0,5})?$/.test(text) || !hasHost(text)) {
    const hint = text.includes('@') ? ENCODING : ''
    throw new Error(`must be a redis:// or rediss:// URL (redis://user:password@host:6379/0)${hint}`)
  }
  return text
}

export function postgresUrl(text: string): string {
  parseDatabaseUrl(text)
  return text
}

export function replicasUrl(text: string): string {
  parseReplicasUrl(text)
  return text
}

export function httpUrl(text: string): string {
  if (!/^https?:\/\/\S+$/i.test(text) || !URL.canParse(text))
    throw new Error('must be an http:// or https:// URL')
  const url = new URL(text)
  if (/[?#]/.test(text) || url.username !== '' || url.password !== '')
    throw new Error('must be a URL without ?, # or credentials')
  return text.replace(/\/+$/, '')
}

/** The sender of messages is the parameter `from`, or the user if that is an address. */
export function smtpUrl(text: string): string {
  if (!/^smtps?:\/\/\S+$/i.test(text) || !hasHost(text))
    throw new Error('must be an smtp:// or smtps:// URL (smtps://user:password@host:465?from=address)')
  const { username, password, searchParams } = new URL(text)
  const user = decoded(username)
  if (user === null || decoded(password) === null)
    throw new Error('must have a percent-encoded user and password')
  // Others would seem to have an effect, such as tls.ca.
  if ([...searchParams.keys()].some((name) => name !== 'from'))
    throw new Error('must have no parameter but from')
  if (!isEmailAddress(searchParams.get('from') ?? user))
    throw new Error('must have the address of the sender, such as ?from=alerts@example.com')
  return text
}

function decoded(text: string): string | null {
  try {
    return decodeURIComponent(text)
  } catch {
    return null
  }
}

/** The path of such a URL is usually a token. */
export function watchdogUrl(text: string): string {
  if (!/^https?:\/\/\S+$/i.test(text) || !URL.canParse(text))
    throw new Error('must be an http:// or https:// URL')
  const { username, password } = new URL(text)
  // fetch refuses them.
  if (username !== '' || password !== '') throw new Error('must be a URL without credentials')
  return text
}

/** RFC 5321: at most 254 characters. Only what mail servers accept without quotes. */
export const isEmailAddress = (text: string): boolean =>
  text.length <= 254 && /^[A-Za-z0-9.!#$%&'*+/=?^_`{|}~-]+@[A-Za-z0-9-]+(\.[A-Za-z0-9-]+)*$/.test(text)

export function proxyUrl(text: string): string {
  if (!/^http:\/\/[^/?#\s]+:\d{1,5}\/?$/i.test(text) || !hasHost(text)) {
    const hint = text.includes('@') ? ENCODING : ''
    throw new Error(`must be http://host:port or http://user:password@host:port of a proxy${hint}`)
  }
  const { username, password } = new URL(text)
  if (decoded(username) === null || decoded(password) === null)
    throw new Error('must have a percent-encoded user and password')
  return text
}

export function proxies(text: string): string[] {
  const names = new Set(['loopback', 'linklocal', 'uniquelocal'])
  return text.split(',').map((part) => {
    const proxy = part.trim()
    if (names.has(proxy)) return proxy
    const [address = '', prefix, rest] = proxy.split('/')
    const family = isIP(address)
    // A prefix of 0 would trust every client.
    const isPrefixValid =
      prefix === undefined || (/^[1-9]\d{0,2}$/.test(prefix) && Number(prefix) <= (family === 4 ? 32 : 128))
    if (family === 0 || !isPrefixValid || rest !== undefined) {
      throw new Error(
        'must list addresses or CIDR ranges, comma separated, such as 10.0.0.0/8,127.0.0.1, or loopback, linklocal, uniquelocal',
      )
    }
    return proxy
  })
}
