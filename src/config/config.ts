/** The only reader of environment variables: names, units, defaults and validation. */
import { readFileSync, statSync } from 'node:fs'
import { resolve } from 'node:path'
import { FatalError } from '../errors.ts'
import { Secret } from './secret.ts'
import { SecretKeys } from './secret-keys.ts'
import { systemReason } from './system-reason.ts'
import { VARIABLES, type Variable } from './variables.ts'

export type DatabaseChoice =
  | { kind: 'embedded'; dataDir: string; secretKeys?: SecretKeys }
  | { kind: 'url'; url: Secret; replicas: ReplicasChoice | null; secretKeys?: SecretKeys }
  | { kind: 'none' }

interface ReplicasChoice {
  url: Secret
  maxLagMs: number
}

export type Config = ReturnType<typeof readConfig>

interface ConsoleConfig {
  port: number
  /** null: only operators sign in, and one of them must be an owner */
  token: Secret | null
  /** header with the operator's address from a proxy in `trustProxy`, in lower case; null: no single sign-on */
  userHeader: string | null
}

type Values = { [Key in keyof typeof VARIABLES]: (typeof VARIABLES)[Key]['fallback'] }

/** Throws a FatalError with one line per invalid variable. The lines do not quote the values, because some are secret. */
export function readConfig(env: Record<string, string | undefined> = process.env) {
  const faults: string[] = []
  const { databaseUrl, databaseReadUrl, readMaxLagMs, secretsKeys, ...values } = readValues(env, faults)
  const { rateLimitMax, rateLimitWindowMs, rateLimitSpareSigned, ...others } = values
  const { consolePort, consoleToken, consoleUserHeader, ...config } = others
  const dataDir = resolve(config.dataDir)
  const replicas = databaseReadUrl && { url: databaseReadUrl, maxLagMs: readMaxLagMs }
  const result = {
    ...config,
    dataDir,
    database: chooseDatabase(databaseUrl, dataDir, replicas, secretsKeys ?? SecretKeys.NONE, faults),
    /** max or windowMs 0: no limit */
    rateLimit: { max: rateLimitMax, windowMs: rateLimitWindowMs, spareSigned: rateLimitSpareSigned },
    console: chooseConsole(consolePort, consoleToken, consoleUserHeader, config.trustProxy, faults),
    serviceLinks: Object.values<Variable<unknown>>(VARIABLES)
      .map(({ name }) => name)
      .filter((name) => isServiceLink(name, env[name])),
  }
  // 0 is any free one.
  const ports = [config.port, consolePort, config.metricsPort].filter((port) => port)
  if (new Set(ports).size < ports.length) faults.push('PORT, CONSOLE_PORT and METRICS_PORT must differ')
  if (faults.length > 0) throw new FatalError(faults.join('\n'))
  return result
}

/**
 * In every pod, Kubernetes sets NAME_PORT to tcp://address:port for each Service NAME of the namespace. Docker's links do the same. A value
 * that the pod itself sets comes first.
 */
function isServiceLink(name: string, text = ''): boolean {
  return name.endsWith('_PORT') && /^(tcp|udp|sctp):\/\//.test(text.trim())
}

export const SERVICE_LINK =
  'ignored, because it is the address of a Kubernetes Service of this name. Set enableServiceLinks: false in the pod.'

function readValues(env: Record<string, string | undefined>, faults: string[]): Values {
  const read = (variable: Variable<unknown>) => {
    const { name, fallback, parse } = variable
    try {
      const text = textOf(variable, env)
      return text === '' ? fallback : parse(text)
    } catch (error) {
      faults.push(`${name} ${(error as Error).message}`)
      return fallback
    }
  }
  const variables = Object.entries<Variable<unknown>>(VARIABLES)
  return Object.fromEntries(variables.map(([key, variable]) => [key, read(variable)])) as Values
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

/** Child processes and diagnostic reports of Node.js must not contain SECRETS_KEYS. Call it after readConfig. Returns the former value. */
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

export function describeVariables(): string {
  const rows = Object.values<Variable<unknown>>(VARIABLES).map(({ name, fallback, help, isSecret }) => ({
    name,
    help,
    isSecret,
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
function textOf(
  { name, isSecret }: Pick<Variable<unknown>, 'name' | 'isSecret'>,
  env: Record<string, string | undefined>,
): string {
  const text = isServiceLink(name, env[name]) ? '' : (env[name]?.trim() ?? '')
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

const fileNameOf = (name: string) => `${name}_FILE`
