/** Row and table locks that another session holds. */
import type { PostgresDatabase } from '../../src/postgres/postgres-database.ts'

/** Runs a statement in a transaction of another session, which keeps its locks until `release` commits it. */
export async function holdLocks(
  database: PostgresDatabase,
  statement: string,
  values: unknown[] = [],
): Promise<{ release: () => Promise<void> }> {
  let commit = () => {}
  const toBeCommitted = new Promise<void>((resolve) => {
    commit = resolve
  })
  return new Promise((resolve, reject) => {
    // A session without time limits: the service's own would end a transaction that is idle for 5 s.
    const committed = database.session(async (session) => {
      await session.query('begin')
      await session.query(statement, values)
      resolve({
        release: () => {
          commit()
          return committed
        },
      })
      await toBeCommitted
      await session.query('commit')
    })
    committed.catch(reject)
  })
}
