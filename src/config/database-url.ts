/** Parses DATABASE_URL and DATABASE_READ_URL like libpq. They may contain several servers, and node-postgres accepts only one. */
import { existsSync } from 'node:fs'
import { isIP } from 'node:net'
import type { ClientConfig } from 'pg'
import { readDatabaseTls } from './database-tls.ts'
import { libpqVariable } from './libpq-variables.ts'

export interface DatabaseServer {
  /** Messages show it: host and port, without credentials. */
  name: string
  /** Undefined values have a default of node-postgres, which may come from a variable such as PGUSER. */
  settings: ClientConfig & { host: string; port: number }
  /** whether TLS is used only if the server offers it */
  isTlsOptional: boolean
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
/** Where Debian's packages and PostgreSQL's sources put the socket. */
const SOCKET_DIRECTORIES = ['/var/run/postgresql', '/tmp']
/** libpq waits no less. */
const CONNECT_TIMEOUT_MIN_SECONDS = 2

/** What the service and libpq's programs use alike. */
const USED = [
  ...['user', 'password', 'dbname', 'host', 'port', 'target_session_attrs', 'load_balance_hosts', 'options'],
  ...['application_name', 'connect_timeout', 'channel_binding'],
  ...['ssl', 'sslmode', 'sslrootcert', 'sslcert', 'sslkey'],
]

/** Parameters of libpq that guarantee nothing. The service has its own values. */
const WITHOUT_EFFECT =
  /^(fallback_application_name|keepalives\w*|tcp_user_timeout|client_encoding|sslcompression|sslsni|gssencmode)=(?!require)/

const REFUSED: Array<[parameter: RegExp, fix: string]> = [
  [/^(service|servicefile|hostaddr)=/, 'name the hosts'],
  [/^passfile=/, 'set PGPASSFILE'],
  // Prisma and JDBC. Without it, the tables would be in another schema.
  [/^(schema|currentSchema|search_path)=(?!public$)/, 'write options=-c%20search_path%3DNAME'],
  // They restrict what the connection trusts, so none is dropped, not even a misspelled one.
  [/^(ssl|require|gss|krb|scram|channel|replication)/, 'remove it, or use sslmode and sslrootcert'],
]

/** Throws an Error whose message continues "DATABASE_URL …" and never quotes the value, which may be secret. */
export const parseDatabaseUrl = withEncodingHint(readDatabaseUrl)

function readDatabaseUrl(text: string): DatabaseAddress {
  const parts = readParts(text, `${FORM} or none`)
  const wanted = parts.options.get('target_session_attrs') ?? 'any'
  const mustWrite = wanted === 'read-write'
  if (parts.hosts.length > 1 && !mustWrite) throw new Error(SEVERAL)
  if (wanted !== 'any' && !mustWrite) throw new Error('has a target_session_attrs other than read-write')
  return { servers: serversOf(parts), mustWrite }
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
  return serversOf(parts)
}

/** Some providers write parameters of other drivers, such as pgbouncer=true, into their URLs. Before 0.4, require was verify-full. */
export function warnOfParameters(text: string, warn: (message: string) => void): void {
  const { ignored, options } = readParts(text)
  const { sslmode, sslrootcert } = readDatabaseTls(options).parameters
  if (sslmode === 'require' && sslrootcert === undefined)
    warn(
      'sslmode=require of DATABASE_URL verifies no certificate: with sslmode=verify-full, nobody can pose as the server',
    )
  if (ignored.length > 0)
    warn(`DATABASE_URL has parameters of other drivers, which are ignored: ${ignored.join(', ')}`)
}

interface Parts {
  /** those of USED that have a value, with the user, the password and the database */
  options: Map<string, string>
  ignored: string[]
  hosts: Host[]
}

function readParts(text: string, form = FORM): Parts {
  const [, scheme, login = '', authority = '', path = '', query = ''] =
    /^(postgres(?:ql)?:\/\/)([^/?#]*@)?([^/?#]*)([^?#]*)\??(.*)$/.exec(text) ?? []
  if (scheme === undefined || /[\s#]/.test(text) || text === scheme) throw new Error(form)
  // libpq does not decode a plus sign as a space.
  const given = [...new URLSearchParams(query.replaceAll('+', '%2B'))]
  // The password contains a slash or a question mark. The host of `postgres://me:1/2@db/oa` would be `me`.
  if (login === '' && [path, ...given.map(([name]) => name)].some((part) => part.includes('@')))
    throw new Error(form)
  const [, user = '', password = ''] = /^([^:]*):?(.*)@$/.exec(login) ?? []
  const ofPath = { user: decodeLogin(user), password: decodeLogin(password), dbname: decode(path.slice(1)) }
  const used = given.filter(([name]) => USED.includes(name))
  const options = new Map([...Object.entries(ofPath), ...used].filter(([, value]) => value !== ''))
  // JDBC's spelling, which libpq also accepts.
  if (options.get('ssl') === 'true' && !options.has('sslmode')) options.set('sslmode', 'require')
  else if (options.has('ssl')) throw new Error('has ssl, which can only be true: use sslmode')
  const ignored = given.filter((parameter) => !USED.includes(parameter[0]) && isForeign(parameter))
  return { options, ignored: ignored.map(([name]) => name), hosts: readHosts(authority, options) }
}

/** Whether it is a parameter of another driver, which is ignored. Throws an Error if that would change what the URL means. */
function isForeign([name, value]: [string, string]): boolean {
  const parameter = `${name}=${value}`
  if (WITHOUT_EFFECT.test(parameter)) return false
  // Messages contain the name. Anything else may be a part of a password.
  if (!/^[\w.-]{1,40}$/.test(name)) throw new Error(FORM)
  const [, fix] = REFUSED.find(([pattern]) => pattern.test(parameter)) ?? []
  if (fix !== undefined) throw new Error(`has the parameter ${name}, which is not supported: ${fix}`)
  return true
}

function serversOf({ options, hosts }: Parts): DatabaseServer[] {
  if ((options.get('load_balance_hosts') ?? 'disable') !== 'disable')
    throw new Error('has load_balance_hosts, which is not supported: the service chooses the host itself')
  const { ssl, isOptional, parameters } = readDatabaseTls(options)
  // node-postgres does not insist on it. A verified certificate protects the password as well.
  if (options.get('channel_binding') === 'require' && parameters.sslmode !== 'verify-full')
    throw new Error('has channel_binding=require, which needs sslmode=verify-full here')
  const seconds = options.get('connect_timeout') ?? '0'
  if (!/^\d{1,6}$/.test(seconds)) throw new Error('has a connect_timeout that is not a number of seconds')
  const name = options.get('application_name')
  const timeoutMs = Math.max(Number(seconds), CONNECT_TIMEOUT_MIN_SECONDS) * 1_000
  const settings = {
    user: options.get('user'),
    password: options.get('password'),
    database: options.get('dbname'),
    options: options.get('options'),
    ...(name !== undefined && { application_name: name }),
    ...(Number(seconds) > 0 && { connectionTimeoutMillis: timeoutMs }),
  }
  return hosts.map(({ host, port }) => ({
    name: `${host}:${port}`,
    // The directory of a socket, which is on this machine.
    settings: { ...settings, host, port: Number(port), ssl: host.startsWith('/') ? false : ssl },
    isTlsOptional: isOptional,
  }))
}

interface Host {
  host: string
  port: string
}

/** `host` and `port` of the query replace those before the path, as in libpq. */
function readHosts(authority: string, options: Map<string, string>): Host[] {
  const named = authority.split(',').map((part) => /^(\[[^\]]*\]|[^:]*):?(.*)$/.exec(part) ?? [])
  const written = options.get('host')?.split(',') ?? named.map(([, host = '']) => decodeHost(host))
  const hosts = (written.join() === '' && libpqVariable('host')?.split(',')) || written
  const ports = options.get('port')?.split(',') ?? named.map(([, , port = '']) => port)
  if (ports.length !== 1 && ports.length !== hosts.length) {
    throw new Error('names more ports than hosts, or fewer: give one port for all hosts, or one for each')
  }
  return hosts.map((given, index) => {
    if (given === '' && hosts.length > 1)
      throw new Error('names an empty host: remove the comma, or name each host')
    const port = (ports.length === 1 ? ports[0] : ports[index]) || libpqVariable('port') || DEFAULT_PORT
    const host = given || defaultHost(port)
    if (!/^\d{1,5}$/.test(port) || Number(port) > 65_535 || !isHost(host)) throw new Error(FORM)
    return { host, port }
  })
}

const defaultHost = (port: string) =>
  SOCKET_DIRECTORIES.find((directory) => existsSync(`${directory}/.s.PGSQL.${port}`)) ?? 'localhost'

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

/** A percent sign of a password may stand for itself. */
function decodeLogin(text: string): string {
  try {
    return decodeURIComponent(text)
  } catch {
    return text
  }
}

/** libpq's programs get the same meaning. Every user of the machine can read arguments, so the password is for PGPASSWORD. */
export function addressForPrograms(text: string): { address: string; password: string | null } {
  const { options, hosts } = readParts(text)
  const { password = null, ssl, load_balance_hosts, ...passed } = Object.fromEntries(options)
  const host = hosts.map((one) => one.host).join()
  const port = hosts.map((one) => one.port).join()
  const parameters = { ...passed, ...readDatabaseTls(options).parameters, host, port }
  return { address: `postgresql://?${new URLSearchParams(parameters)}`.replaceAll('+', '%20'), password }
}
