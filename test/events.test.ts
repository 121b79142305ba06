/** Events that could not be applied are kept, shown and tried again, and count once. */
import { expect, it } from 'vitest'
import { understand } from '../src/cli/understand.ts'
import { hashKey } from '../src/intake/event.ts'
import { readLineEvent } from '../src/intake/line/payload.ts'
import { retryEvent } from '../src/intake/retry.ts'
import type { Database } from '../src/postgres/database.ts'
import type { BoundStatement } from '../src/postgres/statement.ts'
import { lineEvent, randomUserId, textMessage } from '../tools/simulator/events.ts'
import { urlOf } from './support/database.ts'
import { runCommand } from './support/process.ts'
import { setUpTest } from './support/service.ts'

it('lists what could not be applied with its reason, and shows what was received', async () => {
  const { database, connection, service, tenant } = await setUpTest()
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
  const { database, connection, service, tenant } = await setUpTest()
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
  const { database, service, tenant } = await setUpTest()
  const userId = randomUserId()
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
      Array.from({ length: 6 }, () => retryEvent(database, stored?.id as bigint, understand)),
    )
    const applied = outcomes.filter(
      (outcome) => outcome.status === 'fulfilled' && outcome.value === 'applied',
    )
    expect(applied).toHaveLength(1)
    expect(await service.member(tenant, userId)).toMatchObject({ eventCount: round + 1 })
  }
  await database.close()
})

/** The database refuses whatever names these people, until it is told not to. */
async function refusePeople(database: Database, condition: string): Promise<() => Promise<unknown>> {
  for (const table of ['audience_member', 'tracked_activity'])
    await database.query(`alter table ${table} add constraint refused check (not (${condition})) not valid`)
  return () =>
    Promise.all(
      ['audience_member', 'tracked_activity'].map((table) =>
        database.query(`alter table ${table} drop constraint refused`),
      ),
    )
}

/** The database, in which something happens between the reading of an event and its application. */
function afterReading(database: Database, happens: () => Promise<unknown>): Database {
  return Object.create(database, {
    transactionAtOnce: {
      value: async (statements: BoundStatement[]) => {
        await happens()
        return database.transactionAtOnce(statements)
      },
    },
    query: { value: database.query.bind(database) },
  })
}

async function waiting(database: Database): Promise<bigint[]> {
  const rows = await database.query<{ id: bigint }>(
    'select id from event where failure is not null order by id',
  )
  return rows.map(({ id }) => id)
}

it('events of every source that the database refused are applied, at the time at which they came', async () => {
  const { database, service, tenant } = await setUpTest()
  const userId = randomUserId()
  const letIn = await refusePeople(database, `user_id = '${userId}'`)
  const conversation = (status: string) => ({
    event: 'conversation_status_changed',
    id: 7,
    status,
    channel: 'Channel::Line',
    contact_inbox: { source_id: userId },
  })
  await service.deliver(tenant, [lineEvent('follow', userId)])
  await service.chat(tenant, conversation('open'))
  await service.track(tenant, [{ type: 'page', userId, messageId: 'm1' }])
  const ids = await waiting(database)
  expect(ids).toHaveLength(3)
  await letIn()
  await service.chat(tenant, conversation('resolved'))
  for (const id of ids) expect(await retryEvent(database, id, understand)).toBe('applied')
  expect(await service.member(tenant, userId)).toMatchObject({
    relationship: 'following',
    conversation: { id: '7', status: 'resolved' },
    eventCount: 4,
  })
  expect(await waiting(database)).toEqual([])
  await database.close()
})

it('an event that is still refused leaves the others alone, and ids that others took are passed over', async () => {
  const { database, connection, service, tenant } = await setUpTest()
  const letIn = await refusePeople(database, `user_id like 'U%'`)
  await service.deliver(tenant, [lineEvent('follow', 'Ubad'), lineEvent('follow', 'Ugood')])
  await letIn()
  await refusePeople(database, `user_id = 'Ubad'`)
  await database.query(
    `insert into audience_member (id, channel_oa_id, organization_id, user_id)
     select i, $1, $2, 'loaded' || i from generate_series(1, 500) i`,
    [tenant.accountId, tenant.organizationId],
  )
  const { stdout, status } = runCommand(['events', 'retry', '--json'], { DATABASE_URL: urlOf(connection) })
  expect(status).toBe(1)
  expect(JSON.parse(stdout).map(({ outcome }: { outcome: string }) => outcome)).toEqual([
    'the database refused to apply it (SQLSTATE 23514)',
    'applied',
  ])
  expect(await service.member(tenant, 'Ugood')).toMatchObject({ relationship: 'following', eventCount: 1 })
  await database.close()
})

it('a person who is erased while their event is retried stays erased, content included', async () => {
  const { database, service, tenant } = await setUpTest()
  const userId = randomUserId()
  const letIn = await refusePeople(database, `user_id = '${userId}'`)
  // Without a time of its own: what could be taken for newer than the erasure.
  const contact = { event: 'contact_updated', id: 1, additional_attributes: { social_line_user_id: userId } }
  await service.chat(tenant, contact)
  await letIn()
  await service.deliver(tenant, [lineEvent('follow', userId)])
  const member = await service.member(tenant, userId)
  const [id] = await waiting(database)
  // The event has been read; the erasure comes before it is applied.
  const late = afterReading(database, async () => {
    const path = `/api/audience/${member?.id}`
    expect((await service.call('DELETE', path, { headers: tenant.headers })).status).toBe(204)
  })
  expect(await retryEvent(late, id as bigint, understand)).toBe('it changed meanwhile: look at it again')
  expect(await service.member(tenant, userId)).toBeUndefined()
  expect(await database.query('select from event where user_id is not null or payload is not null')).toEqual(
    [],
  )
  await database.close()
})

it('an event of what is another inbox by now is not applied', async () => {
  const { database, service, tenant } = await setUpTest()
  const userId = randomUserId()
  const letIn = await refusePeople(database, `user_id = '${userId}'`)
  const conversation = {
    id: 7,
    inbox_id: 4,
    status: 'open',
    channel: 'Channel::Line',
    contact_inbox: { source_id: userId },
  }
  await service.chat(tenant, { ...conversation, event: 'conversation_updated' })
  await letIn()
  await database.query(`update official_account set chat_inbox_id = '3'`)
  const [id] = await waiting(database)
  expect(await retryEvent(database, id as bigint, understand)).toBe(
    "it is of another inbox than the account's",
  )
  expect(await service.members(tenant)).toEqual([])
  await database.query(`update official_account set chat_inbox_id = '4'`)
  expect(await retryEvent(database, id as bigint, understand)).toBe('applied')
  await database.close()
})

it('an event whose content was erased still counts for the people who were not', async () => {
  const { database, service, tenant } = await setUpTest()
  const [erasedId, joinedId, sender] = [randomUserId(), randomUserId(), randomUserId()]
  await service.deliver(tenant, [lineEvent('follow', erasedId)])
  const letIn = await refusePeople(database, `user_id in ('${joinedId}', '${sender}')`)
  await service.deliver(tenant, [
    lineEvent('memberJoined', null, {
      source: { type: 'group', groupId: 'C1' },
      joined: { members: [erasedId, joinedId].map((userId) => ({ type: 'user', userId })) },
    }),
    lineEvent('message', sender, { message: { type: 'text', id: 'taken-back', text: 'hello' } }),
  ])
  const ids = await waiting(database)
  expect(ids).toHaveLength(2)
  await letIn()
  await service.deliver(tenant, [lineEvent('unsend', null, { unsend: { messageId: 'taken-back' } })])
  const erased = await service.member(tenant, erasedId)
  await service.call('DELETE', `/api/audience/${erased?.id}`, { headers: tenant.headers })
  for (const id of ids) {
    expect(await retryEvent(database, id, understand)).toBe('applied')
    expect(await retryEvent(database, id, understand)).toBe('there is no such event that waits')
  }
  const members = await service.members(tenant)
  expect(members.map(({ userId, eventCount }) => [userId, eventCount]).sort()).toEqual(
    [
      [joinedId, 1],
      [sender, 1],
    ].sort(),
  )
  expect(await database.query(`select from event where payload like '%hello%'`)).toEqual([])
  await database.close()
})

it('an event whose account gets another secret while it is retried stays where it is', async () => {
  const { database, service, tenant } = await setUpTest()
  const userId = randomUserId()
  const letIn = await refusePeople(database, `user_id = '${userId}'`)
  await service.deliver(tenant, [lineEvent('follow', userId)])
  await letIn()
  const [id] = await waiting(database)
  // The event has been read; the new secret comes before it is applied.
  const late = afterReading(database, () =>
    database.query(`update official_account set channel_secret = 'another' where id = $1`, [
      tenant.accountId,
    ]),
  )
  expect(await retryEvent(late, id as bigint, understand)).toBe('it changed meanwhile: look at it again')
  expect(await waiting(database)).toEqual([id])
  expect(await retryEvent(database, id as bigint, understand)).toBe('applied')
  expect(await service.member(tenant, userId)).toMatchObject({ eventCount: 1 })
  await database.close()
})
