/** Parses DATABASE_URL and DATABASE_READ_URL like libpq. They may contain several servers, and node-postgres accepts only one. */
import { isIP } from 'node:net'
import { parse as parseConnectionString } from 'pg-connection-string'

export interface DatabaseServer {
  /** Messages show it: host and port, without credentials. */
  name: string
  /** A postgres:// URL of only this server. */
  url: string
}

interface DatabaseAddress {
  servers: DatabaseServer[]
  mustWrite: boolean
}

const FORM = 'must be a postgres:// URL (postgres://user:password@host:5432/database)'
export const ENCODING =
  '. In the user and the password, write / as %2F, ? as %3F, # as %23, @ as %40, % as %25, [ as %5B and ] as %5D'
const SEVERAL =
  'names several hosts and needs ?target_session_attrs=read-write, because only the server that accepts writes can be used'
const DEFAULT_PORT = '5432'

/** Parameters of libpq that choose a server in a way that is not supported here. */
const UNSUPPORTED = ['service', 'servicefile', 'hostaddr']

/** Throws an Error whose message continues "DATABASE_URL …" and never quotes the value, which may be secret. */
export const parseDatabaseUrl = withEncodingHint(readDatabaseUrl)

function readDatabaseUrl(text: string): DatabaseAddress {
  const parts = readParts(text, `${FORM} or none`)
  const wanted = parts.options.get('target_session_attrs') ?? 'any'
  if (wanted === 'read-write')
    return { servers: parts.hosts.map((host) => serverOf(parts, host)), mustWrite: true }
  if (parts.hosts.length > 1) throw new Error(SEVERAL)
  if (wanted !== 'any') throw new Error('has a target_session_attrs other than read-write')
  return {
    servers: [{ name: parts.hosts[0]?.name ?? '', url: requireUsable(text) }],
    mustWrite: false,
  }
}

/** Each server of DATABASE_READ_URL. Throws like parseDatabaseUrl. */
export const parseReplicasUrl = withEncodingHint(readReplicasUrl)

/** A URL with credentials is most often invalid because a character of the password is not encoded. */
function withEncodingHint<T>(read: (text: string) => T): (text: string) => T {
  return (text) => {
    try {
      return read(text)
    } catch (error) {
      const { message } = error as Error
      if (!text.includes('@') || !message.startsWith(FORM)) throw error
      throw new Error(message + ENCODING)
    }
  }
}

function readReplicasUrl(text: string): DatabaseServer[] {
  const parts = readParts(text)
  if ((parts.options.get('target_session_attrs') ?? 'any') !== 'any') {
    throw new Error(
      'has a target_session_attrs other than any, which is not supported: the service reads from every host that is named',
    )
  }
  return parts.hosts.map((host) => serverOf(parts, host))
}

interface Parts {
  scheme: string
  user: string
  path: string
  options: Map<string, string>
  hosts: Host[]
}

function readParts(text: string, form = FORM): Parts {
  const [, scheme, user = '', authority = '', path = '', query = ''] =
    /^(postgres(?:ql)?:\/\/)([^/?#]*@)?([^/?#]*)([^?#]*)\??(.*)$/.exec(text) ?? []
  if (scheme === undefined || /[\s#]/.test(text) || text === scheme) throw new Error(form)
  const options = new Map(new URLSearchParams(query))
  // The password contains a slash or a question mark. The host of `postgres://me:1/2@db/oa` would be `me`.
  if (user === '' && [path, ...options.keys()].some((part) => part.includes('@'))) throw new Error(form)
  for (const name of UNSUPPORTED) {
    if (options.has(name))
      throw new Error(`has the parameter ${name}, which is not supported: name the hosts`)
  }
  if ((options.get('load_balance_hosts') ?? 'disable') !== 'disable') {
    throw new Error('has load_balance_hosts, which is not supported: the service chooses the host itself')
  }
  return { scheme, user, path, options, hosts: readHosts(authority, options) }
}

function serverOf({ scheme, user, path, options }: Parts, { name, host, port }: Host): DatabaseServer {
  if (host === '') throw new Error('names an empty host: remove the comma, or name each host')
  const others = [...options].filter(([key]) => !['target_session_attrs', 'load_balance_hosts'].includes(key))
  const parameters = new URLSearchParams([...others, ['host', host], ['port', port]])
  return { name, url: requireUsable(`${scheme}${user}${path === '' ? '/' : path}?${parameters}`) }
}

interface Host {
  name: string
  host: string
  port: string
}

/** `host` and `port` of the query replace those before the path, as in libpq. */
function readHosts(authority: string, options: Map<string, string>): Host[] {
  const named = authority.split(',').map((part) => /^(\[[^\]]*\]|[^:]*):?(.*)$/.exec(part) ?? [])
  const hosts = options.get('host')?.split(',') ?? named.map(([, host = '']) => decodeHost(host))
  const ports = options.get('port')?.split(',') ?? named.map(([, , port = '']) => port)
  if (ports.length !== 1 && ports.length !== hosts.length) {
    throw new Error('names more ports than hosts, or fewer: give one port for all hosts, or one for each')
  }
  return hosts.map((host, index) => {
    const port = (ports.length === 1 ? ports[0] : ports[index]) || DEFAULT_PORT
    if (!/^\d{1,5}$/.test(port) || Number(port) > 65_535 || !isHost(host)) throw new Error(FORM)
    return { name: `${host}:${port}`, host, port }
  })
}

/** What looks like an IP address must be one: a URL has its host unchecked unless it is http:. A path is the directory of a socket. */
export const isHost = (host: string): boolean =>
  isIP(host.replace(/^\[|\]$/g, '')) !== 0 || !/^([\d.]+|[^/]*:.*)$/.test(host)

function decodeHost(host: string): string {
  return decode(host.replace(/^\[(.*)\]$/, '$1'))
}

function decode(text: string): string {
  try {
    return decodeURIComponent(text)
  } catch {
    throw new Error(FORM)
  }
}

/** pg would only fail on an invalid URL when it connects. */
function requireUsable(url: string): string {
  try {
    parseConnectionString(url)
  } catch {
    throw new Error(FORM)
  }
  return url
}

/** For libpq's programs: returns the URL without its password, and the password for PGPASSWORD. */
export function splitPassword(url: string): { address: string; password: string | null } {
  const [, scheme = '', login = '', end = ''] = /^(postgres(?:ql)?:\/\/)([^/?#]*@)?(.*)$/.exec(url) ?? []
  const [, user = '', ofLogin] = /^([^:]*):?(.*)@$/.exec(login) ?? []
  const [authority = '', query = ''] = end.split('?', 2)
  const parameters = new URLSearchParams(query)
  const password = parameters.get('password') ?? (ofLogin ? decode(ofLogin) : null)
  parameters.delete('password')
  // libpq does not decode a plus sign as a space.
  const options = parameters.size === 0 ? '' : `?${parameters}`.replaceAll('+', '%20')
  return { address: `${scheme}${user === '' ? '' : `${user}@`}${authority}${options}`, password }
}
