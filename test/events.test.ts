/** Events that could not be applied are kept, shown and tried again, and count once. */
import { expect, it } from 'vitest'
import { hashKey } from '../src/intake/event.ts'
import { lineEvent, randomUserId, textMessage } from '../src/simulate/events.ts'
import { addTenant, createTestDatabase, urlOf } from './support/database.ts'
import { runCommand } from './support/process.ts'
import { startAppForTest } from './support/service.ts'

it('lists what could not be applied with its reason, and shows what was received', async () => {
  const { database, connection } = await createTestDatabase()
  const service = await startAppForTest(database)
  const tenant = await addTenant(database)
  const env = { DATABASE_URL: urlOf(connection) }
  await service.deliver(tenant, [
    { ...textMessage('Ubad', 'hello'), timestamp: 'never' },
    lineEvent('follow', 'Ugood'),
  ])
  const listed = JSON.parse(runCommand(['events', 'list', '--json'], env).stdout)
  expect(listed).toHaveLength(1)
  expect(listed[0]).toMatchObject({
    accountId: String(tenant.accountId),
    kind: 'message',
    failure: expect.stringContaining('time'),
  })
  expect(JSON.parse(runCommand(['events', 'list', '--all', '--json'], env).stdout)).toHaveLength(2)
  expect(runCommand(['events', 'show', listed[0].id], env).stdout).toContain('"timestamp":"never"')
  expect(runCommand(['events', 'show', '999'], env).stderr).toBe('oa-audience: there is no event 999\n')
  const retried = JSON.parse(runCommand(['events', 'retry', '--json'], env).stdout)
  expect(retried).toEqual([{ id: listed[0].id, outcome: listed[0].failure }])
  await database.close()
})

it('applies, once, what an older version could not', async () => {
  const { database, connection } = await createTestDatabase()
  const service = await startAppForTest(database)
  const tenant = await addTenant(database)
  const env = { DATABASE_URL: urlOf(connection) }
  const [userId, erasedId] = [randomUserId(), randomUserId()]
  const keep = async (who: string, event: { webhookEventId: string }) => {
    const key = hashKey('line', 'id', event.webhookEventId).toString('hex')
    await database.query('insert into event_key (channel_oa_id, key) values ($1, $2)', [
      tenant.accountId,
      key,
    ])
    await database.query(
      `insert into event (channel_oa_id, source, kind, key, occurred_at, user_id, payload, failure)
       values ($1, 'line', 'follow', $2, now(), $3, $4, 'the older version did not understand it')`,
      [tenant.accountId, key, who, JSON.stringify(event)],
    )
  }
  await service.deliver(tenant, [lineEvent('follow', erasedId, { timestamp: Date.now() - 60_000 })])
  await keep(userId, lineEvent('follow', userId))
  await keep(erasedId, lineEvent('follow', erasedId, { timestamp: Date.now() - 50_000 }))
  const erased = await service.member(tenant, erasedId)
  await service.call('DELETE', `/api/audience/${erased?.id}`, { headers: tenant.headers })

  const runs = await Promise.all([1, 2].map(async () => runCommand(['events', 'retry', '--json'], env)))
  const outcomes = runs.flatMap(({ stdout }) =>
    JSON.parse(stdout).map(({ outcome }: { outcome: string }) => outcome),
  )
  expect(outcomes.filter((outcome: string) => outcome === 'applied')).toHaveLength(1)
  expect(outcomes).toContain('its content was erased')
  expect(await service.member(tenant, userId)).toMatchObject({ relationship: 'following', eventCount: 1 })
  expect(await service.member(tenant, erasedId)).toBeUndefined()
  await database.close()
})

it('counts an event once that is retried by many at the same moment', async () => {
  const { database } = await createTestDatabase()
  const service = await startAppForTest(database)
  const tenant = await addTenant(database)
  const userId = randomUserId()
  const { readLineEvent } = await import('../src/intake/line/payload.ts')
  const { retryEvent } = await import('../src/intake/retry.ts')
  for (let round = 0; round < 10; round += 1) {
    const event = readLineEvent(textMessage(userId, 'again'), Date.now())
    const key = event.key.toString('hex')
    await database.query('insert into event_key (channel_oa_id, key) values ($1, $2)', [
      tenant.accountId,
      key,
    ])
    const [stored] = await database.query<{ id: bigint }>(
      `insert into event (channel_oa_id, source, kind, key, occurred_at, user_id, payload, failure)
       values ($1, 'line', 'message', $2, now(), $3, $4, 'x') returning id`,
      [tenant.accountId, key, userId, event.payload],
    )
    const outcomes = await Promise.allSettled(
      Array.from({ length: 6 }, () => retryEvent(database, stored?.id as bigint, event)),
    )
    const applied = outcomes.filter(
      (outcome) => outcome.status === 'fulfilled' && outcome.value === 'applied',
    )
    expect(applied).toHaveLength(1)
    expect(await service.member(tenant, userId)).toMatchObject({ eventCount: round + 1 })
  }
  await database.close()
})
