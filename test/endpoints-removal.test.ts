/** The removal of an endpoint while a sender stores the result of an attempt. */
import { expect, it } from 'vitest'
import { Settlements } from '../src/endpoints/settlements.ts'
import type { BoundStatement } from '../src/postgres/statement.ts'
import { addTenant, createTestDatabase } from './support/database.ts'
import { insertRow } from './support/load.ts'
import { waitForBlocked } from './support/locks.ts'

it('deadlocks with no sender, whichever is first', async () => {
  const { database } = await createTestDatabase()
  const { accountId } = await addTenant(database)
  const account = { channel_oa_id: accountId }
  const endpointId = await insertRow(database, 'endpoint', { ...account, url: 'https://example.com/' })
  await database.query(
    `insert into endpoint_answer (endpoint_id, answered_at, answer) values ($1, now(), '')`,
    [endpointId],
  )
  const id = await insertRow(database, 'endpoint_delivery', { ...account, endpoint_id: endpointId })
  const statements = await statementsOf({ id, accountId, endpointId })
  await database.session(async (holder) => {
    await holder.query('begin')
    await holder.query('select from endpoint_answer for update')
    const sending = database.session(async (sender) => {
      await sender.query('begin')
      for (const { statement, values } of statements) await sender.query(statement as never, values)
      await sender.query('commit')
    })
    await waitForBlocked(database, 1)
    const removing = database.session((remover) =>
      remover.query('delete from endpoint where id = $1', [endpointId]),
    )
    await waitForBlocked(database, 2)
    await holder.query('commit')
    await Promise.all([sending, removing])
  })
  for (const table of ['endpoint', 'endpoint_answer', 'endpoint_attempt', 'endpoint_delivery'])
    expect(await database.query(`select from ${table}`), table).toEqual([])
})

/** As a sender stores a failed attempt. */
async function statementsOf(delivery: { id: bigint; accountId: bigint; endpointId: bigint }) {
  const stored: BoundStatement[] = []
  const settlements = new Settlements({
    pipelineIdempotent: async (statements: BoundStatement[]) => void stored.push(...statements),
  } as never)
  const response = { status: 500, reason: '', retryAfterMs: null }
  const startedAtMs = performance.now()
  settlements.note(
    { delivery, attempt: 1, response, startedAtMs, durationMs: 1, events: 1, text: null },
    null,
  )
  await settlements.settle()
  return stored
}
