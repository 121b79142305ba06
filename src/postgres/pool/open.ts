/** Opens the configured database: the embedded server or DATABASE_URL. */
import { setTimeout as sleep } from 'node:timers/promises'
import type { DatabaseChoice } from '../../config/config.ts'
import { parseDatabaseUrl, parseReplicasUrl, warnOfParameters } from '../../config/database-url.ts'
import type { Secret } from '../../config/secret.ts'
import { FatalError } from '../../errors.ts'
import { hasCluster } from '../embedded/cluster.ts'
import { EmbeddedServer } from '../embedded/server.ts'
import { DatabaseUnavailable } from '../faults.ts'
import { migrate, refuseUnfinishedRestore, requireMigrated } from '../schema/migrate.ts'
import { PostgresDatabase } from './postgres-database.ts'

export interface OpenDatabase {
  database: PostgresDatabase
  /** resolves when the schema is ready; rejects with a FatalError if it never can be */
  ready: Promise<void>
  close: () => Promise<void>
}

export interface Notices {
  info: (message: string) => void
  warn: (message: string) => void
}

const RETRY_MS = 1_000

/**
 * For the service, which responds to health checks while a DATABASE_URL that does not respond is retried.
 * @param prepareSchema runs before any other query and returns the names of what it applied; repeated if the database becomes
 * unavailable meanwhile
 */
export async function openForService(
  choice: PresentChoice,
  notices: Notices,
  prepareSchema: (database: PostgresDatabase) => Promise<string[]>,
): Promise<OpenDatabase> {
  if (choice.kind === 'url') warnOfParameters(choice.url.reveal(), notices.warn)
  const lost = (error: Error & { code?: string }) =>
    notices.warn(`a database connection was lost (${error.code ?? error.message})`)
  const server = choice.kind === 'embedded' ? new EmbeddedServer(choice.dataDir) : null
  await server?.own(lost)
  const database = createDatabase(choice, server, lost)
  const stop = new AbortController()
  return {
    database,
    ready: becomeReady(database, choice, notices, prepareSchema, stop.signal),
    close: async () => {
      stop.abort()
      await database.close()
      await server?.stop()
    },
  }
}

type PresentChoice = Exclude<DatabaseChoice, { kind: 'none' }>

function createDatabase(
  choice: PresentChoice,
  server: EmbeddedServer | null,
  onLost: (error: Error) => void,
) {
  const target = choice.kind === 'url' ? choice.url.reveal() : (server as EmbeddedServer).connection
  const replicas = choice.kind === 'url' ? choice.replicas : null
  const servers = replicas && {
    servers: parseReplicasUrl(replicas.url.reveal()),
    maxLagMs: replicas.maxLagMs,
  }
  return new PostgresDatabase(target, onLost, servers, choice.secretKeys)
}

/** Commands use it. Throws a FatalError if DATA_DIR has no database, or if the schema is not up to date. */
export async function withDatabase<T>(
  choice: DatabaseChoice,
  work: (database: PostgresDatabase) => Promise<T>,
): Promise<T> {
  requireDatabase(choice)
  return withOpened(choice, requireUsable, work)
}

export async function requireUsable(database: PostgresDatabase): Promise<void> {
  await refuseUnfinishedRestore(database)
  await requireMigrated(database)
}

/** Without this check, a command in the wrong folder would create a second database. Throws a FatalError. */
export function requireDatabase(choice: DatabaseChoice): void {
  if (choice.kind !== 'embedded' || hasCluster(choice.dataDir)) return
  throw new FatalError(
    `DATA_DIR (${choice.dataDir}) has no database. Run the command in the folder of the service, or set DATA_DIR or DATABASE_URL ` +
      'to the values of the service. To create a new database here, run "oa-audience setup".',
  )
}

/** `setup` calls it. Returns the directory of the embedded database if it created one. */
export async function makeMissingDatabase(choice: DatabaseChoice): Promise<string | null> {
  if (choice.kind !== 'embedded' || hasCluster(choice.dataDir)) return null
  await migrateDatabase(choice)
  return choice.dataDir
}

export function migrateDatabase(choice: DatabaseChoice): Promise<string[]> {
  const prepare = async (database: PostgresDatabase) => {
    await refuseUnfinishedRestore(database)
    return migrate(database)
  }
  return withOpened(choice, prepare, async (_, applied) => applied)
}

/**
 * Commands that change the schema use it.
 * @param prepare checks or changes the schema before any other query runs
 */
export async function withOpened<P, T>(
  choice: DatabaseChoice,
  prepare: (database: PostgresDatabase) => Promise<P>,
  work: (database: PostgresDatabase, prepared: P) => Promise<T>,
): Promise<T> {
  if (choice.kind === 'none') throw new FatalError('DATABASE_URL is none: this command needs a database')
  const server = choice.kind === 'embedded' ? new EmbeddedServer(choice.dataDir) : null
  const ignoreInterrupts = server && exitOnInterrupt()
  try {
    await server?.use()
    const database = createDatabase(choice, server, () => undefined)
    try {
      await database.requireSessions()
      const prepared = await prepare(database)
      database.markReady()
      return await work(database, prepared)
    } finally {
      await database.close()
    }
  } catch (error) {
    if (!(error instanceof DatabaseUnavailable)) throw error
    throw new FatalError(explainUnavailable(choice, error))
  } finally {
    await server?.release()
    ignoreInterrupts?.()
  }
}

/** Without these listeners, Ctrl-C would not run the exit listener that stops the embedded server. */
export function exitOnInterrupt(): () => void {
  const interrupt = () => process.exit(130)
  process.once('SIGINT', interrupt).once('SIGTERM', interrupt)
  return () => void process.off('SIGINT', interrupt).off('SIGTERM', interrupt)
}

async function becomeReady(
  database: PostgresDatabase,
  choice: PresentChoice,
  { info, warn }: Notices,
  prepareSchema: (database: PostgresDatabase) => Promise<string[]>,
  stop: AbortSignal,
): Promise<void> {
  for (let attempt = 1; !stop.aborted; attempt += 1) {
    try {
      await database.requireSessions()
      for (const name of await prepareSchema(database)) info(`migrated: ${name}`)
      database.markReady()
      if (attempt > 1) info('the database responds now')
      return
    } catch (error) {
      if (!(error instanceof DatabaseUnavailable)) throw error
      if (stop.aborted) return
      // Warn at the first attempt, and then once in 30 s.
      if (attempt % 30 === 1)
        warn(`${explainUnavailable(choice, error)} The service tries again every second.`)
      await sleep(RETRY_MS, undefined, { signal: stop }).catch(() => undefined)
    }
  }
}

/** SQLSTATE of failed connections, and of a full disk. Other messages of the server may contain stored values. */
const OF_CONNECTION = /^(28|3D|53|57P)/

function explainUnavailable(choice: DatabaseChoice, error: Error): string {
  const { message, code, severity } = (error.cause ?? error) as Error & { code?: string; severity?: string }
  const isShown = severity === undefined || OF_CONNECTION.test(code ?? '')
  const reason = (isShown && message) || code || error.message
  return choice.kind === 'url'
    ? `the database at ${placeOf(choice.url)} cannot be used: ${reason}. ${fixOf(message, code)}`
    : `the embedded database cannot be used: ${reason}. Try again later.`
}

/** @param code of Node.js or of PostgreSQL */
function fixOf(message: string, code = ''): string {
  if (/^(UNABLE_TO|SELF_SIGNED|DEPTH_ZERO)/.test(code))
    return (
      'Set sslrootcert=FILE in DATABASE_URL to the certificates of the CA that signed the server. Providers publish them: ' +
      'docs/operate/managed-postgresql.md has the addresses.'
    )
  if (code === 'ERR_TLS_CERT_ALTNAME_INVALID')
    return 'Write the host that the certificate names into DATABASE_URL, or set sslmode=verify-ca, which does not compare names.'
  if (message.endsWith('no encryption')) return 'Set sslmode=verify-full or sslmode=require in DATABASE_URL.'
  if (!message.includes('does not support SSL')) return 'Start it, or correct DATABASE_URL.'
  return 'Turn TLS on there, or set sslmode=disable in DATABASE_URL.'
}

const placeOf = (url: Secret) =>
  parseDatabaseUrl(url.reveal())
    .servers.map(({ name }) => name)
    .join(', ')
