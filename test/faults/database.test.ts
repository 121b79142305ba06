/** A database that fails in every way it can: each has its clear answer, and recovery needs no restart. */
import { type AddressInfo, createServer } from 'node:net'
import { expect, inject, it } from 'vitest'
import { PostgresDatabase } from '../../src/postgres/postgres-database.ts'
import { lineEvent, randomUserId } from '../../tools/simulator/events.ts'
import { addTenant, createTestDatabase, type Tenant } from '../support/database.ts'
import { eventually } from '../support/process.ts'
import { type Service, startAppForTest } from '../support/service.ts'

async function setUp() {
  const { database, connection } = await createTestDatabase()
  const admin = new PostgresDatabase(connection, () => undefined)
  admin.markReady()
  const tenant = await addTenant(admin)
  const service = await startAppForTest(database)
  expect((await service.deliver(tenant, [lineEvent('follow', 'U1')])).status).toBe(200)
  // Through another database, which is not what is being broken.
  const server = new PostgresDatabase(inject('postgres'), () => undefined)
  const set = (setting: string) =>
    server.session((session) => session.query(`alter database ${connection.database} ${setting}`))
  const endSessions = () =>
    server.session((session) =>
      session.query('select pg_terminate_backend(pid) from pg_stat_activity where datname = $1', [
        connection.database,
      ]),
    )
  const alter = async (setting: string) => {
    await set(setting)
    await endSessions()
  }
  const end = async () => {
    await Promise.all([database.close(), admin.close(), server.close()])
  }
  return { admin, tenant, service, set, endSessions, alter, end }
}

const recovers = (service: Service, tenant: Tenant) =>
  eventually(
    async () => (await service.deliver(tenant, [lineEvent('follow', randomUserId())])).status,
    (status) => status === 200,
  )

const list = (service: Service, tenant: Tenant) =>
  service.call('GET', '/api/audience', { headers: tenant.headers })

it('that is a read-only replica: deliveries 503, reading goes on', async () => {
  const { tenant, service, set, alter, end } = await setUp()
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
  // Sessions that were opened meanwhile stay read-only.
  await set('reset default_transaction_read_only')
  expect((await service.deliver(tenant, [lineEvent('follow', 'U2')])).status).toBe(200)
  await end()
})

it('that ended its sessions while nobody used them: the next delivery and the next request do not see it', async () => {
  const { tenant, service, endSessions, end } = await setUp()
  for (let round = 0; round < 5; round += 1) {
    expect((await list(service, tenant)).status).toBe(200)
    await endSessions()
    const answer = await service.deliver(tenant, [lineEvent('follow', randomUserId())])
    expect(answer.json).toEqual({ accepted: 1, duplicates: 0 })
  }
  await end()
})

it('that ends sessions for a time limit of its own: 503, and they are opened anew', async () => {
  const { admin, tenant, service, alter, end } = await setUp()
  await alter(`set transaction_timeout = '300ms'`)
  const answer = await admin.transaction(async (transaction) => {
    await transaction.query('set local transaction_timeout = 0')
    await transaction.query(`update audience_member set version = version where user_id = 'U1'`)
    return service.deliver(tenant, [lineEvent('unfollow', 'U1')])
  })
  expect(answer.status).toBe(503)
  expect(answer.headers.get('retry-after')).not.toBeNull()
  await recovers(service, tenant)
  await end()
})

it('that takes no more connections: 503 for senders, 500 for clients', async () => {
  const { tenant, service, alter, end } = await setUp()
  await alter('with allow_connections false')
  expect((await service.deliver(tenant, [lineEvent('follow', 'U2')])).status).toBe(503)
  expect((await list(service, tenant)).status).toBe(500)
  await alter('with allow_connections true')
  await recovers(service, tenant)
  expect((await list(service, tenant)).status).toBe(200)
  await end()
})

it('whose disk is full: 503, and what was refused can be sent again', async () => {
  const { admin, tenant, service, end } = await setUp()
  // The server's own error, raised where it would arise. A disk that is really full: full-disk.test.ts.
  await admin.query(
    `create function disk_full() returns trigger language plpgsql as
       $$ begin raise exception 'could not extend file' using errcode = '53100'; end $$`,
  )
  await admin.query(
    'create trigger disk_full before insert on event_key for each statement execute function disk_full()',
  )
  const event = lineEvent('follow', 'U2')
  const refused = await service.deliver(tenant, [event])
  expect(refused.status).toBe(503)
  expect(refused.text).not.toContain('extend')
  await admin.query('drop trigger disk_full on event_key')
  expect((await service.deliver(tenant, [event])).json).toEqual({ accepted: 1, duplicates: 0 })
  await end()
})

it('in which a statement hangs: 503 well before the platform would hang up for good, and others are not held up', async () => {
  const { admin, tenant, service, end } = await setUp()
  let release = () => {}
  const locked = admin.transaction(async (transaction) => {
    await transaction.query('lock table audience_member in access exclusive mode')
    await new Promise<void>((resolve) => {
      release = resolve
    })
  })
  await new Promise((resolve) => setTimeout(resolve, 100))
  const startedAt = Date.now()
  const answers = await Promise.all([
    service.deliver(tenant, [lineEvent('follow', 'U2')]),
    service.deliver(tenant, []),
    list(service, tenant),
    service.call('GET', '/api'),
  ])
  expect(answers.map(({ status }) => status)).toEqual([503, 200, 503, 200])
  expect(Date.now() - startedAt).toBeLessThan(6000)
  release()
  await locked
  await recovers(service, tenant)
  await end()
})

it('that limits statements by default: streams and maintenance, which have no limit, go on', async () => {
  const { admin, set, end } = await setUp()
  await set('set statement_timeout = 100')
  const slow = 'select pg_sleep(0.2)::text as line'
  expect(await admin.session((session) => session.query(slow))).toHaveLength(1)
  const { signal } = new AbortController()
  const lines: string[] = []
  for await (const batch of admin.readColumn(
    { statement: { name: 'slow', text: slow }, values: [] },
    'line',
    10,
    signal,
  ))
    lines.push(...batch)
  expect(lines).toHaveLength(1)
  await end()
})

it('behind PgBouncer is asked for nothing that it refuses where a session begins', async () => {
  const began = new Promise<string>((resolve) => {
    const pooler = createServer((socket) => {
      socket.once('data', (packet) => {
        resolve(packet.toString('latin1'))
        socket.destroy()
        pooler.close()
      })
    }).listen(0, '127.0.0.1', () => {
      const { port } = pooler.address() as AddressInfo
      const database = new PostgresDatabase(`postgres://app@127.0.0.1:${port}/app`, () => undefined)
      database.markReady()
      database.query('select 1').catch(() => database.close())
    })
  })
  const names = (await began)
    .slice(8)
    .split('\0')
    .filter((_, place) => place % 2 === 0 && _ !== '')
  // What it keeps for each session, and passes on: https://www.pgbouncer.org/config.html
  expect(['user', 'database', 'application_name', 'client_encoding']).toEqual(expect.arrayContaining(names))
})

it('in which another program holds people of one account: the other accounts, clients and health are not held up', async () => {
  const { admin, tenant, service, end } = await setUp()
  const other = await addTenant(admin)
  const userIds = Array.from({ length: 40 }, (_, no) => `U${no}`)
  await service.deliver(
    tenant,
    userIds.map((userId) => lineEvent('follow', userId)),
  )
  let release = () => {}
  const holding = admin.transaction(async (transaction) => {
    await transaction.query(`update audience_member set tags = '{held}'`)
    await new Promise<void>((resolve) => {
      release = resolve
    })
  })
  await new Promise((resolve) => setTimeout(resolve, 100))
  const startedAt = Date.now()
  const held = userIds.map((userId) => service.deliver(tenant, [lineEvent('message', userId)]))
  // People who write more than once: their events stand in batches that follow each other.
  const free = [...userIds, ...userIds, ...userIds].map((userId) =>
    service.deliver(other, [lineEvent('message', userId)]),
  )
  const asked = [list(service, other), service.call('GET', '/api/health')]
  const statusesOf = async (answers: Promise<{ status: number }>[]) =>
    new Set((await Promise.all(answers)).map(({ status }) => status))
  expect(await statusesOf([...free, ...asked])).toEqual(new Set([200]))
  const seconds = (Date.now() - startedAt) / 1000
  expect(await statusesOf(held)).toEqual(new Set([503]))
  // LINE hangs up after 2 s, and sends again.
  expect(seconds).toBeLessThan(3)
  release()
  await holding
  expect((await service.deliver(tenant, [lineEvent('message', 'U1')])).status).toBe(200)
  await end()
})

it('in which the events of one account take too long: the other accounts are not refused, nor held up for long', async () => {
  const { admin, tenant, service, end } = await setUp()
  const other = await addTenant(admin)
  await admin.query(
    `create function too_long() returns trigger language plpgsql as $$ begin perform pg_sleep(30); return new; end $$`,
  )
  await admin.query(
    `create trigger too_long before insert on audience_member for each row
       when (new.channel_oa_id = ${tenant.accountId}) execute function too_long()`,
  )
  const startedAt = Date.now()
  const answers = await Promise.all(
    // Too few for a batch to be sent behind the first, which would be given up with it.
    Array.from({ length: 24 }, (_, no) =>
      service.deliver(no % 2 === 0 ? tenant : other, [lineEvent('message', `U${no + 2}`)]),
    ),
  )
  expect(answers.map(({ status }) => status)).toEqual(answers.map((_, no) => (no % 2 === 0 ? 503 : 200)))
  // Two batches, of five seconds and one each.
  expect(Date.now() - startedAt).toBeLessThan(15_000)
  await end()
})
