/** A PostgreSQL server that recovers from a crash refuses every connection, and each attempt costs it a new process. */
import { expect, it } from 'vitest'
import { statement } from '../../src/postgres/statement.ts'
import type { TextDatabase } from '../../tools/text-database.ts'
import { openDatabase } from '../support/database.ts'
import { acceptForTest } from '../support/http-server.ts'

/** FATAL 57P03, as a server answers that is starting up. */
function refusal(): Buffer {
  const fields = Buffer.from('SFATAL\0VFATAL\0C57P03\0Mthe database system is starting up\0\0')
  const head = Buffer.alloc(5)
  head.write('E')
  head.writeInt32BE(fields.length + 4, 1)
  return Buffer.concat([head, fields])
}

/** Counts connections and refuses each of them. */
async function startingServer() {
  const refused = { count: 0 }
  const port = await acceptForTest((socket) => {
    refused.count += 1
    // The response to the request for TLS is that there is none.
    socket.once('data', () => socket.write('N', () => socket.once('data', () => socket.end(refusal()))))
  })
  return { database: openDatabase(`postgres://postgres@127.0.0.1:${port}/postgres`), refused }
}

const selectOne = statement('test-one')`select 1 as one`

it.each([
  ['lookup', (database: TextDatabase) => database.callers.query(selectOne)],
  [
    'flush',
    (database: TextDatabase) => database.pin().pipelineIdempotent([{ statement: selectOne, values: [] }]),
  ],
  ['page of a stream', (database: TextDatabase) => database.reads.streams().query(selectOne, [])],
])('connects to a server that is starting once for a %s', async (_, ask) => {
  const { database, refused } = await startingServer()
  await expect(ask(database)).rejects.toMatchObject({ code: 'unavailable', cause: { code: '57P03' } })
  expect(refused.count).toBe(1)
})
