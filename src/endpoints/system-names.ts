/** Reads /etc/hosts and the search domains of /etc/resolv.conf. */
import { readFile } from 'node:fs/promises'
import { isIP } from 'node:net'

/** Containers get their extra hosts before they start, so a change is rare. */
const READ_EVERY_MS = 5_000
/** The limit of the C library. */
const SEARCH_DOMAINS_MAX = 6

export interface Address {
  address: string
  family: 4 | 6
}

export interface NamesOfSystem {
  hosts: Map<string, Address[]>
  searchDomains: string[]
  /** A name with fewer dots is tried with the search domains first. */
  dotsMin: number
}

export interface SystemNames {
  read(): Promise<NamesOfSystem>
}

/** RFC 6761: localhost is never queried from a name server. */
const LOOPBACK: Address[] = [
  { address: '127.0.0.1', family: 4 },
  { address: '::1', family: 6 },
]

export class HostsFile implements SystemNames {
  #read: Promise<NamesOfSystem> | null = null
  #readAtMs = 0

  read(): Promise<NamesOfSystem> {
    const nowMs = performance.now()
    if (this.#read !== null && nowMs - this.#readAtMs < READ_EVERY_MS) return this.#read
    this.#readAtMs = nowMs
    const text = (path: string) => readFile(path, 'utf8').catch(() => '')
    this.#read = Promise.all([text('/etc/hosts'), text('/etc/resolv.conf')]).then(([hosts, resolv]) => ({
      hosts: parseHosts(hosts),
      ...parseResolv(resolv),
    }))
    return this.#read
  }
}

export function parseHosts(text: string): Map<string, Address[]> {
  const hosts = new Map<string, Address[]>()
  for (const line of text.split('\n')) {
    const [address = '', ...names] = line.replace(/#.*/, '').trim().split(/\s+/)
    const family = isIP(address)
    if (family === 0) continue
    for (const name of names.map((one) => one.toLowerCase())) {
      hosts.set(name, [...(hosts.get(name) ?? []), { address, family: family as 4 | 6 }])
    }
  }
  if (!hosts.has('localhost')) hosts.set('localhost', LOOPBACK)
  return hosts
}

export function parseResolv(text: string): Omit<NamesOfSystem, 'hosts'> {
  const last = (keyword: string) =>
    [...text.matchAll(new RegExp(`^${keyword}\\s+(.*)$`, 'gm'))].at(-1)?.[1]?.trim()
  const search = last('search') ?? last('domain') ?? ''
  const dots = /(?:^|\s)ndots:(\d{1,2})(?:\s|$)/.exec(last('options') ?? '')?.[1]
  return {
    searchDomains: search
      .split(/\s+/)
      .filter((domain) => domain !== '')
      .slice(0, SEARCH_DOMAINS_MAX),
    dotsMin: dots === undefined ? 1 : Number(dots),
  }
}

/** Returns the names to query, in order. A name that ends with a dot is complete. */
export function searchedNames(name: string, searchDomains: string[], dotsMin: number): string[] {
  if (name.endsWith('.')) return [name]
  const searched = searchDomains.map((domain) => `${name}.${domain}`)
  const dots = name.split('.').length - 1
  return dots >= dotsMin ? [name, ...searched] : [...searched, name]
}
