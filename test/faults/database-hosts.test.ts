/** DATABASE_URL names several hosts, of which the one that accepts writes is used. */
import { expect, it } from 'vitest'
import type { Connection } from '../../src/postgres/embedded/server.ts'
import { TextDatabase } from '../../tools/text-database.ts'
import { createTestDatabase } from '../support/database.ts'
import { runProgramAsync } from '../support/process.ts'
import { startProxy } from '../support/tcp-proxy.ts'

/** A host of its own in front of the test's server, and a way to cut it off. */
async function addHost(connection: Connection) {
  const host = await startProxy(connection)
  host.proxy.open()
  return host
}

const urlOf = (hosts: string[], database: string) =>
  `postgres://postgres@${hosts.join(',')}/${database}?target_session_attrs=read-write`

it('moves to another host when the first one refuses or drops its packets', async () => {
  const { connection } = await createTestDatabase()
  const [first, second] = [await addHost(connection), await addHost(connection)]
  const database = new TextDatabase(
    urlOf([first.address, second.address], connection.database),
    () => undefined,
  )
  database.markReady()
  const write = () => database.query(`insert into organization (name) values ('x')`).then(() => 'stored')
  expect(await write()).toBe('stored')
  first.proxy.silence()
  await expect.poll(write).toBe('stored')
  second.proxy.shut()
  await expect(write()).rejects.toMatchObject({ code: 'unavailable', retryAfterSeconds: 2 })
  second.proxy.open()
  await expect.poll(write).toBe('stored')
})

it('never uses a host that is read-only, and ends a command with one line', async () => {
  const { database: direct, connection } = await createTestDatabase()
  const { address } = await addHost(connection)
  await direct.session((session) =>
    session.query(`alter database ${connection.database} set default_transaction_read_only = on`),
  )
  const env = { DATABASE_URL: urlOf([address, address], connection.database) }
  const { status, stderr } = await runProgramAsync(['organizations', 'list'], env)
  expect([status, stderr]).toEqual([
    1,
    `oa-audience: the database at ${address}, ${address} cannot be used: no server of DATABASE_URL accepts writes. Start it, or correct DATABASE_URL.\n`,
  ])
})
