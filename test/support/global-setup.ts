/** One PostgreSQL server for the whole run, in a temporary directory, with a migrated template database. */
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { TestProject } from 'vitest/node'
import { SETTINGS } from '../../src/postgres/embedded/postmaster.ts'
import { type Connection, EmbeddedServer } from '../../src/postgres/embedded/server.ts'
import { migrate } from '../../src/postgres/schema/migrate.ts'
import { TextDatabase } from '../../tools/text-database.ts'

const TEMPLATE = 'oa_audience_template'

declare module 'vitest' {
  interface ProvidedContext {
    postgres: Connection
    /** limit of a wait for a condition */
    waitMaxMs: number
  }
}

export default async function setup(project: TestProject): Promise<() => Promise<void>> {
  const directory = mkdtempSync(join(tmpdir(), 'oa-audience-test-'))
  // A run creates 170 databases of 12 MB. Without syncs the tests take about 30 % less time.
  const server = new EmbeddedServer(directory, { ...SETTINGS, fsync: 'off', full_page_writes: 'off' })
  await server.own(() => undefined)
  const admin = new TextDatabase(server.connection, () => undefined)
  await admin.session((session) => session.query(`create database ${TEMPLATE}`))
  await admin.close()
  const template = new TextDatabase({ ...server.connection, database: TEMPLATE }, () => undefined)
  await migrate(template)
  await template.close()
  project.provide('postgres', server.connection)
  return async () => {
    await server.stop()
    rmSync(directory, { recursive: true, force: true })
  }
}
