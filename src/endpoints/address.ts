/** Checks the addresses of endpoints. Tenants set endpoints, so an endpoint must not be in the operator's network. */
import { isIP, type LookupFunction } from 'node:net'
import ipaddr from 'ipaddr.js'
import { EgressProxy } from '../http/egress-proxy.ts'
import type { Address, HostResolver, Share } from './resolver.ts'

/** Contains all public IPv6 addresses. Others may contain an IPv4 address, such as ::127.0.0.1. */
const PUBLIC_IPV6 = ipaddr.parseCIDR('2000::/3')

/** RFC 6052. In networks without IPv4, name servers (DNS64) put the IPv4 address into the last 32 bits. */
const NAT64 = ipaddr.parseCIDR('64:ff9b::/96')
const NAT64_BYTES = 12

export function isPublicAddress(text: string): boolean {
  if (isIP(text) === 0) return false
  const received = ipaddr.parse(text)
  const isTranslated = received.kind() === 'ipv6' && received.match(NAT64)
  const address = isTranslated ? ipaddr.fromByteArray(received.toByteArray().slice(NAT64_BYTES)) : received
  return address.range() === 'unicast' && (address.kind() === 'ipv4' || address.match(PUBLIC_IPV6))
}

/** RFC 6761: these names are never those of another machine, so also a proxy does not get them. */
const LOCALHOST = /(^|\.)localhost\.?$/

/** The message is for the owner of the endpoint. */
export class RefusedUrl extends Error {
  override readonly name = 'RefusedUrl'
}

/** Throws RefusedUrl. A host name is checked when it is resolved. */
export function readEndpointUrl(text: string, allowPrivateNetwork: boolean): URL {
  if (!URL.canParse(text)) throw new RefusedUrl('the URL cannot be read; write https://host/path')
  const url = new URL(text)
  if (url.protocol !== 'https:' && !(url.protocol === 'http:' && allowPrivateNetwork)) {
    throw new RefusedUrl('the URL must begin with https://')
  }
  if (url.username !== '' || url.password !== '') throw new RefusedUrl('the URL must not contain credentials')
  // The URL parser has converted other forms, such as 2130706433 or 0x7f.1.
  const host = url.hostname.replace(/^\[|\]$/g, '')
  if (isIP(host) !== 0 && !allowPrivateNetwork && !isPublicAddress(host)) {
    throw new RefusedUrl(`the address ${host} is not public`)
  }
  return url
}

/** How requests leave: to the addresses that are resolved and checked here, or through a proxy, which resolves names itself. */
export type Route = HostResolver | EgressProxy

export interface AddressChecks {
  /** whether a URL is this service's own, so that sending there would be a loop */
  isOwnUrl: (url: URL) => boolean
  route: Route
}

export interface EndpointAddress {
  url: string
  allow_private_network: boolean
}

export interface CheckedAddress {
  url: URL
  allowPrivateNetwork: boolean
  route: LookupFunction | EgressProxy
}

/** Returns RefusedUrl if nothing may be sent. */
export function checkAddress(
  share: Share,
  { url: text, allow_private_network: allowPrivateNetwork }: EndpointAddress,
  { isOwnUrl, route }: AddressChecks,
): CheckedAddress | RefusedUrl {
  try {
    const url = readEndpointUrl(text, allowPrivateNetwork)
    if (isOwnUrl(url)) return new RefusedUrl("the URL is this service's own: a loop")
    if (!(route instanceof EgressProxy))
      return { url, allowPrivateNetwork, route: lookupWith(route, { share, allowPrivateNetwork }) }
    if (!allowPrivateNetwork && LOCALHOST.test(url.hostname))
      return new RefusedUrl(`${url.hostname} is not public`)
    return { url, allowPrivateNetwork, route }
  } catch (error) {
    if (error instanceof RefusedUrl) return error
    throw error
  }
}

/** The connection uses the addresses that were checked, which prevents DNS rebinding. All of a name's addresses must be public. */
export function lookupWith(
  resolver: HostResolver,
  { share, allowPrivateNetwork }: { share: Share; allowPrivateNetwork: boolean },
): LookupFunction {
  return (name, { all }, callback) => {
    const respond = (addresses: Address[]) => {
      const isRefused = !allowPrivateNetwork && addresses.some(({ address }) => !isPublicAddress(address))
      if (isRefused) callback(new RefusedUrl(`${name} resolves to an address that is not public`), [])
      else if (all) callback(null, addresses)
      else callback(null, addresses[0]?.address ?? '', addresses[0]?.family)
    }
    resolver.resolve(name, share).then(respond, (error) => callback(error, []))
  }
}

/** The base URLs of this service's own API, as far as its configuration says them. */
export function ownAddresses(publicUrl: string | null, host: string, port: number): URL[] {
  const local = [host, '127.0.0.1', 'localhost', '::1'].map((name) =>
    name.includes(':') ? `[${name}]` : name,
  )
  const texts = [publicUrl, ...local.map((name) => `http://${name}:${port}`)]
  return texts.filter((text) => text !== null && URL.canParse(text)).map((text) => new URL(text as string))
}

/** Whether a URL is in this service's own API, where a delivery could cause a new delivery. */
export function isOwnUrl(url: URL, own: URL[]): boolean {
  const path = decoded(url.pathname).toLowerCase()
  return own.some(
    (base) =>
      hostOf(url) === hostOf(base) &&
      path.startsWith(`${base.pathname.replace(/\/$/, '')}/api/`.toLowerCase()),
  )
}

/** Without the final dot of a name. */
const hostOf = (url: URL): string => url.host.replace(/\.(?=:\d+$|$)/, '')

/** Routes match decoded paths. */
function decoded(path: string): string {
  try {
    return decodeURIComponent(path)
  } catch {
    return path
  }
}

/** Without credentials and query strings, because tools put tokens there. Other programs may have stored any text. */
export const printableUrl = (url: string): string =>
  url.replace(/[?#].*$/s, (rest) => `${rest[0]}…`).replace(/^([^/]*\/\/)[^/]*@/, '$1…@')
