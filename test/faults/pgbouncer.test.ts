/** PgBouncer between the service and PostgreSQL: it must keep sessions. */
import { describe, expect, it } from 'vitest'
import { lineEvent } from '../../tools/simulator/events.ts'
import { TextDatabase } from '../../tools/text-database.ts'
import { addTenant, createTestDatabase } from '../support/database.ts'
import { isPgBouncerInstalled, type PgBouncerSettings, startPgBouncer } from '../support/pgbouncer.ts'
import { NO_LIMITS, runProgramAsync, startHealthy } from '../support/process.ts'
import { sendDelivery } from '../support/service.ts'

if (!isPgBouncerInstalled) {
  console.warn('PGBOUNCER IS NOT INSTALLED: its tests are skipped. Install the package pgbouncer.')
}

const { database, connection } = await createTestDatabase()

const REFUSAL = /DATABASE_URL points to a connection pooler that does not keep sessions/

/** Opens sessions of the pooler and gives them back, as other instances do. */
async function warmUp(url: string, sessions: number): Promise<void> {
  const others = Array.from({ length: sessions }, () => new TextDatabase(url, () => undefined))
  await Promise.all(others.map((other) => other.session((session) => session.query('select pg_sleep(0.05)'))))
  await Promise.all(others.map((other) => other.close()))
}

describe.skipIf(!isPgBouncerInstalled)('a pooler that keeps no sessions', () => {
  const modes: PgBouncerSettings[] = [
    { pool_mode: 'transaction' },
    { pool_mode: 'transaction', server_round_robin: 1 },
    { pool_mode: 'statement' },
  ]
  it.each(modes)('is refused: %o', async (settings) => {
    const url = await startPgBouncer(connection, settings)
    for (const sessions of [0, 1, 2, 8]) {
      await warmUp(url, sessions)
      const pooled = new TextDatabase(url, () => undefined)
      await expect(pooled.requireSessions()).rejects.toThrow(REFUSAL)
      await pooled.close()
    }
  })

  it('ends the start of the service and of a command with one line', async () => {
    const url = await startPgBouncer(connection, { pool_mode: 'transaction' })
    for (const command of [['serve'], ['organizations', 'list']]) {
      const { status, stderr } = await runProgramAsync(command, { DATABASE_URL: url })
      expect(status).toBe(1)
      expect(stderr).toMatch(REFUSAL)
      expect(stderr.trim().split('\n')).toHaveLength(1)
    }
  })
})

it.skipIf(!isPgBouncerInstalled)(
  'serves lists and deliveries through a pooler that keeps sessions',
  async () => {
    const url = await startPgBouncer(connection, { pool_mode: 'session' })
    const tenant = await addTenant(database)
    const service = await startHealthy({ DATABASE_URL: url, ...NO_LIMITS })
    const answers = await Promise.all(
      Array.from({ length: 40 }, async (_, no) => {
        const requests = [
          sendDelivery(service.url, tenant, [lineEvent('message', `U${no}`)]),
          fetch(`${service.url}/api/audience`, { headers: tenant.headers }),
        ]
        return (await Promise.all(requests)).map(({ status }) => status)
      }),
    )
    expect(new Set(answers.flat())).toEqual(new Set([200]))
  },
)
