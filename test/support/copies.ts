/** Copies of a test's database, as a backup and its restore make them. */
import { inject } from 'vitest'
import type { Connection } from '../../src/postgres/embedded/server.ts'
import { TextDatabase } from '../../tools/text-database.ts'
import { atEnd } from './at-end.ts'
import { openDatabase, urlOf } from './database.ts'

let copies = 0

/** Copies the database. Its connections are closed, and open again with the next query. */
export async function copyDatabase({ database: name, ...server }: Connection) {
  copies += 1
  const copy = `${name}_copy${copies}`
  await onServer(
    `alter database ${name} allow_connections false`,
    `select pg_terminate_backend(pid, 5000) from pg_stat_activity where datname = '${name}'`,
    `create database ${copy} template ${name}`,
    `alter database ${name} allow_connections true`,
  )
  atEnd(() => onServer(`drop database ${copy} with (force)`))
  const connection: Connection = { ...server, database: copy }
  return { connection, env: { DATABASE_URL: urlOf(connection) }, open: () => openDatabase(connection) }
}

/** Runs statements on the tests' server, outside of the database that they copy. */
export async function onServer(...statements: string[]): Promise<void> {
  const admin = new TextDatabase(inject('postgres'), () => undefined)
  await admin.session(async (session) => {
    for (const statement of statements) await session.query(statement)
  })
  await admin.close()
}
