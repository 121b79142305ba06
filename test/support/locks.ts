/** Locks that a test holds in a session of its own, and the sessions that wait for them. */
import { expect } from 'vitest'
import type { TextDatabase } from '../../tools/text-database.ts'

/** Runs a statement in a transaction that stays open. Resolves, once the statement is done, with the function that commits. */
export function holdTransaction(
  database: TextDatabase,
  text: string,
  values: unknown[] = [],
): Promise<() => Promise<void>> {
  return new Promise((resolve, reject) => {
    const transaction = database.session(async (session) => {
      await session.query('begin')
      await session.query(text, values)
      await new Promise<void>((end) => {
        resolve(async () => {
          end()
          await transaction
        })
      })
      await session.query('commit')
    })
    transaction.catch(reject)
  })
}

/** Resolves when exactly this number of sessions of the database wait for a lock. */
export async function waitForBlocked(database: TextDatabase, sessions: number): Promise<void> {
  await expect
    .poll(() =>
      database.query(
        `select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'`,
      ),
    )
    .toHaveLength(sessions)
}
