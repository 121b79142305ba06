/** The environment variables: names, defaults, help texts and parsers. config.ts reads them. */
import {
  atLeast,
  boolean,
  httpUrl,
  integer,
  listenAddress,
  matching,
  oneOf,
  postgresUrl,
  proxies,
  proxyUrl,
  redisUrl,
  replicasUrl,
  smtpUrl,
  watchdogUrl,
} from './parsers.ts'
import { Secret } from './secret.ts'
import { SecretKeys } from './secret-keys.ts'

/** 24 random letters and digits have 142 bits. */
const CONSOLE_TOKEN_MIN_LENGTH = 24

const LOG_LEVELS = ['fatal', 'error', 'warn', 'info', 'debug', 'trace', 'silent'] as const

export interface Variable<T> {
  name: string
  help: string
  /** the value when the variable is unset or empty, which --help shows; null: there is none */
  fallback: T
  /** throws an Error whose message continues "NAME …" and never quotes the value, which may be secret */
  parse: (text: string) => T
  /** whether the value may contain a secret, so that NAME_FILE can name a file with the value instead */
  isSecret?: true
}

const variable = <T>(definition: Variable<T>): Variable<T> => definition

export const VARIABLES = {
  port: variable({
    name: 'PORT',
    help: 'TCP port of the service; 0: any free port',
    fallback: 3000,
    parse: integer(0, 65_535),
  }),
  host: variable({
    name: 'HOST',
    help: 'IP address or host name to listen on; 0.0.0.0: every interface',
    fallback: '127.0.0.1',
    parse: listenAddress,
  }),
  workers: variable({
    name: 'WEB_CONCURRENCY',
    help: 'number of processes that share PORT, such as one per core; each counts as an instance',
    fallback: 1,
    parse: integer(1, 64),
  }),
  databaseUrl: variable<Secret | 'none' | null>({
    name: 'DATABASE_URL',
    isSecret: true,
    help: 'postgres://… of the database, or of its primary and standbys (h1,h2 with target_session_attrs=read-write); unset: an embedded PostgreSQL in DATA_DIR; none: no database',
    fallback: null,
    parse: (text) => (text === 'none' ? 'none' : new Secret(postgresUrl(text))),
  }),
  databaseReadUrl: variable<Secret | null>({
    name: 'DATABASE_READ_URL',
    isSecret: true,
    help: 'postgres://… of replicas of DATABASE_URL (h1,h2), which then serve streams, exports, searches and pages that may be old',
    fallback: null,
    parse: (text) => new Secret(replicasUrl(text)),
  }),
  readMaxLagMs: variable({
    name: 'READ_MAX_LAG_MS',
    help: 'maximum age in milliseconds of data from a replica; the primary serves reads if every replica is older',
    fallback: 2_000,
    parse: integer(1_000, 30_000),
  }),
  dataDir: variable({
    name: 'DATA_DIR',
    help: 'directory of the embedded PostgreSQL',
    fallback: './data',
    parse: matching(/^[^\0\n]+$/, 'must be the path of a directory'),
  }),
  publicUrl: variable<string | null>({
    name: 'PUBLIC_URL',
    help: 'base URL at which the platforms reach this service, such as https://audience.example.com',
    fallback: null,
    parse: httpUrl,
  }),
  redisUrl: variable<Secret | null>({
    name: 'REDIS_URL',
    isSecret: true,
    help: 'redis://… of the server that shares the rate limit between instances',
    fallback: null,
    parse: (text) => new Secret(redisUrl(text)),
  }),
  rateLimitMax: variable({
    name: 'RATE_LIMIT_MAX',
    help: 'requests per window and client address; 0: no limit',
    fallback: 6000,
    parse: integer(0, 1_000_000_000),
  }),
  rateLimitWindowMs: variable({
    name: 'RATE_LIMIT_WINDOW_MS',
    help: 'length of the window in milliseconds; 0: no limit',
    fallback: 60_000,
    parse: integer(0, 86_400_000),
  }),
  rateLimitSpareSigned: variable({
    name: 'RATE_LIMIT_SPARE_SIGNED',
    help: 'true: deliveries with a valid signature do not count',
    fallback: false,
    parse: boolean,
  }),
  trustProxy: variable<string[]>({
    name: 'TRUST_PROXY',
    help: 'proxies whose X-Forwarded-For is trusted: addresses, CIDR ranges, loopback, linklocal, uniquelocal',
    fallback: [],
    parse: proxies,
  }),
  lineApiUrl: variable({
    name: 'LINE_API_URL',
    help: "base URL of LINE's API",
    fallback: 'https://api.line.me',
    parse: httpUrl,
  }),
  egressProxy: variable<Secret | null>({
    name: 'EGRESS_PROXY',
    isSecret: true,
    help: 'http://[user:password@]host:port of the proxy for requests to LINE, endpoints, notifications and HEARTBEAT_URL; unset: none',
    fallback: null,
    parse: (text) => new Secret(proxyUrl(text)),
  }),
  logLevel: variable<(typeof LOG_LEVELS)[number]>({
    name: 'LOG_LEVEL',
    help: `lowest level that is logged: ${LOG_LEVELS.join(', ')}`,
    fallback: 'info',
    parse: oneOf(LOG_LEVELS),
  }),
  metricsPort: variable<number | null>({
    name: 'METRICS_PORT',
    help: 'TCP port of a separate listener on HOST for Prometheus metrics; 0: any free port',
    fallback: null,
    parse: integer(0, 65_535),
  }),
  consolePort: variable<number | null>({
    name: 'CONSOLE_PORT',
    help: 'TCP port of a separate listener on HOST for the web console; 0: any free port',
    fallback: null,
    parse: integer(0, 65_535),
  }),
  consoleToken: variable<Secret | null>({
    name: 'CONSOLE_TOKEN',
    isSecret: true,
    help: `token of the first owner and of emergencies, at least ${CONSOLE_TOKEN_MIN_LENGTH} characters; optional once an owner exists`,
    fallback: null,
    parse: (text) => new Secret(atLeast(CONSOLE_TOKEN_MIN_LENGTH)(text)),
  }),
  consoleUserHeader: variable<string | null>({
    name: 'CONSOLE_USER_HEADER',
    help: 'header with which a proxy of TRUST_PROXY names the operator, such as x-forwarded-email; unset: no single sign-on',
    fallback: null,
    parse: (text) => matching(/^[a-z][a-z0-9-]{0,63}$/, 'must be the name of a header')(text.toLowerCase()),
  }),
  consoleUrl: variable<string | null>({
    name: 'CONSOLE_URL',
    help: 'base URL at which operators reach the console, for links in notifications and invitations',
    fallback: null,
    parse: httpUrl,
  }),
  smtpUrl: variable<Secret | null>({
    name: 'SMTP_URL',
    isSecret: true,
    help: 'smtps://user:password@host:465?from=alerts@example.com of the mail server for notifications; unset: no email',
    fallback: null,
    parse: (text) => new Secret(smtpUrl(text)),
  }),
  heartbeatUrl: variable<Secret | null>({
    name: 'HEARTBEAT_URL',
    isSecret: true,
    help: 'URL of an outside watchdog, requested once a minute while the service can store deliveries',
    fallback: null,
    parse: (text) => new Secret(watchdogUrl(text)),
  }),
  secretsKeys: variable<SecretKeys | null>({
    name: 'SECRETS_KEYS',
    isSecret: true,
    help: 'id:base64[,id:base64…]: keys of 32 bytes for the secrets in the database; the first one encrypts, and all decrypt; if unset, new secrets are plain text',
    fallback: null,
    parse: SecretKeys.parse,
  }),
  erasureLedger: variable<string | null>({
    name: 'ERASURE_LEDGER',
    help: 'directory outside of the database and its backups, where each erasure is recorded before it is confirmed; if unset, none is recorded',
    fallback: null,
    parse: matching(/^[^\0\n]+$/, 'must be the path of a directory'),
  }),
  retentionDays: variable({
    name: 'RETENTION_DAYS',
    help: 'days that received events are kept, plus up to 7; 0: forever',
    fallback: 90,
    parse: integer(0, 36_500),
  }),
  deduplicationDays: variable({
    name: 'DEDUPLICATION_DAYS',
    help: 'days that duplicates are recognised; longer than any sender retries',
    fallback: 400,
    parse: integer(30, 36_500),
  }),
  auditRetentionDays: variable({
    name: 'AUDIT_RETENTION_DAYS',
    help: 'days that the activity log is kept',
    fallback: 400,
    parse: integer(30, 36_500),
  }),
  trackingRetentionDays: variable({
    name: 'TRACKING_RETENTION_DAYS',
    help: 'days that tracking events are kept, plus up to 1; what they add to members stays',
    fallback: 7,
    parse: integer(1, 36_500),
  }),
} as const
