/** Which addresses an endpoint may have. Endpoints are set by tenants, so they must not reach into the operator's network. */
import { isIP, type LookupFunction } from 'node:net'
import ipaddr from 'ipaddr.js'
import type { HostResolver } from './resolver.ts'
import type { Address } from './system-names.ts'

/** All public IPv6 addresses are in this network. Others may contain an IPv4 address, such as ::127.0.0.1. */
const PUBLIC_IPV6 = ipaddr.parseCIDR('2000::/3')

export function isPublicAddress(text: string): boolean {
  if (isIP(text) === 0) return false
  const address = ipaddr.parse(text)
  return address.range() === 'unicast' && (address.kind() === 'ipv4' || address.match(PUBLIC_IPV6))
}

/** Why an endpoint's URL is refused, as a sentence for its owner. */
export class RefusedUrl extends Error {
  override readonly name = 'RefusedUrl'
}

/** Reads an endpoint's URL. Throws RefusedUrl. A host name is checked later, when it is resolved. */
export function readEndpointUrl(text: string, allowPrivateNetwork: boolean): URL {
  if (!URL.canParse(text)) throw new RefusedUrl('the URL cannot be read; write https://host/path')
  const url = new URL(text)
  if (url.protocol !== 'https:' && !(url.protocol === 'http:' && allowPrivateNetwork)) {
    throw new RefusedUrl('the URL must begin with https://')
  }
  if (url.username !== '' || url.password !== '') throw new RefusedUrl('the URL must not contain credentials')
  // The URL parser has already written other forms, such as 2130706433 or 0x7f.1, as a plain address.
  const host = url.hostname.replace(/^\[|\]$/g, '')
  if (isIP(host) !== 0 && !allowPrivateNetwork && !isPublicAddress(host)) {
    throw new RefusedUrl(`the address ${host} is not public`)
  }
  return url
}

/**
 * A lookup for the connections to one endpoint. Refuses a name if any of its addresses is not public. What is checked is what is
 * connected to, also if it comes from the cache, so a name that resolves to another address each time gains nothing.
 */
export function lookupWith(
  resolver: HostResolver,
  { accountId, allowPrivateNetwork }: { accountId: bigint; allowPrivateNetwork: boolean },
): LookupFunction {
  return (name, { family, all }, callback) => {
    const answer = (addresses: Address[]) => {
      const isRefused = !allowPrivateNetwork && addresses.some(({ address }) => !isPublicAddress(address))
      const usable = addresses.filter(
        (one) => !family || family === one.family || family === `IPv${one.family}`,
      )
      const [first] = usable
      if (isRefused) callback(new RefusedUrl(`${name} resolves to an address that is not public`), [])
      else if (first === undefined) callback(new RefusedUrl(`${name} has no address of the family`), [])
      else if (all) callback(null, usable)
      else callback(null, first.address, first.family)
    }
    resolver.resolve(name, accountId, allowPrivateNetwork).then(answer, (error) => callback(error, []))
  }
}

/** The addresses at which this service's own API is reached, as far as it knows them. */
export function ownAddresses(publicUrl: string | null, host: string, port: number): URL[] {
  const local = [host, '127.0.0.1', 'localhost', '::1'].map((name) =>
    name.includes(':') ? `[${name}]` : name,
  )
  const texts = [publicUrl, ...local.map((name) => `http://${name}:${port}`)]
  return texts.filter((text) => text !== null && URL.canParse(text)).map((text) => new URL(text as string))
}

/** Whether a URL is one of this service's API: what is sent there comes back as a new delivery. */
export function isOwnUrl(url: URL, own: URL[]): boolean {
  const path = decoded(url.pathname).toLowerCase()
  return own.some(
    (base) =>
      hostOf(url) === hostOf(base) &&
      path.startsWith(`${base.pathname.replace(/\/$/, '')}/api/`.toLowerCase()),
  )
}

/** The host, with the port unless it is the protocol's own. A name may end with a dot. */
const hostOf = (url: URL): string => url.host.replace(/\.(?=:\d+$|$)/, '')

/** Routes match decoded paths. */
function decoded(path: string): string {
  try {
    return decodeURIComponent(path)
  } catch {
    return path
  }
}
