/** What each protected route costs in queries: its two lookups, and as few statements as its work needs. */
import { expect, it } from 'vitest'
import { PostgresDatabase } from '../src/postgres/postgres-database.ts'
import type { BoundStatement, Row, Statement } from '../src/postgres/statement.ts'
import { lineEvent } from '../tools/simulator/events.ts'
import { addTenant, createTestDatabase } from './support/database.ts'
import { startAppForTest } from './support/service.ts'

/** Counts what is sent to the real database. */
class CountingDatabase extends Database {
  sent: string[] = []

  override query<R extends Row>(statement: Statement | string, values?: unknown[]): Promise<R[]> {
    this.sent.push(typeof statement === 'string' ? statement : statement.name)
    return super.query(statement, values)
  }

  override lookUp<R extends Row>(statement: Statement, values: unknown[]): Promise<R[]> {
    this.sent.push(statement.name)
    return super.lookUp(statement, values)
  }

  override pipeline(statements: BoundStatement[]): Promise<Row[][]> {
    this.sent.push(...statements.map(({ statement }) => statement.name))
    return super.pipeline(statements)
  }

  override lane() {
    const lane = super.lane()
    return {
      transactionAtOnce: (statements: BoundStatement[]) => {
        const names = statements.map(({ statement }) => statement.name)
        if (!names.every((name) => name.startsWith('active-'))) this.sent.push(...names)
        return lane.pipeline(statements)
      },
    }
  }
}

const LOOKUPS = ['active-api-client', 'active-api-key']

it('a list costs its lookups and one statement, whatever its filters; a delivery two statements in one message', async () => {
  const { database: plain, connection } = await createTestDatabase()
  const database = new CountingDatabase(connection, () => undefined)
  database.markReady()
  const service = await startAppForTest(database)
  const tenant = await addTenant(plain)
  await service.deliver(tenant, [lineEvent('follow', 'U1'), lineEvent('follow', 'U2')])
  const cost = async (work: () => Promise<{ status: number }>) => {
    database.sent = []
    expect((await work()).status).toBeLessThan(300)
    return database.sent
  }
  for (const query of [
    '',
    '?limit=1',
    '?userId=U1',
    '?tag=a&tag=b&q=ann',
    '?q=a',
    '?updatedSince=2020-01-01T00:00:00Z',
  ]) {
    const sent = await cost(() => service.call('GET', `/api/audience${query}`, { headers: tenant.headers }))
    expect(sent.slice(0, 2), query).toEqual(LOOKUPS)
    expect(sent, query).toHaveLength(3)
  }
  const member = await service.member(tenant, 'U1')
  const headers = { ...tenant.headers, 'content-type': 'application/json' }
  const put = () => service.call('PUT', `/api/audience/${member?.id}`, { headers, body: '{"tags":["a"]}' })
  expect(await cost(put)).toEqual([...LOOKUPS, 'name-editor', 'member-update'])
  expect(await cost(() => service.deliver(tenant, [lineEvent('message', 'U1')]))).toEqual([
    'lock-out-erasures',
    'apply-events',
  ])
  await database.close()
  await plain.close()
})
