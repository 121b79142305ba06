/** Data directories of an embedded PostgreSQL. */
import { execFileSync } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { beforeAll } from 'vitest'
import { EMBEDDED_DATABASE, SUPERUSER } from '../../src/postgres/embedded/cluster.ts'
import type { Connection } from '../../src/postgres/embedded/server.ts'
import { migrateDatabase } from '../../src/postgres/pool/open.ts'
import { TextDatabase } from '../../tools/text-database.ts'
import { temporaryDirectory } from './process.ts'

/**
 * For a test file: returns a function that makes a migrated DATA_DIR, whose server is stopped. initdb and the migrations
 * run once per file, because they take more than a second.
 */
export function setUpDataDirectories(): (name?: string) => string {
  const template = temporaryDirectory()
  beforeAll(() => migrateDatabase({ kind: 'embedded', dataDir: template }))
  return (name = 'data') => {
    const directory = join(temporaryDirectory(), name)
    // As root, the files belong to the server's own user. Unlike cpSync, cp -a keeps the owner.
    execFileSync('cp', ['-a', template, directory])
    return directory
  }
}

/** The process id in the server's lock file. Throws if no server runs. */
export function serverPid(dataDir: string): number {
  return Number.parseInt(readFileSync(join(dataDir, 'postgres/postmaster.pid'), 'utf8'), 10)
}

/** How a program reaches the running server of a data directory. */
export const connectionTo = (dataDir: string): Connection => ({
  ...{ host: join(dataDir, 'postgres'), port: 5432, user: SUPERUSER, database: EMBEDDED_DATABASE },
})

/** Runs `work` on a connection to the running server of a data directory. */
export async function withServer<T>(
  dataDir: string,
  work: (database: TextDatabase) => Promise<T>,
): Promise<T> {
  const database = new TextDatabase(connectionTo(dataDir), () => undefined)
  database.markReady()
  try {
    return await work(database)
  } finally {
    await database.close()
  }
}
