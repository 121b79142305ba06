/** Events that could not be applied are stored, can be listed and retried, and count once. */
import { expect, it } from 'vitest'
import { hashKey } from '../../src/intake/event-fields.ts'
import { retryEvent } from '../../src/intake/retry-events.ts'
import type { BoundStatement } from '../../src/postgres/statement.ts'
import { lineEvent, randomUserId, textMessage } from '../../tools/simulator/events.ts'
import type { TextDatabase } from '../../tools/text-database.ts'
import { runCommand } from '../support/command.ts'
import type { Tenant } from '../support/database.ts'
import { setUpService } from '../support/service.ts'

/** Stores an event as an older version did that could not parse it. Returns its id. */
async function storeFailed(
  database: TextDatabase,
  { accountId }: Tenant,
  userId: string,
  event: { type: string; webhookEventId: string },
): Promise<bigint> {
  const key = hashKey('line', 'id', event.webhookEventId).toString('hex')
  await database.query('insert into event_key (channel_oa_id, key) values ($1, $2)', [accountId, key])
  const [stored] = await database.query<{ id: bigint }>(
    `insert into event (channel_oa_id, source, kind, key, occurred_at, user_id, payload, failure)
     values ($1, 'line', $2, $3, now(), $4, $5, 'the older version could not parse it') returning id`,
    [accountId, event.type, key, userId, JSON.stringify(event)],
  )
  return stored?.id as bigint
}

/** Makes the database refuse rows of members that match the condition. Returns a function that ends this. */
async function refuseMembers(database: TextDatabase, condition: string): Promise<() => Promise<unknown>> {
  const tables = ['audience_member', 'tracked_activity']
  for (const table of tables)
    await database.query(`alter table ${table} add constraint refused check (not (${condition})) not valid`)
  return () =>
    Promise.all(tables.map((table) => database.query(`alter table ${table} drop constraint refused`)))
}

/** A database on which `action` runs after an event was read and before it is applied. */
function betweenReadAndApply(database: TextDatabase, action: () => Promise<unknown>): TextDatabase {
  return Object.create(database, {
    pipeline: {
      value: async (statements: BoundStatement[]) => {
        await action()
        return database.pipeline(statements)
      },
    },
    query: { value: database.query.bind(database) },
  })
}

async function failedIds(database: TextDatabase): Promise<bigint[]> {
  const rows = await database.query<{ id: bigint }>(
    'select id from event where failure is not null order by id',
  )
  return rows.map(({ id }) => id)
}

/** Without a time of its own. */
const conversationOf = (userId: string, fields: object) => ({
  ...{ id: 7, channel: 'Channel::Line', contact_inbox: { source_id: userId } },
  ...fields,
})

async function setUpFailure() {
  const { env, ...parts } = await setUpService()
  const invalid = { ...textMessage('Ubad', 'hello'), timestamp: 'never' }
  await parts.service.deliver(parts.tenant, [invalid, lineEvent('follow', 'Ugood')])
  const run = (...args: string[]) => runCommand(['events', ...args], env)
  const json = async (...args: string[]) => JSON.parse((await run(...args, '--json')).stdout)
  return { ...parts, run, json }
}

it('oa-audience events lists events that could not be applied with the reasons, shows them, and reports a retry in vain', async () => {
  const { tenant, run, json } = await setUpFailure()
  const failed = await json('list', '--status', 'failed')
  expect(failed).toEqual([
    expect.objectContaining({
      accountId: String(tenant.accountId),
      kind: 'message',
      failure: expect.stringContaining('time'),
    }),
  ])
  expect(await json('list')).toHaveLength(2)
  const [{ id, failure }] = failed
  expect((await run('show', id)).stdout).toContain('"timestamp":"never"')
  const { stdout, status } = await run('retry', '--json')
  expect(JSON.parse(stdout)).toEqual([{ id, outcome: failure }])
  expect(status).toBe(1)
})

it('oa-audience events does not apply the event of an erased person', async () => {
  const { database, service, tenant, json } = await setUpFailure()
  const userId = randomUserId()
  await service.deliver(tenant, [lineEvent('follow', userId, { timestamp: Date.now() - 60_000 })])
  const event = lineEvent('follow', userId, { timestamp: Date.now() - 50_000 })
  const id = await storeFailed(database, tenant, userId, event)
  await service.eraseUser(tenant, userId)
  expect(await json('retry', String(id))).toEqual([{ id: String(id), outcome: 'its content was erased' }])
  expect(await service.member(tenant, userId)).toBeUndefined()
})

it('oa-audience events applies other events if one is refused again, and skips member ids that are taken', async () => {
  const { database, service, tenant, run } = await setUpFailure()
  await database.query('delete from event')
  const allow = await refuseMembers(database, `user_id like 'Unew%'`)
  await service.deliver(tenant, [lineEvent('follow', 'Unew-bad'), lineEvent('follow', 'Unew-good')])
  await allow()
  await refuseMembers(database, `user_id = 'Unew-bad'`)
  await database.query(
    `insert into audience_member (id, channel_oa_id, organization_id, user_id)
     select i, $1, $2, 'loaded' || i from generate_series(2, 501) i`,
    [tenant.accountId, tenant.organizationId],
  )
  const { stdout, status } = await run('retry', '--json')
  expect(status).toBe(1)
  expect(JSON.parse(stdout).map(({ outcome }: { outcome: string }) => outcome)).toEqual([
    'the database refused to apply it (SQLSTATE 23514)',
    'applied',
  ])
  expect(await service.member(tenant, 'Unew-good')).toMatchObject({ eventCount: 1 })
})

it('counts an event once that six retries apply at the same moment', async () => {
  const { database, service, tenant } = await setUpService()
  const userId = randomUserId()
  for (let round = 1; round <= 10; round += 1) {
    const id = await storeFailed(database, tenant, userId, textMessage(userId, 'again'))
    const outcomes = await Promise.allSettled(Array.from({ length: 6 }, () => retryEvent(database, id)))
    const applied = outcomes.filter(
      (outcome) => outcome.status === 'fulfilled' && outcome.value === 'applied',
    )
    expect(applied).toHaveLength(1)
    expect(await service.member(tenant, userId)).toMatchObject({ eventCount: round })
  }
})

it('applies refused events of every source with the times at which they were received', async () => {
  const { database, service, tenant } = await setUpService()
  const userId = randomUserId()
  const allow = await refuseMembers(database, `user_id = '${userId}'`)
  const conversation = (status: string) =>
    conversationOf(userId, { event: 'conversation_status_changed', status })
  await service.deliver(tenant, [lineEvent('follow', userId)])
  await service.chat(tenant, conversation('open'))
  await service.track(tenant, [{ type: 'page', userId, messageId: 'm1' }])
  const ids = await failedIds(database)
  expect(ids).toHaveLength(3)
  await allow()
  await service.chat(tenant, conversation('resolved'))
  for (const id of ids) expect(await retryEvent(database, id)).toBe('applied')
  expect(await service.member(tenant, userId)).toMatchObject({
    relationship: 'following',
    conversation: { id: '7', status: 'resolved' },
    // The follow and the page; changes of the conversation do not count.
    eventCount: 2,
  })
  expect(await failedIds(database)).toEqual([])
})

it('keeps a person erased whose event is being retried, content included', async () => {
  const { database, service, tenant } = await setUpService()
  const userId = randomUserId()
  const allow = await refuseMembers(database, `user_id = '${userId}'`)
  // Without a time of its own, the event could be taken for newer than the erasure.
  const contact = { event: 'contact_updated', id: 1, additional_attributes: { social_line_user_id: userId } }
  await service.chat(tenant, contact)
  await allow()
  await service.deliver(tenant, [lineEvent('follow', userId)])
  const [id] = await failedIds(database)
  const late = betweenReadAndApply(database, () => service.eraseUser(tenant, userId))
  expect(await retryEvent(late, id as bigint)).toBe('it was changed at the same time: check it again')
  expect(await service.member(tenant, userId)).toBeUndefined()
  expect(await database.query('select from event where user_id is not null or payload is not null')).toEqual(
    [],
  )
})

it('does not apply an event of another inbox than the one that the account now has', async () => {
  const { database, service, tenant } = await setUpService()
  const userId = randomUserId()
  const allow = await refuseMembers(database, `user_id = '${userId}'`)
  const fields = { event: 'conversation_updated', inbox_id: 4, status: 'open' }
  await service.chat(tenant, conversationOf(userId, fields))
  await allow()
  await database.query(`update official_account set chat_inbox_id = '3'`)
  const [id] = await failedIds(database)
  expect(await retryEvent(database, id as bigint)).toBe(
    "the event belongs to another inbox than the account's",
  )
  expect(await service.members(tenant)).toEqual([])
  await database.query(`update official_account set chat_inbox_id = '4'`)
  expect(await retryEvent(database, id as bigint)).toBe('applied')
})

it('does not apply an event that lost its content with a person or with its message', async () => {
  const { database, service, tenant } = await setUpService()
  const [erasedId, joinedId, sender] = [randomUserId(), randomUserId(), randomUserId()]
  await service.deliver(tenant, [lineEvent('follow', erasedId)])
  const allow = await refuseMembers(database, `user_id in ('${joinedId}', '${sender}')`)
  await service.deliver(tenant, [
    lineEvent('memberJoined', null, {
      source: { type: 'group', groupId: 'C1' },
      joined: { members: [erasedId, joinedId].map((userId) => ({ type: 'user', userId })) },
    }),
    lineEvent('message', sender, { message: { type: 'text', id: 'taken-back', text: 'hello' } }),
  ])
  const ids = await failedIds(database)
  expect(ids).toHaveLength(2)
  await allow()
  await service.deliver(tenant, [lineEvent('unsend', null, { unsend: { messageId: 'taken-back' } })])
  await service.eraseUser(tenant, erasedId)
  for (const id of ids) expect(await retryEvent(database, id)).toBe('its content was erased')
  expect(await service.members(tenant)).toEqual([])
})
