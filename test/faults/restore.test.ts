/** What holds after a backup was restored, also beneath a service that keeps running. */
import { expect, it } from 'vitest'
import type { Connection } from '../../src/postgres/embedded/server.ts'
import { lineEvent, randomUserId, textMessage } from '../../tools/simulator/events.ts'
import type { TextDatabase } from '../../tools/text-database.ts'
import { runCommand } from '../support/command.ts'
import { copyDatabase, onServer } from '../support/copies.ts'
import type { Tenant } from '../support/database.ts'
import { startReceiver, startSending } from '../support/endpoints.ts'
import { load, loadMembers, readEverything } from '../support/load.ts'
import { type Service, setUpService } from '../support/service.ts'
import { walk } from '../support/walk.ts'

const LONG_AGO = '2020-01-01T00:00:00.000Z'
/** Beyond every transaction id of the tests' server: as if the numbers came from a server that is older. */
const OTHER_SERVER = 900_000_000_000n

async function follow(service: Service, tenant: Tenant, userId = randomUserId()): Promise<bigint> {
  const { status } = await service.deliver(tenant, [lineEvent('follow', userId)])
  expect(status).toBe(200)
  return BigInt((await service.member(tenant, userId))?.id ?? 0)
}

/** Replaces the database beneath the service by its backup. */
const restore = ({ database: name }: Connection, backup: { connection: Connection }) =>
  onServer(
    ...[
      `drop database ${name} with (force)`,
      `create database ${name} template ${backup.connection.database}`,
    ],
  )

/** Makes the stored change numbers those of another server, and ends the connections of the service. */
async function moveToOtherServer(database: TextDatabase): Promise<void> {
  await database.session(async (session) => {
    await session.query('delete from change_mark')
    for (const table of ['audience_member', 'erased_member'])
      await session.query(`update ${table} set change = change + ${OTHER_SERVER}`)
    await session.query(
      `update endpoint set change_position = change_position + ${OTHER_SERVER}, first_change = first_change + ${OTHER_SERVER}`,
    )
    await session.query('update change_server set system_identifier = 1')
    await session.query(
      'select pg_terminate_backend(pid, 5000) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()',
    )
  })
}

it('after a restore gives no member an id that was given before, so a repeated DELETE erases nobody else', async () => {
  const { connection, service, tenant } = await setUpService()
  await follow(service, tenant)
  const backup = await copyDatabase(connection)
  const erased = await Promise.all([1, 2, 3].map(() => follow(service, tenant)))
  for (const id of erased) expect((await service.erase(tenant, id)).status).toBe(204)
  await restore(connection, backup)
  const given = [await follow(service, tenant), await follow(service, tenant)]
  for (const id of erased) {
    expect(given[0]).toBeGreaterThan(id)
    expect((await service.erase(tenant, id)).status).toBe(404)
  }
  expect(given[1]).toBeLessThan(2n ** 53n)
})

it('after a restore gives no id again after members were loaded with ids far ahead', async () => {
  const { database, connection, service, tenant } = await setUpService()
  const ahead = String(10n ** 15n)
  await loadMembers(database, tenant, 1, { id: ahead })
  expect((await service.erase(tenant, ahead)).status).toBe(204)
  const backup = await copyDatabase(connection)
  const id = await follow(service, tenant)
  expect(id).toBeGreaterThan(BigInt(ahead))
  await restore(connection, backup)
  expect(await follow(service, tenant)).toBeGreaterThan(id)
})

it('after a restore gives messages with the same number different ids, so that a receiver does not take one for a duplicate', async () => {
  const { database, tenant, addEndpoint } = await startSending()
  const { url, received } = await startReceiver()
  await loadMembers(database, tenant, 1, { id: '5' })
  const endpoint = await addEndpoint(url, { format: 'members' })
  for (const count of [1, 2]) {
    await load(
      database,
      `insert into endpoint_delivery (id, channel_oa_id, endpoint_id, type, member_id, change)
       values (7, $1, $2, 'member.updated', 5, 9)`,
      [tenant.accountId, endpoint],
    )
    await expect
      .poll(async () => [received.length, (await load(database, 'select from endpoint_delivery')).length])
      .toSatisfy(([arrived, waiting]) => arrived === count && waiting === 0)
  }
  const ids = received.map(({ headers }) => headers['webhook-id'])
  expect(new Set(ids).size).toBe(2)
})

it('after a restore misses no change if a running service meets the restored dump on another server', async () => {
  const { database, service, tenant, addEndpoint } = await startSending()
  const { url, received } = await startReceiver()
  await loadMembers(database, tenant, 2)
  await addEndpoint(url, { format: 'members' })
  await moveToOtherServer(database)
  await service.deliver(tenant, [lineEvent('follow', 'U1')])
  const feed = await walk(service, tenant, `updatedSince=${LONG_AGO}`)
  expect(feed.map(({ userId }) => userId)).toEqual(['U2', 'U1'])
  await expect.poll(() => received.length).toBe(1)
  expect(await load(database, 'select from change_server')).toHaveLength(1)
})

it('the command members erase accepts user ids of members and of others, and can be repeated', async () => {
  const { database, service, tenant, env } = await setUpService()
  const past = { timestamp: Date.now() - 60_000 }
  await service.deliver(tenant, [
    lineEvent('follow', 'Umember', past),
    textMessage('Umember', 'whispered', past),
  ])
  const erasePeople = (input: string, ...more: string[]) => {
    const account = ['--account', String(tenant.accountId)]
    return runCommand(['members', 'erase', ...account, '--user-ids-file', '-', '--json', ...more], env, {
      input,
    })
  }
  const [nobody, other] = [randomUserId(), randomUserId()]
  const { stdout, stderr } = await erasePeople(`Umember\r\n${nobody}\n\n`, '--user-id', other)
  expect([JSON.parse(stdout), stderr]).toEqual([{ erased: 3, members: 1 }, ''])
  expect(JSON.parse((await erasePeople('Umember\n')).stdout)).toEqual({ erased: 1, members: 0 })
  for (const userId of ['Umember', nobody, other])
    await service.deliver(tenant, [
      lineEvent('follow', userId, past),
      textMessage(userId, 'whispered late', past),
    ])
  expect(await service.members(tenant)).toEqual([])
  const stored = await readEverything(database)
  for (const text of ['whispered', 'Umember', nobody, other]) expect(stored.split(text)).toHaveLength(1)
  await follow(service, tenant, nobody)
  expect(await service.members(tenant)).toMatchObject([{ userId: nobody }])
  for (const [slip, message] of [
    ['x'.repeat(129), 'user id 2 of 2 is not a user id.'],
    [
      'nonsense',
      `user id 2 of 2 is not of LINE's form (U and 32 digits 0-9 a-f), and account ${tenant.accountId} has nothing stored about it.`,
    ],
  ])
    expect(await erasePeople(`${nobody}\n${slip}\n`)).toMatchObject({
      status: 1,
      stderr: `oa-audience: ${message} Nobody was erased.\n`,
    })
  expect(await service.members(tenant)).toHaveLength(1)
})
