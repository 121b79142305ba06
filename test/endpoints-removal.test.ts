/** The removal of an endpoint while a sender stores the result of an attempt. */
import { expect, it } from 'vitest'
import { Settlements } from '../src/endpoints/settlements.ts'
import type { BoundStatement } from '../src/postgres/statement.ts'
import { addTenant, createTestDatabase } from './support/database.ts'
import { eventually } from './support/process.ts'

it('deadlocks with no sender, whichever is first', async () => {
  const { database } = await createTestDatabase()
  const { accountId } = await addTenant(database)
  const [endpoint] = await database.query<{ id: bigint }>(
    `insert into endpoint (channel_oa_id, url) values ($1, 'https://example.com/') returning id`,
    [accountId],
  )
  const endpointId = endpoint?.id as bigint
  await database.query(
    `insert into endpoint_answer (endpoint_id, answered_at, answer) values ($1, now(), '')`,
    [endpointId],
  )
  const [row] = await database.query<{ id: bigint }>(
    'insert into endpoint_delivery (channel_oa_id, endpoint_id) values ($1, $2) returning id',
    [accountId, endpointId],
  )
  const statements = await statementsOf({ id: row?.id as bigint, accountId, endpointId })
  const areWaiting = (count: number) =>
    eventually(
      () =>
        database.query(
          `select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'`,
        ),
      (rows) => rows.length === count,
    )
  await database.session(async (holder) => {
    await holder.query('begin')
    await holder.query('select from endpoint_answer for update')
    const sending = database.session(async (sender) => {
      await sender.query('begin')
      for (const { statement, values } of statements) await sender.query(statement as never, values)
      await sender.query('commit')
    })
    await areWaiting(1)
    const removing = database.session((remover) =>
      remover.query('delete from endpoint where id = $1', [endpointId]),
    )
    await areWaiting(2)
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
