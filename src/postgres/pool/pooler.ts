/** Refuses a connection pooler that spreads the transactions of one connection over several sessions. */
import type pg from 'pg'
import { FatalError } from '../../errors.ts'
import { begin, commit, unnamed } from '../statement.ts'
import { type Lease, send, withLease } from './pool.ts'

/** If other clients use the pooler too, a connection may get the same session several times by chance. */
const ROUNDS = 5

/**
 * Settings, prepared statements and advisory locks belong to a session. PgBouncer keeps a session for a connection only if
 * `pool_mode` is `session`. Otherwise requests fail at random, so this throws a FatalError.
 *
 * When a connection opens, PostgreSQL sends the id of the process that serves it. A pooler sends an id that does not exist. Only
 * then do two connections run statements alternately. In transaction mode, one of them gets the process that has just served the
 * other, or finds its own process taken.
 */
export async function requireSessions(lease: () => Promise<Lease>): Promise<void> {
  await withLease(lease, async ({ client: one }) => {
    const first = await processOf(one)
    if (first === (one as unknown as { processID: number | null }).processID) return
    await withLease(lease, async ({ client: two }) => {
      const second = await processOf(two)
      if (first === second) throw poolerWithoutSessions()
      for (let round = 0; round < ROUNDS; round += 1) {
        await send(two, begin)
        const isSame = (await processOf(two)) === second && (await processOf(one)) === first
        await send(two, commit)
        if (!isSame) throw poolerWithoutSessions()
      }
    })
  })
}

/** A prepared statement would fail in a pooler that does not keep sessions. */
const selectProcess = unnamed('select pg_backend_pid() as process')

async function processOf(client: pg.ClientBase): Promise<number | undefined> {
  const [row] = await send<{ process: number }>(client, selectProcess)
  return row?.process
}

function poolerWithoutSessions(): FatalError {
  return new FatalError(
    'DATABASE_URL points to a connection pooler that does not keep sessions. Set pool_mode = session in PgBouncer, or connect to PostgreSQL directly.',
  )
}
