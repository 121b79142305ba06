/** Pipelines that share a connection. */
import { expect, it } from 'vitest'
import { statement } from '../src/postgres/statement.ts'
import { createTestDatabase } from './support/database.ts'

it('runs a pipeline behind one that failed before it prepared their common statement', async () => {
  const { database } = await createTestDatabase()
  const pinned = database.pin()
  const common = { statement: statement('test-common')`select $1::int as number`, values: [1] }
  const faulty = { statement: statement('test-faulty')`select * from missing`, values: [] }
  const [failed, ...others] = await Promise.allSettled([
    pinned.pipelineIdempotent([faulty, common]),
    ...Array.from({ length: 20 }, () => pinned.pipelineIdempotent([common])),
  ])
  expect(failed).toMatchObject({ status: 'rejected', reason: { code: '42P01' } })
  for (const other of others) expect(other).toMatchObject({ status: 'fulfilled', value: [[{ number: 1 }]] })
})
