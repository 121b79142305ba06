/** The only reader of environment variables: names, units, defaults, refusals (all faults at once). */
import { isIP } from 'node:net'
import { resolve } from 'node:path'
import { parse as parseConnectionString } from 'pg-connection-string'
import { FatalError } from './errors.ts'
import { Secret } from './secret.ts'

const LOG_LEVELS = ['fatal', 'error', 'warn', 'info', 'debug', 'trace', 'silent'] as const

export type DatabaseChoice =
  | { kind: 'embedded'; dataDir: string }
  | { kind: 'url'; url: Secret }
  | { kind: 'none' }

export interface Config {
  port: number
  host: string
  database: DatabaseChoice
  dataDir: string
  /** without a trailing slash */
  publicUrl: string | null
  redisUrl: Secret | null
  /** max 0: no limit */
  rateLimit: { max: number; windowMs: number; spareSigned: boolean }
  /** addresses, CIDR ranges or the names loopback, linklocal, uniquelocal */
  trustProxy: string[]
  /** without a trailing slash */
  lineApiUrl: string
  logLevel: (typeof LOG_LEVELS)[number]
  metricsPort: number | null
  /** traces are sent, to where OTEL_* says */
  tracing: boolean
  /** days; 0 keeps stored events for ever */
  retentionDays: number
  /** days */
  deduplicationDays: number
}

interface Variable<T> {
  name: string
  /** what --help shows as the default */
  shownDefault: string
  help: string
  /** used when the variable is unset or empty */
  fallback: T
  /** throws an Error whose message completes "NAME …" and never repeats a value that may be secret */
  parse: (text: string) => T
}

const variable = <T>(definition: Variable<T>): Variable<T> => definition

const VARIABLES = {
  port: variable({
    name: 'PORT',
    shownDefault: '3000',
    help: 'TCP port of the service; 0 takes a free one',
    fallback: 3000,
    parse: integer(0, 65_535),
  }),
  host: variable({
    name: 'HOST',
    shownDefault: '127.0.0.1',
    help: 'address to listen on; 0.0.0.0 for every interface',
    fallback: '127.0.0.1',
    parse: matching(/^[A-Za-z0-9.:_-]+$/, 'must be an IP address or a host name, such as 0.0.0.0'),
  }),
  databaseUrl: variable<Secret | 'none' | null>({
    name: 'DATABASE_URL',
    shownDefault: 'unset',
    help: 'postgres://…; unset: a PostgreSQL of its own under DATA_DIR; none: start without a database',
    fallback: null,
    parse: (text) => (text === 'none' ? 'none' : new Secret(postgresUrl(text))),
  }),
  dataDir: variable({
    name: 'DATA_DIR',
    shownDefault: './data',
    help: 'directory of the PostgreSQL that the service runs by itself',
    fallback: './data',
    parse: matching(/^[^\0\n]+$/, 'must be the path of a directory'),
  }),
  publicUrl: variable<string | null>({
    name: 'PUBLIC_URL',
    shownDefault: 'unset',
    help: 'address of this service as the platforms see it, such as https://audience.example.com',
    fallback: null,
    parse: httpUrl,
  }),
  redisUrl: variable<Secret | null>({
    name: 'REDIS_URL',
    shownDefault: 'unset',
    help: 'redis://… that shares the rate limit between instances',
    fallback: null,
    parse: (text) => new Secret(redisUrl(text)),
  }),
  rateLimitMax: variable({
    name: 'RATE_LIMIT_MAX',
    shownDefault: '6000',
    help: 'requests per window and client address; 0 switches the limit off',
    fallback: 6000,
    parse: integer(0, 1_000_000_000),
  }),
  rateLimitWindowMs: variable({
    name: 'RATE_LIMIT_WINDOW_MS',
    shownDefault: '60000',
    help: 'length of the window in milliseconds; 0 switches the limit off',
    fallback: 60_000,
    parse: integer(0, 86_400_000),
  }),
  rateLimitSpareSigned: variable({
    name: 'RATE_LIMIT_SPARE_SIGNED',
    shownDefault: 'false',
    help: 'true: a delivery whose signature proves its sender gives its count back',
    fallback: false,
    parse: (text) => {
      if (text === 'true' || text === '1') return true
      if (text === 'false' || text === '0') return false
      throw new Error('must be true or false')
    },
  }),
  trustProxy: variable<string[]>({
    name: 'TRUST_PROXY',
    shownDefault: 'unset',
    help: 'proxies whose X-Forwarded-For is believed: addresses, ranges, loopback, linklocal, uniquelocal',
    fallback: [],
    parse: proxies,
  }),
  lineApiUrl: variable({
    name: 'LINE_API_URL',
    shownDefault: 'https://api.line.me',
    help: "the messaging platform's API",
    fallback: 'https://api.line.me',
    parse: httpUrl,
  }),
  logLevel: variable<Config['logLevel']>({
    name: 'LOG_LEVEL',
    shownDefault: 'info',
    help: LOG_LEVELS.join(', '),
    fallback: 'info',
    parse: (text) => {
      const level = LOG_LEVELS.find((known) => known === text)
      if (level === undefined) throw new Error(`must be one of ${LOG_LEVELS.join(', ')}`)
      return level
    },
  }),
  metricsPort: variable<number | null>({
    name: 'METRICS_PORT',
    shownDefault: 'unset',
    help: 'TCP port for Prometheus metrics, on a listener of its own at HOST',
    fallback: null,
    parse: integer(0, 65_535),
  }),
  tracing: variable({
    name: 'OTEL_EXPORTER_OTLP_ENDPOINT',
    shownDefault: 'unset',
    help: 'OpenTelemetry collector that gets traces, such as http://127.0.0.1:4318; other OTEL_* count, too',
    fallback: false,
    parse: (text) => httpUrl(text) !== '',
  }),
  tracesEndpoint: variable({
    name: 'OTEL_EXPORTER_OTLP_TRACES_ENDPOINT',
    shownDefault: 'unset',
    help: 'the same, with its path: http://127.0.0.1:4318/v1/traces',
    fallback: false,
    parse: (text) => httpUrl(text) !== '',
  }),
  tracingDisabled: variable({
    name: 'OTEL_SDK_DISABLED',
    shownDefault: 'false',
    help: 'true: send no traces, even if an endpoint is set',
    fallback: false,
    parse: (text) => text.toLowerCase() === 'true',
  }),
  retentionDays: variable({
    name: 'RETENTION_DAYS',
    shownDefault: '90',
    help: 'days that received events are stored, and up to seven more; 0 keeps all',
    fallback: 90,
    parse: integer(0, 36_500),
  }),
  deduplicationDays: variable({
    name: 'DEDUPLICATION_DAYS',
    shownDefault: '400',
    help: 'days that events are recognised when they come again; longer than any sender repeats them',
    fallback: 400,
    parse: integer(30, 36_500),
  }),
} as const

/**
 * Reads the configuration. Throws a FatalError with one line for each variable that cannot be used;
 * values are not repeated in it, because some of them are secret.
 */
export function readConfig(env: Record<string, string | undefined> = process.env): Config {
  const faults: string[] = []
  const read = <T>({ name, fallback, parse }: Variable<T>): T => {
    const text = env[name]?.trim()
    if (text === undefined || text === '') return fallback
    try {
      return parse(text)
    } catch (error) {
      faults.push(`${name} ${(error as Error).message}`)
      return fallback
    }
  }
  const databaseUrl = read(VARIABLES.databaseUrl)
  const dataDir = resolve(read(VARIABLES.dataDir))
  const config: Config = {
    port: read(VARIABLES.port),
    host: read(VARIABLES.host),
    database:
      databaseUrl === 'none'
        ? { kind: 'none' }
        : databaseUrl
          ? { kind: 'url', url: databaseUrl }
          : { kind: 'embedded', dataDir },
    dataDir,
    publicUrl: read(VARIABLES.publicUrl),
    redisUrl: read(VARIABLES.redisUrl),
    rateLimit: {
      max: read(VARIABLES.rateLimitMax),
      windowMs: read(VARIABLES.rateLimitWindowMs),
      spareSigned: read(VARIABLES.rateLimitSpareSigned),
    },
    trustProxy: read(VARIABLES.trustProxy),
    lineApiUrl: read(VARIABLES.lineApiUrl),
    logLevel: read(VARIABLES.logLevel),
    metricsPort: read(VARIABLES.metricsPort),
    tracing:
      [read(VARIABLES.tracing), read(VARIABLES.tracesEndpoint)].includes(true) &&
      !read(VARIABLES.tracingDisabled),
    retentionDays: read(VARIABLES.retentionDays),
    deduplicationDays: read(VARIABLES.deduplicationDays),
  }
  if (faults.length > 0) throw new FatalError(faults.join('\n'))
  return config
}

/** What any program needs of the environment, and none of our variables: for processes that are configured anew. */
export function environmentOfPrograms(): Record<string, string> {
  const { PATH = '', HOME = '' } = process.env
  return { PATH, HOME }
}

/** The table of variables for `oa-audience --help`. */
export function describeVariables(): string {
  const rows = Object.values(VARIABLES).map(({ name, shownDefault, help }) => ({ name, shownDefault, help }))
  const nameWidth = Math.max(...rows.map((row) => row.name.length))
  const defaultWidth = Math.max(...rows.map((row) => row.shownDefault.length))
  return rows
    .map((row) => `  ${row.name.padEnd(nameWidth)}  ${row.shownDefault.padEnd(defaultWidth)}  ${row.help}`)
    .join('\n')
}

function integer(min: number, max: number): (text: string) => number {
  return (text) => {
    const value = /^\d{1,12}$/.test(text) ? Number(text) : Number.NaN
    if (!(value >= min && value <= max)) throw new Error(`must be a whole number from ${min} to ${max}`)
    return value
  }
}

function matching(pattern: RegExp, mend: string): (text: string) => string {
  return (text) => {
    if (!pattern.test(text)) throw new Error(mend)
    return text
  }
}

/** Options in the query are refused: a wrong one would end the service when it first connects. */
function redisUrl(text: string): string {
  const isAddress = /^rediss?:\/\/[^/?#\s]+(\/\d{0,5})?$/.test(text) && URL.canParse(text)
  if (!isAddress || new URL(text).hostname === '')
    throw new Error('must be a redis:// or rediss:// address (redis://user:password@host:6379/0)')
  return text
}

function postgresUrl(text: string): string {
  const mend = 'must be a postgres:// address (postgres://user:password@host:5432/database) or none'
  if (!/^postgres(ql)?:\/\/\S+$/.test(text)) throw new Error(mend)
  try {
    // A port in the query is checked by nobody else, and would end the service when it first connects.
    const port = Number(parseConnectionString(text).port ?? 5432)
    if (!(port >= 0 && port <= 65_535)) throw new Error(mend)
  } catch {
    throw new Error(mend)
  }
  return text
}

function httpUrl(text: string): string {
  if (!/^https?:\/\/\S+$/i.test(text) || !URL.canParse(text))
    throw new Error('must be an http:// or https:// address')
  const url = new URL(text)
  if (/[?#]/.test(text) || url.username !== '' || url.password !== '')
    throw new Error('must be an address without ?, # or credentials')
  return text.replace(/\/+$/, '')
}

function proxies(text: string): string[] {
  const names = new Set(['loopback', 'linklocal', 'uniquelocal'])
  return text.split(',').map((part) => {
    const proxy = part.trim()
    if (names.has(proxy)) return proxy
    const [address = '', prefix, rest] = proxy.split('/')
    const family = isIP(address)
    // A prefix of 0 would believe everybody.
    const prefixOk =
      prefix === undefined || (/^[1-9]\d{0,2}$/.test(prefix) && Number(prefix) <= (family === 4 ? 32 : 128))
    if (family === 0 || !prefixOk || rest !== undefined) {
      throw new Error(
        'must list addresses or CIDR ranges, comma separated, such as 10.0.0.0/8,127.0.0.1, or loopback, linklocal, uniquelocal',
      )
    }
    return proxy
  })
}
