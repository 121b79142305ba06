/** Sessions that tests keep open: opening one takes longer than most statements. */
import { isLostConnection } from '../../src/postgres/faults.ts'
import type { PostgresDatabase } from '../../src/postgres/pool/postgres-database.ts'
import type { Queryable } from '../../src/postgres/statement.ts'

interface OpenSession {
  session: Queryable
  end: () => void
}

const idleSessions = new WeakMap<PostgresDatabase, OpenSession[]>()

/** Keeps sessions of this database open. Returns a function that ends them. */
export function keepSessions(database: PostgresDatabase): () => void {
  const idle: OpenSession[] = []
  idleSessions.set(database, idle)
  return () => {
    idleSessions.delete(database)
    for (const { end } of idle) end()
  }
}

/** Like `database.session`, in a session that others may have used. */
export async function inSession<T>(
  database: PostgresDatabase,
  work: (session: Queryable) => Promise<T>,
): Promise<T> {
  const idle = idleSessions.get(database)
  if (idle === undefined) return database.session(work)
  const reused = idle.pop()
  const open = reused ?? (await openSession(database))
  try {
    const result = await work(open.session)
    idle.push(open)
    return result
  } catch (error) {
    open.end()
    // The server was restarted, or ended the session, while nobody used it.
    if (reused !== undefined && isLostConnection(error)) return inSession(database, work)
    throw error
  }
}

function openSession(database: PostgresDatabase): Promise<OpenSession> {
  return new Promise((resolve, reject) => {
    const held = database.session(
      (session) => new Promise<void>((end) => resolve({ session, end: () => end() })),
    )
    held.catch(reject)
  })
}
