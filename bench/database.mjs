/** A migrated database on an embedded server of its own, in a temporary directory. */
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { EmbeddedServer } from '../dist/src/postgres/embedded/server.js'
import { migrate } from '../dist/src/postgres/schema/migrate.js'
import { TextDatabase } from '../dist/tools/text-database.js'

/** The caller stops the programs that use the database before it calls `close`. */
export async function openDatabase() {
  const directory = mkdtempSync(join(tmpdir(), 'oa-audience-bench-'))
  const server = new EmbeddedServer(directory)
  await server.own(() => undefined)
  const database = new TextDatabase(server.connection, () => undefined)
  const close = async () => {
    await database.close()
    await server.stop()
    rmSync(directory, { recursive: true, force: true })
  }
  try {
    await migrate(database)
  } catch (error) {
    await close()
    throw error
  }
  database.markReady()
  return { directory, server, database, close }
}
