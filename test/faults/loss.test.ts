/** Nothing lost, nothing twice: the promise, while everything is killed. */
import { expect, it } from 'vitest'
import { PostgresDatabase } from '../../src/postgres/postgres-database.ts'
import { lineEvent, randomUserId } from '../../tools/simulator/events.ts'
import { addTenant, createTestDatabase, urlOf } from '../support/database.ts'
import { becomesWell, runCommandAsync, spawnService, temporaryDirectory } from '../support/process.ts'
import { signedDelivery } from '../support/service.ts'

it('holds on the embedded database, with service and PostgreSQL killed 21 times', async () => {
  const { stdout, stderr, status } = await runCommandAsync(['prove', '--kills', '21', '--json'], {
    DATA_DIR: temporaryDirectory(),
  })
  expect(status, stderr).toBe(0)
  expect(JSON.parse(stdout)).toMatchObject({
    'service killed': 7,
    'PostgreSQL killed': 7,
    'both killed': 7,
    missing: 0,
    twice: 0,
    unknown: 0,
  })
})

it('holds on a PostgreSQL of somebody else, with the service killed and the network cut 20 times', async () => {
  const { database, connection } = await createTestDatabase()
  // An address need not name its port.
  const { stdout, stderr, status } = await runCommandAsync(['prove', '--kills', '20', '--json'], {
    DATABASE_URL: urlOf(connection).replace('&port=5432', ''),
  })
  expect(status, stderr).toBe(0)
  const outcome = JSON.parse(stdout)
  expect(outcome).toMatchObject({ 'service killed': 10, 'network cut': 10, missing: 0, twice: 0, unknown: 0 })
  expect(outcome.deliveries).toBeGreaterThan(200)
  const left = await database.query('select 1 from official_account')
  expect(left).toEqual([])
  await database.close()
})

it('holds with three instances on one PostgreSQL and five members whom everybody writes about', async () => {
  const { database, connection } = await createTestDatabase()
  const tenant = await addTenant(database)
  const services = await Promise.all(
    [1, 2, 3].map(() => spawnService({ DATABASE_URL: urlOf(connection), RATE_LIMIT_MAX: '0' })),
  )
  await becomesWell(services[2]?.url ?? '')
  const people = Array.from({ length: 5 }, randomUserId)
  const sent = new Map<string, number>()
  const statuses = new Map<number, number>()
  const sender = async (no: number) => {
    for (let i = 0; i < 60; i += 1) {
      const events = Array.from({ length: 4 }, (_, k) => {
        const userId = people[(no + i + k) % people.length] as string
        sent.set(userId, (sent.get(userId) ?? 0) + 1)
        return lineEvent(k % 2 ? 'follow' : 'message', userId)
      })
      const { path, init } = signedDelivery(tenant, events)
      // Each delivery reaches two instances at the same moment.
      const answers = await Promise.all(
        [no % 3, (no + 1) % 3].map((at) => fetch(`${services[at]?.url}${path}`, init)),
      )
      for (const { status } of answers) statuses.set(status, (statuses.get(status) ?? 0) + 1)
    }
  }
  await Promise.all(Array.from({ length: 24 }, (_, no) => sender(no)))
  expect([...statuses]).toEqual([[200, 24 * 60 * 2]])
  const members = await database.query<{ user_id: string; event_count: bigint }>(
    'select user_id, event_count from audience_member order by user_id',
  )
  expect(members.map(({ user_id, event_count }) => [user_id, Number(event_count)])).toEqual(
    [...sent].sort(([a], [b]) => (a < b ? -1 : 1)),
  )
  const [statistics] = await database.query<{ deadlocks: bigint }>(
    'select deadlocks from pg_stat_database where datname = current_database()',
  )
  expect(statistics?.deadlocks).toBe(0n)
  await database.close()
})

it('holds when a flush is cut off while the next one is on its way behind it', async () => {
  const { database, connection } = await createTestDatabase()
  const tenant = await addTenant(database)
  const service = await spawnService({ DATABASE_URL: urlOf(connection), RATE_LIMIT_MAX: '0' })
  await becomesWell(service.url)
  const killer = new PostgresDatabase(connection, () => undefined)
  killer.markReady()
  let isOver = false
  const killing = (async () => {
    while (!isOver) {
      await killer.query(
        `select pg_terminate_backend(pid) from pg_stat_activity
          where datname = current_database() and pid <> pg_backend_pid() and query like '%event_key%'`,
      )
      await new Promise((resolve) => setTimeout(resolve, 40))
    }
  })()
  let acknowledged = 0
  const sender = async () => {
    for (let i = 0; i < 60; i += 1) {
      const { path, init } = signedDelivery(tenant, [
        lineEvent('message', 'Uhot'),
        lineEvent('follow', randomUserId()),
      ])
      let status = 0
      while (status !== 200) {
        status = await fetch(service.url + path, init).then(
          (answer) => answer.status,
          () => 0,
        )
        expect([200, 503]).toContain(status)
      }
      acknowledged += 1
    }
  }
  await Promise.all(Array.from({ length: 48 }, sender))
  isOver = true
  await killing
  await killer.close()
  const [hot] = await database.query<{ event_count: bigint }>(
    `select event_count from audience_member where user_id = 'Uhot'`,
  )
  expect(Number(hot?.event_count)).toBe(acknowledged)
  await database.close()
})
