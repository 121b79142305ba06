import fc from 'fast-check'
import ipaddr from 'ipaddr.js'
import { expect, it } from 'vitest'
import { isPublicAddress, lookupWith, readEndpointUrl } from '../../src/endpoints/address.ts'
import { HostResolver } from '../../src/endpoints/resolver.ts'
import { startNameServer } from '../support/name-server.ts'

it.each([
  ['a plain host name', 'https://example.com/webhook'],
  ['a port', 'https://example.com:8443/webhook'],
  ['a public IPv4 address', 'https://8.8.8.8/'],
  ['a public IPv6 address', 'https://[2606:4700:4700::1111]/'],
  ['a NAT64 address of a public IPv4 address', 'https://[64:ff9b::8.8.8.8]/'],
])('accepts a URL with %s', (_what, url) => {
  expect(readEndpointUrl(url, false)).toBeInstanceOf(URL)
})

it.each([
  ['http', 'http://example.com/'],
  ['another scheme', 'ftp://example.com/'],
  ['a file', 'file:///etc/passwd'],
  ['no URL', 'example.com'],
  ['credentials', 'https://user:password@example.com/'],
  ['a user name', 'https://user@example.com/'],
  ['loopback', 'https://127.0.0.1/'],
  ['another loopback address', 'https://127.8.9.10/'],
  ['loopback in decimal', 'https://2130706433/'],
  ['loopback in hexadecimal', 'https://0x7f.0.0.1/'],
  ['loopback in octal', 'https://0177.0.0.1/'],
  ['loopback in short', 'https://127.1/'],
  ['loopback in full-width digits', 'https://１２７.０.０.１/'],
  ['IPv6 loopback', 'https://[::1]/'],
  ['the unspecified address', 'https://0.0.0.0/'],
  ['the unspecified IPv6 address', 'https://[::]/'],
  ['an IPv4-mapped address', 'https://[::ffff:127.0.0.1]/'],
  ['an IPv4-mapped address in hexadecimal', 'https://[::ffff:7f00:1]/'],
  ['an IPv4-compatible address', 'https://[::127.0.0.1]/'],
  ['a NAT64 address of loopback', 'https://[64:ff9b::7f00:1]/'],
  ['a NAT64 address of a private address', 'https://[64:ff9b::192.168.0.1]/'],
  ['a NAT64 address of link-local', 'https://[64:ff9b::169.254.169.254]/'],
  ['an address beside the prefix of NAT64', 'https://[64:ff9b:0:0:0:1:808:808]/'],
  ['a public address behind the local prefix of NAT64', 'https://[64:ff9b:1::8.8.8.8]/'],
  ['a private address behind the local prefix of NAT64', 'https://[64:ff9b:1::10.0.0.1]/'],
  ['an IPv4-translated address', 'https://[::ffff:0:8.8.8.8]/'],
  ['a 6to4 address of a public address', 'https://[2002:808:808::]/'],
  ['a 6to4 address', 'https://[2002:7f00:1::]/'],
  ['a Teredo address', 'https://[2001:0:7f00:1::]/'],
  ['a private network', 'https://10.1.2.3/'],
  ['another private network', 'https://172.31.255.255/'],
  ['a third private network', 'https://192.168.0.1/'],
  ['carrier-grade NAT', 'https://100.64.0.1/'],
  ['link-local, where clouds keep credentials', 'https://169.254.169.254/latest/meta-data/'],
  ['IPv6 link-local', 'https://[fe80::1]/'],
  ['unique local', 'https://[fd00::1]/'],
  ['multicast', 'https://224.0.0.1/'],
  ['broadcast', 'https://255.255.255.255/'],
])('refuses a URL with %s', (_what, url) => {
  expect(() => readEndpointUrl(url, false)).toThrow(expect.objectContaining({ name: 'RefusedUrl' }))
})

it('accepts private addresses and http if the endpoint allows its network, but neither credentials nor other schemes', () => {
  expect(readEndpointUrl('http://10.1.2.3:8080/hook', true).port).toBe('8080')
  expect(() => readEndpointUrl('http://user@10.1.2.3/', true)).toThrow()
  expect(() => readEndpointUrl('ftp://10.1.2.3/', true)).toThrow()
})

const PUBLIC = '8.8.8.8'
const PRIVATE = '10.0.0.1'
const PUBLIC_V6 = '2606:4700:4700::1111'
const DNS64_PUBLIC = '64:ff9b::808:808'
const DNS64_PRIVATE = '64:ff9b::a00:1'
const DNS64_LOCAL = '64:ff9b:1::808:808'

const lookUp = async (name: string, addresses: string[]) => {
  const { server } = await startNameServer(() => ({ addresses }))
  const lookup = lookupWith(new HostResolver([server]), { share: 1n, allowPrivateNetwork: false })
  return new Promise((resolve) =>
    lookup(name, { all: true }, (fault, found) => resolve(fault ?? (found as { address: string }[]))),
  )
}

it.each([
  ['A', [PUBLIC]],
  ['AAAA', [PUBLIC_V6]],
  ['A and AAAA', [PUBLIC, PUBLIC_V6]],
  ['DNS64', [DNS64_PUBLIC]],
  ['A and DNS64', [PUBLIC, DNS64_PUBLIC]],
  ['A, AAAA and DNS64', [PUBLIC, PUBLIC_V6, DNS64_PUBLIC]],
])('finds all addresses of a name with %s', async (_, addresses) => {
  const found = (await lookUp('shop.example', addresses)) as { address: string }[]
  expect(found.map(({ address }) => address).sort()).toEqual([...addresses].sort())
})

it.each([
  ['localhost', []],
  ['a.example', [PRIVATE]],
  ['mixed.example', [PUBLIC, PRIVATE]],
  ['mixed.example', [PRIVATE, PUBLIC]],
  ['mixed.example', [PUBLIC_V6, PRIVATE]],
  ['mixed.example', [PUBLIC, 'fd00::1']],
  ['dns64.example', [DNS64_PRIVATE]],
  ['mixed.example', [PUBLIC, DNS64_PRIVATE]],
  ['mixed.example', [DNS64_PUBLIC, PRIVATE]],
  ['mixed.example', [DNS64_PUBLIC, DNS64_PRIVATE]],
  ['mixed.example', [PUBLIC, PUBLIC_V6, DNS64_LOCAL]],
])('refuses %s with %j, because one of its addresses is not public', async (name, addresses) => {
  expect(await lookUp(name, addresses)).toMatchObject({ name: 'RefusedUrl' })
})

it.each([
  ['IPv4-mapped', '::ffff:0:0'],
  ['IPv4-translated', '::ffff:0:0:0'],
  ['IPv4-compatible', '::'],
  ['local NAT64', '64:ff9b:1::'],
  ['longer than the prefix of NAT64', '64:ff9b::1:0:0'],
])('calls no %s address public', (_, prefix) => {
  const bytes = ipaddr.parse(prefix).toByteArray().slice(0, 12)
  fc.assert(
    fc.property(fc.ipV4(), (text) => {
      const address = ipaddr.fromByteArray([...bytes, ...ipaddr.parse(text).toByteArray()])
      expect(isPublicAddress(address.toString())).toBe(false)
    }),
  )
})

it('calls an address of NAT64 public if and only if the IPv4 address inside is', () => {
  const prefix = ipaddr.parse('64:ff9b::').toByteArray().slice(0, 12)
  fc.assert(
    fc.property(fc.ipV4(), (text) => {
      const address = ipaddr.fromByteArray([...prefix, ...ipaddr.parse(text).toByteArray()])
      expect(isPublicAddress(address.toString())).toBe(isPublicAddress(text))
    }),
  )
})

it('calls only unicast addresses of the public Internet public', () => {
  expect(['1.1.1.1', '172.32.0.1', '2a00:1450::1'].every(isPublicAddress)).toBe(true)
  expect(
    ['', 'localhost', '192.0.2.1', '198.18.0.1', '2001:db8::1', 'ff02::1', '3fff::1'].some(isPublicAddress),
  ).toBe(false)
})
