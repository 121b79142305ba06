/** The only reader of environment variables: names, units, defaults and validation. */
import { resolve } from 'node:path'
import {
  boolean,
  httpUrl,
  integer,
  matching,
  oneOf,
  postgresUrl,
  proxies,
  redisUrl,
} from './config-parsers.ts'
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
  /** max or windowMs 0: no limit */
  rateLimit: { max: number; windowMs: number; spareSigned: boolean }
  /** addresses, CIDR ranges or the names loopback, linklocal, uniquelocal */
  trustProxy: string[]
  /** without a trailing slash */
  lineApiUrl: string
  logLevel: (typeof LOG_LEVELS)[number]
  metricsPort: number | null
  /** sends traces to the collector that OTEL_* names */
  tracing: boolean
  /** days; 0: stored events are never deleted */
  retentionDays: number
  /** days */
  deduplicationDays: number
}

interface Variable<T> {
  name: string
  /** the default as --help shows it */
  shownDefault: string
  help: string
  /** the value when the variable is unset or empty */
  fallback: T
  /** throws an Error whose message continues "NAME …" and never quotes the value, which may be secret */
  parse: (text: string) => T
}

const variable = <T>(definition: Variable<T>): Variable<T> => definition

const VARIABLES = {
  port: variable({
    name: 'PORT',
    shownDefault: '3000',
    help: 'TCP port of the service; 0: any free port',
    fallback: 3000,
    parse: integer(0, 65_535),
  }),
  host: variable({
    name: 'HOST',
    shownDefault: '127.0.0.1',
    help: 'IP address or host name to listen on; 0.0.0.0: every interface',
    fallback: '127.0.0.1',
    parse: matching(/^[A-Za-z0-9.:_-]+$/, 'must be an IP address or a host name, such as 0.0.0.0'),
  }),
  databaseUrl: variable<Secret | 'none' | null>({
    name: 'DATABASE_URL',
    shownDefault: 'unset',
    help: 'postgres://… of the database; unset: an embedded PostgreSQL in DATA_DIR; none: no database',
    fallback: null,
    parse: (text) => (text === 'none' ? 'none' : new Secret(postgresUrl(text))),
  }),
  dataDir: variable({
    name: 'DATA_DIR',
    shownDefault: './data',
    help: 'directory of the embedded PostgreSQL',
    fallback: './data',
    parse: matching(/^[^\0\n]+$/, 'must be the path of a directory'),
  }),
  publicUrl: variable<string | null>({
    name: 'PUBLIC_URL',
    shownDefault: 'unset',
    help: 'base URL at which the platforms reach this service, such as https://audience.example.com',
    fallback: null,
    parse: httpUrl,
  }),
  redisUrl: variable<Secret | null>({
    name: 'REDIS_URL',
    shownDefault: 'unset',
    help: 'redis://… of the server that shares the rate limit between instances',
    fallback: null,
    parse: (text) => new Secret(redisUrl(text)),
  }),
  rateLimitMax: variable({
    name: 'RATE_LIMIT_MAX',
    shownDefault: '6000',
    help: 'requests per window and client address; 0: no limit',
    fallback: 6000,
    parse: integer(0, 1_000_000_000),
  }),
  rateLimitWindowMs: variable({
    name: 'RATE_LIMIT_WINDOW_MS',
    shownDefault: '60000',
    help: 'length of the window in milliseconds; 0: no limit',
    fallback: 60_000,
    parse: integer(0, 86_400_000),
  }),
  rateLimitSpareSigned: variable({
    name: 'RATE_LIMIT_SPARE_SIGNED',
    shownDefault: 'false',
    help: 'true: deliveries with a valid signature do not count',
    fallback: false,
    parse: boolean,
  }),
  trustProxy: variable<string[]>({
    name: 'TRUST_PROXY',
    shownDefault: 'unset',
    help: 'proxies whose X-Forwarded-For is trusted: addresses, CIDR ranges, loopback, linklocal, uniquelocal',
    fallback: [],
    parse: proxies,
  }),
  lineApiUrl: variable({
    name: 'LINE_API_URL',
    shownDefault: 'https://api.line.me',
    help: "base URL of the messaging platform's API",
    fallback: 'https://api.line.me',
    parse: httpUrl,
  }),
  logLevel: variable<Config['logLevel']>({
    name: 'LOG_LEVEL',
    shownDefault: 'info',
    help: `lowest level that is logged: ${LOG_LEVELS.join(', ')}`,
    fallback: 'info',
    parse: oneOf(LOG_LEVELS),
  }),
  metricsPort: variable<number | null>({
    name: 'METRICS_PORT',
    shownDefault: 'unset',
    help: 'TCP port of a separate listener on HOST for Prometheus metrics; 0: any free port',
    fallback: null,
    parse: integer(0, 65_535),
  }),
  tracing: variable({
    name: 'OTEL_EXPORTER_OTLP_ENDPOINT',
    shownDefault: 'unset',
    help: 'base URL of the OpenTelemetry collector, such as http://127.0.0.1:4318; other OTEL_* also apply',
    fallback: false,
    parse: (text) => httpUrl(text) !== '',
  }),
  tracesEndpoint: variable({
    name: 'OTEL_EXPORTER_OTLP_TRACES_ENDPOINT',
    shownDefault: 'unset',
    help: 'full URL for traces, such as http://127.0.0.1:4318/v1/traces',
    fallback: false,
    parse: (text) => httpUrl(text) !== '',
  }),
  tracingDisabled: variable({
    name: 'OTEL_SDK_DISABLED',
    shownDefault: 'false',
    help: 'true: no traces are sent, even if an endpoint is set',
    fallback: false,
    parse: (text) => text.toLowerCase() === 'true',
  }),
  retentionDays: variable({
    name: 'RETENTION_DAYS',
    shownDefault: '90',
    help: 'days that received events are kept, plus up to 7; 0: for ever',
    fallback: 90,
    parse: integer(0, 36_500),
  }),
  deduplicationDays: variable({
    name: 'DEDUPLICATION_DAYS',
    shownDefault: '400',
    help: 'days that duplicates are recognised; longer than any sender retries',
    fallback: 400,
    parse: integer(30, 36_500),
  }),
} as const

/**
 * Throws a FatalError with one line per invalid variable. The lines do not quote the values, because some are secret.
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
  const dataDir = resolve(read(VARIABLES.dataDir))
  const config: Config = {
    port: read(VARIABLES.port),
    host: read(VARIABLES.host),
    database: chooseDatabase(read(VARIABLES.databaseUrl), dataDir),
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

function chooseDatabase(url: Secret | 'none' | null, dataDir: string): DatabaseChoice {
  if (url === 'none') return { kind: 'none' }
  return url === null ? { kind: 'embedded', dataDir } : { kind: 'url', url }
}

/** The environment for a child process that must not inherit this service's configuration. */
export function environmentOfPrograms(): Record<string, string> {
  const { PATH = '', HOME = '' } = process.env
  return { PATH, HOME }
}

/** The variables as a table for `oa-audience --help`. */
export function describeVariables(): string {
  const rows = Object.values(VARIABLES).map(({ name, shownDefault, help }) => ({ name, shownDefault, help }))
  const nameWidth = Math.max(...rows.map((row) => row.name.length))
  const defaultWidth = Math.max(...rows.map((row) => row.shownDefault.length))
  return rows
    .map((row) => `  ${row.name.padEnd(nameWidth)}  ${row.shownDefault.padEnd(defaultWidth)}  ${row.help}`)
    .join('\n')
}
