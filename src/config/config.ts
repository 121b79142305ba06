/** The only reader of environment variables: names, units, defaults and validation. */

import { readFileSync, statSync } from 'node:fs'
import { resolve } from 'node:path'
import { FatalError } from '../errors.ts'
import { systemReason } from '../system-reason.ts'
import { Secret } from './secret.ts'
import { SecretKeys } from './secret-keys.ts'
import { type LOG_LEVELS, VARIABLES, type Variable } from './variables.ts'

export type DatabaseChoice =
  | { kind: 'embedded'; dataDir: string; secretKeys?: SecretKeys }
  | { kind: 'url'; url: Secret; replicas: ReplicasChoice | null; secretKeys?: SecretKeys }
  | { kind: 'none' }

/** The servers for reads that may be slightly out of date. */
export interface ReplicasChoice {
  url: Secret
  /** maximum age of a result */
  maxLagMs: number
}

export interface Config {
  port: number
  host: string
  /** processes that serve the port */
  workers: number
  database: DatabaseChoice
  dataDir: string
  /** without a trailing slash */
  publicUrl: string | null
  redisUrl: Secret | null
  /** max or windowMs 0: no limit */
  rateLimit: { max: number; windowMs: number; spareSigned: boolean }
  /** addresses, CIDR ranges, loopback, linklocal or uniquelocal */
  trustProxy: string[]
  /** without a trailing slash */
  lineApiUrl: string
  logLevel: (typeof LOG_LEVELS)[number]
  metricsPort: number | null
  /** null: no console */
  console: ConsoleConfig | null
  /** without a trailing slash; null: messages have no links */
  consoleUrl: string | null
  /** null: no channels of the format email */
  smtpUrl: Secret | null
  /** null: nothing is requested */
  heartbeatUrl: Secret | null
  /** directory; null: erasures are recorded in the database only */
  erasureLedger: string | null
  /** days; 0: stored events are never deleted */
  retentionDays: number
  /** days */
  deduplicationDays: number
  /** days */
  trackingRetentionDays: number
  /** days */
  auditRetentionDays: number
}

export interface ConsoleConfig {
  port: number
  /** null: only operators sign in, and one of them must be an owner */
  token: Secret | null
  /** header with the operator's address from a proxy in `trustProxy`, in lower case; null: no single sign-on */
  userHeader: string | null
}

/** Throws a FatalError with one line per invalid variable. The lines do not quote the values, because some are secret. */
export function readConfig(env: Record<string, string | undefined> = process.env): Config {
  const faults: string[] = []
  const read = <T>(variable: Variable<T>): T => {
    const { name, fallback, parse } = variable
    try {
      const text = textOf(variable, env)
      return text === '' ? fallback : parse(text)
    } catch (error) {
      faults.push(`${name} ${(error as Error).message}`)
      return fallback
    }
  }
  const dataDir = resolve(read(VARIABLES.dataDir))
  const trustProxy = read(VARIABLES.trustProxy)
  const config: Config = {
    port: read(VARIABLES.port),
    host: read(VARIABLES.host),
    workers: read(VARIABLES.workers),
    database: chooseDatabase(
      read(VARIABLES.databaseUrl),
      dataDir,
      readReplicas(read(VARIABLES.databaseReadUrl), read(VARIABLES.readMaxLagMs)),
      read(VARIABLES.secretsKeys) ?? SecretKeys.NONE,
      faults,
    ),
    dataDir,
    publicUrl: read(VARIABLES.publicUrl),
    redisUrl: read(VARIABLES.redisUrl),
    rateLimit: {
      max: read(VARIABLES.rateLimitMax),
      windowMs: read(VARIABLES.rateLimitWindowMs),
      spareSigned: read(VARIABLES.rateLimitSpareSigned),
    },
    trustProxy,
    lineApiUrl: read(VARIABLES.lineApiUrl),
    logLevel: read(VARIABLES.logLevel),
    metricsPort: read(VARIABLES.metricsPort),
    console: chooseConsole(
      read(VARIABLES.consolePort),
      read(VARIABLES.consoleToken),
      read(VARIABLES.consoleUserHeader),
      trustProxy,
      faults,
    ),
    consoleUrl: read(VARIABLES.consoleUrl),
    smtpUrl: read(VARIABLES.smtpUrl),
    heartbeatUrl: read(VARIABLES.heartbeatUrl),
    erasureLedger: read(VARIABLES.erasureLedger),
    retentionDays: read(VARIABLES.retentionDays),
    deduplicationDays: read(VARIABLES.deduplicationDays),
    trackingRetentionDays: read(VARIABLES.trackingRetentionDays),
    auditRetentionDays: read(VARIABLES.auditRetentionDays),
  }
  if (faults.length > 0) throw new FatalError(faults.join('\n'))
  return config
}

function chooseDatabase(
  url: Secret | 'none' | null,
  dataDir: string,
  replicas: ReplicasChoice | null,
  secretKeys: SecretKeys,
  faults: string[],
): DatabaseChoice {
  if (url !== null && url !== 'none') return { kind: 'url', url, replicas, secretKeys }
  if (replicas !== null) {
    faults.push(
      'DATABASE_READ_URL is set, but DATABASE_URL is not: set DATABASE_URL to the primary of the replicas',
    )
  }
  return url === 'none' ? { kind: 'none' } : { kind: 'embedded', dataDir, secretKeys }
}

function readReplicas(url: Secret | null, maxLagMs: number): ReplicasChoice | null {
  return url && { url, maxLagMs }
}

function chooseConsole(
  port: number | null,
  token: Secret | null,
  userHeader: string | null,
  trustProxy: string[],
  faults: string[],
): ConsoleConfig | null {
  if (userHeader !== null && trustProxy.length === 0) {
    faults.push(
      'CONSOLE_USER_HEADER is set, but TRUST_PROXY is not: set TRUST_PROXY to the proxy that sends this header',
    )
  }
  return port === null ? null : { port, token, userHeader }
}

/**
 * Removes SECRETS_KEYS from the environment of this process, so that child processes and diagnostic reports of Node.js do not contain it.
 * Call it after readConfig. Returns the former value.
 */
export function removeSecretsKeys(env: Record<string, string | undefined>): Secret | null {
  const { [VARIABLES.secretsKeys.name]: text } = env
  delete env[VARIABLES.secretsKeys.name]
  return text ? new Secret(text) : null
}

/** The variables of SECRETS_KEYS that are set, for a child process that uses the same database. */
export function variablesOfSecretsKeys(
  env: Record<string, string | undefined> = process.env,
): Record<string, string> {
  const { name } = VARIABLES.secretsKeys
  return Object.fromEntries([name, fileNameOf(name)].flatMap((set) => (env[set] ? [[set, env[set]]] : [])))
}

/** The environment for a child process that must not inherit this service's configuration. */
export function environmentOfPrograms(): Record<string, string> {
  const { PATH = '', HOME = '' } = process.env
  return { PATH, HOME }
}

/** For pg_dump and pg_restore. Libpq's variables, such as PGSSLROOTCERT, also apply to the connections of this process. */
export function environmentOfPostgresPrograms(): Record<string, string> {
  const ofLibpq = Object.entries(process.env).filter(([name]) => name.startsWith('PG'))
  return { ...environmentOfPrograms(), ...(Object.fromEntries(ofLibpq) as Record<string, string>) }
}

/** The variables as a table for `oa-audience --help`. */
export function describeVariables(): string {
  const rows = Object.values<Variable<unknown>>(VARIABLES).map(({ name, fallback, help, isSecret }) => ({
    ...{ name, help, isSecret },
    // No value, or an empty list of proxies.
    shownDefault: [fallback].flat().join(',') || 'unset',
  }))
  const nameWidth = Math.max(...rows.map((row) => row.name.length))
  const defaultWidth = Math.max(...rows.map((row) => row.shownDefault.length))
  const secret = rows.filter((row) => row.isSecret).map((row) => fileNameOf(row.name))
  return [
    ...rows.map(
      (row) => `  ${row.name.padEnd(nameWidth)}  ${row.shownDefault.padEnd(defaultWidth)}  ${row.help}`,
    ),
    '',
    '  A secret can be in a file instead, which one of these variables names:',
    `  ${secret.join(', ')}`,
  ].join('\n')
}

// The text of a variable: its value, or the content of the file that NAME_FILE names.

/** Empty if neither variable is set. Throws an Error whose message continues "NAME …". */
export function textOf(
  { name, isSecret }: Pick<Variable<unknown>, 'name' | 'isSecret'>,
  env: Record<string, string | undefined>,
): string {
  const text = env[name]?.trim() ?? ''
  const file = isSecret ? (env[fileNameOf(name)]?.trim() ?? '') : ''
  if (file === '') return text
  if (text !== '') throw new Error(`and ${fileNameOf(name)} are both set: set one of them`)
  const content = readSecretFile(name, file)
  if (content === '') throw new Error(`has no value: the file of ${fileNameOf(name)} is empty`)
  return content
}

/** The largest secrets are keys and URLs of some hundred bytes. */
const SECRET_FILE_MAX_BYTES = 64 * 1024

/** Reading a pipe would wait for its writer, and a device such as /dev/zero has no end. */
function readSecretFile(name: string, file: string): string {
  const refuse = (why: string) => new Error(`has no value: the file of ${fileNameOf(name)} ${why}`)
  try {
    const found = statSync(file)
    if (!found.isFile() && !found.isDirectory()) throw refuse('is not a regular file')
    if (found.size > SECRET_FILE_MAX_BYTES) throw refuse('is larger than 64 KiB')
    return readFileSync(file, 'utf8').trim()
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException
    throw code === undefined ? error : refuse(`cannot be read: ${systemReason(error)}`)
  }
}

export const fileNameOf = (name: string) => `${name}_FILE`
