/** Each failure of the database has a defined answer, and the service recovers without a restart. */
import { expect, inject, it } from 'vitest'
import { unnamed } from '../../src/postgres/statement.ts'
import { lineEvent, randomUserId } from '../../tools/simulator/events.ts'
import { addTenant, createTestDatabase, openDatabase, type Tenant } from '../support/database.ts'
import { holdTransaction } from '../support/locks.ts'
import { eventually, runProgramAsync } from '../support/process.ts'
import { type Service, startApp } from '../support/service.ts'
import { startProxy } from '../support/tcp-proxy.ts'

async function setUp() {
  const { database, connection } = await createTestDatabase()
  const admin = openDatabase(connection)
  const tenant = await addTenant(admin)
  const service = await startApp(database)
  expect((await service.deliver(tenant, [lineEvent('follow', 'U1')])).status).toBe(200)
  // Settings are changed and sessions ended from another database, which stays usable.
  const server = openDatabase(inject('postgres'))
  const set = (setting: string) =>
    server.session((session) => session.query(`alter database ${connection.database} ${setting}`))
  // Waits until they have ended: while they do, a second attempt may meet another of them and is answered 503.
  const endSessions = () =>
    server.session((session) =>
      session.query('select pg_terminate_backend(pid, 60000) from pg_stat_activity where datname = $1', [
        connection.database,
      ]),
    )
  const alter = async (setting: string) => {
    await set(setting)
    await endSessions()
  }
  return { admin, connection, tenant, service, set, endSessions, alter }
}

const recovers = (service: Service, tenant: Tenant) =>
  expect
    .poll(async () => (await service.deliver(tenant, [lineEvent('follow', randomUserId())])).status, {
      timeout: 60_000,
    })
    .toBe(200)

const list = (service: Service, tenant: Tenant) =>
  service.call('GET', '/api/audience', { headers: tenant.headers })

it('answers deliveries 503 and still serves reads while the database is read-only', async () => {
  const { tenant, service, set, alter } = await setUp()
  await alter('set default_transaction_read_only = on')
  const refused = await eventually(
    () => service.deliver(tenant, [lineEvent('follow', 'U2')]),
    ({ status }) => status !== 200,
  )
  expect(refused.status).toBe(503)
  expect(refused.headers.get('retry-after')).not.toBeNull()
  const answer = await eventually(
    () => list(service, tenant),
    ({ status }) => status === 200,
  )
  expect(answer.json.data).toHaveLength(1)
  // Sessions that were opened while it was read-only stay so: the service must replace them.
  await set('reset default_transaction_read_only')
  expect((await service.deliver(tenant, [lineEvent('follow', 'U2')])).status).toBe(200)
})

it('answers 200 although the database ended all idle sessions', async () => {
  const { tenant, service, endSessions } = await setUp()
  for (let round = 0; round < 5; round += 1) {
    expect((await list(service, tenant)).status).toBe(200)
    await endSessions()
    const answer = await service.deliver(tenant, [lineEvent('follow', randomUserId())])
    expect(answer.json).toEqual({ accepted: 1, duplicates: 0 })
  }
})

it('answers 503 when the database ends a session for its transaction_timeout, and opens another', async () => {
  const { admin, tenant, service, alter } = await setUp()
  await alter(`set transaction_timeout = '300ms'`)
  const release = await holdTransaction(
    admin,
    `update audience_member set version = version where user_id = 'U1'`,
  )
  const answer = await service.deliver(tenant, [lineEvent('unfollow', 'U1')])
  await release()
  expect(answer.status).toBe(503)
  expect(answer.headers.get('retry-after')).not.toBeNull()
  await recovers(service, tenant)
})

it('runs maintenance without limit, and streams with their own, when the database has a default statement_timeout', async () => {
  const { admin, set } = await setUp()
  await set('set statement_timeout = 100')
  const slow = 'select pg_sleep(0.2)::text as line'
  expect(await admin.session((session) => session.query(slow))).toHaveLength(1)
  expect(await admin.reads.streams().query(unnamed(slow))).toHaveLength(1)
})

it('ends a command with one line if every host of DATABASE_URL is read-only', async () => {
  const { connection, set } = await setUp()
  const { proxy, address } = await startProxy(connection)
  proxy.open()
  await set('set default_transaction_read_only = on')
  const hosts = `${address},${address}`
  const DATABASE_URL = `postgres://postgres@${hosts}/${connection.database}?target_session_attrs=read-write`
  expect(await runProgramAsync(['organizations', 'list'], { DATABASE_URL })).toMatchObject({
    status: 1,
    stderr: `oa-audience: the database at ${address}, ${address} cannot be used: no server of DATABASE_URL accepts writes. Start it, or correct DATABASE_URL.\n`,
  })
})
