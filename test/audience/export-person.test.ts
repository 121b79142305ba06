/** A person's own data: every part, for every table with personal data, without other people. */
import { readFileSync, statSync } from 'node:fs'
import { join } from 'node:path'
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { withoutOthers } from '../../src/audience/export/others.ts'
import { lineEvent, messageId, randomUserId, textMessage } from '../../tools/simulator/events.ts'
import { conversation, message } from '../support/chatwoot.ts'
import { runCommand } from '../support/command.ts'
import { signedIn, startConsole } from '../support/console.ts'
import { addTenant, type Tenant } from '../support/database.ts'
import { load, loadMembers } from '../support/load.ts'
import { temporaryDirectory } from '../support/process.ts'
import { setUpService } from '../support/service.ts'

const { database, service, env } = await setUpService()
const operator = await signedIn((await startConsole(database)).url)

const directory = temporaryDirectory()

const command = ({ accountId }: Tenant, userId: string, ...args: string[]) =>
  runCommand(['members', 'export-person', '--account', String(accountId), '--user-id', userId, ...args], env)

async function dataOf(tenant: Tenant, userId: string) {
  const { status, stdout, stderr } = await command(tenant, userId)
  if (status !== 0) throw new Error(stderr)
  return JSON.parse(stdout)
}

const group = (userId?: string) => ({ source: { type: 'group', groupId: 'C1', ...(userId && { userId }) } })
const members = (...userIds: string[]) => ({ members: userIds.map((userId) => ({ type: 'user', userId })) })

/** A person with rows in every part, and another one in the same group. */
async function addPerson() {
  const tenant = await addTenant(database)
  await load(
    database,
    `insert into endpoint (channel_oa_id, url, name) values ($1, 'https://example.com/hook', 'CRM')`,
    [tenant.accountId],
  )
  const [person, other] = [randomUserId(), randomUserId()]
  const mention = {
    mentionees: [
      { index: 0, length: 4, type: 'user', userId: other },
      { index: 5, length: 4, type: 'all' },
    ],
  }
  await service.deliver(tenant, [
    lineEvent('follow', person),
    {
      ...lineEvent('message', person, group(person)),
      message: { type: 'text', id: messageId(), text: '@Bob @All hi', mention },
    },
    lineEvent('memberJoined', null, { ...group(), joined: members(person, other) }),
    lineEvent('memberLeft', other, {
      ...group(other),
      left: members(person, other),
      note: 'text of another person',
    }),
    textMessage(other, 'a secret of another person', group(other)),
  ])
  await service.chat(tenant, {
    ...message(person, { content: 'How can we help?', message_type: 'outgoing', source_id: null }),
    ...{
      event: 'message_created',
      sender: { id: 1, name: 'Agent Smith', email: 'smith@example.com', type: 'user' },
    },
    conversation: conversation(person, { meta: { assignee: { name: 'Agent Smith' } } }),
  })
  await service.track(tenant, [{ type: 'page', userId: person, messageId: 'T1', properties: { order: 1 } }])
  const member = await service.member(tenant, person)
  await service.put(tenant, member?.id, { tags: ['vip'], attributes: { size: 'M' } })
  await operator.post(`/api/accounts/${tenant.accountId}/update-member`, {
    member: member?.id,
    version: '2',
    update: { externalId: 'E1' },
  })
  return { tenant, person, other, member }
}

it("a person's own data has everything that is stored about the person", async () => {
  const { tenant, person, member } = await addPerson()
  const data = await dataOf(tenant, person)
  expect(data).toMatchObject({
    ...{ formatVersion: 1, userId: person, erasures: [] },
    account: { id: String(tenant.accountId), name: 'test', organizationId: String(tenant.organizationId) },
    member: {
      id: member?.id,
      userId: person,
      tags: ['vip'],
      externalId: 'E1',
      attributes: { size: 'M' },
      relationship: 'following',
    },
    trackedActivity: { eventCount: 1 },
  })
  expect(Date.parse(data.member.relationshipAt)).toBeGreaterThan(0)
  expect(data.edits.map(({ fields, actor, clientId }: never) => ({ fields, actor, clientId }))).toEqual([
    { fields: ['tags', 'attributes'], actor: null, clientId: tenant.headers['x-client-id'] },
    { fields: ['externalId'], actor: 'token', clientId: null },
  ])
  expect(data.edits[1].changes).toEqual({ externalId: [null, 'E1'] })
  const kinds = data.events.map(({ source, kind, isSource }: never) => `${source} ${kind} ${isSource}`)
  expect(kinds).toEqual([
    ...['line follow true', 'line message true', 'line memberJoined false', 'line memberLeft false'],
    ...['mbox message_created true', 'tracking page true'],
  ])
  expect(data.events[5].payload.properties).toEqual({ order: 1 })
  expect(data.deliveries).toEqual([
    expect.objectContaining({ endpointName: 'CRM', type: 'events', status: 'pending', response: null }),
  ])
  expect(data.activity.map(({ action, actor }: never) => [action, actor])).toEqual([
    ['member.updated', 'token'],
    ['member.exported', expect.stringContaining('@')],
  ])
})

it("a person's own data has nothing of other people in a group, and no names of agents", async () => {
  const { tenant, person, other } = await addPerson()
  const data = await dataOf(tenant, person)
  const text = JSON.stringify(data.events)
  expect(text).not.toContain(other)
  expect(text).not.toMatch(/another person|Smith|smith@/)
  expect(data.events[1].payload.message).toMatchObject({
    text: '@Bob @All hi',
    mention: { mentionees: [{ index: 5, length: 4, type: 'all' }] },
  })
  expect(data.events[2].payload.joined).toEqual(members(person))
  expect(data.events[3].payload).toMatchObject({
    type: 'memberLeft',
    source: { type: 'group', groupId: 'C1' },
    left: members(person),
  })
  expect(data.events[4].payload.content).toBe('How can we help?')
})

it("a person's own data exists for people who are not members, and after an erasure only says when it was", async () => {
  const { tenant, person, member } = await addPerson()
  await service.track(tenant, [{ type: 'page', userId: 'visitor', messageId: 'T2' }])
  const visitor = await dataOf(tenant, 'visitor')
  expect([visitor.member, visitor.trackedActivity.eventCount, visitor.events.length]).toEqual([null, 1, 1])
  await service.erase(tenant, member?.id)
  const erased = await dataOf(tenant, person)
  const nothing = { member: null, trackedActivity: null }
  expect(erased).toMatchObject({ ...nothing, edits: [], events: [], deliveries: [], activity: [] })
  expect(erased.erasures).toEqual([{ erasedAt: expect.any(String), status: 'done' }])
})

it("a person's own data is not found for a person about whom nothing is stored in this account", async () => {
  const { person } = await addPerson()
  const other = await addTenant(database)
  for (const userId of [person, 'nobody', '']) {
    const { status, stdout, stderr } = await command(other, userId)
    expect([status, stdout]).toEqual([1, ''])
    expect(stderr).toContain('has nothing stored about this user id')
  }
  const path = `/api/accounts/${other.accountId}/people/export`
  expect((await operator.get(`${path}?userId=${person}`)).status).toBe(404)
  for (const query of ['', '?userId=', `?userId=${'x'.repeat(129)}`, '?userId=U1&limit=1'])
    expect((await operator.get(path + query)).status, query).toBe(400)
  expect(
    await load(database, 'select action from activity where channel_oa_id = $1', [other.accountId]),
  ).toEqual([])
})

it("a person's own data is the same in the console and in a file that only its owner can read", async () => {
  const { tenant, person } = await addPerson()
  const { generatedAt: _, ...expected } = await dataOf(tenant, person)
  const file = join(directory, 'person.json')
  await command(tenant, person, '--output', file)
  expect(statSync(file).mode & 0o777).toBe(0o600)
  expect(JSON.parse(readFileSync(file, 'utf8'))).toMatchObject({ userId: person, events: expected.events })
  const path = `/api/accounts/${tenant.accountId}/people/export?userId=${person}`
  const { status, headers, json } = await operator.get(path)
  expect([status, headers.get('content-disposition')]).toEqual([
    ...[200, `attachment; filename="person-${tenant.accountId}.json"`],
  ])
  // The exports above are recorded.
  expect({ ...json, activity: [] }).toMatchObject({ ...expected, activity: [] })
  expect(json.activity.map(({ action }: never) => action)).toEqual([
    ...['member.updated', 'member.exported', 'member.exported', 'member.exported'],
  ])
  const rows = await load<{ row: string }>(
    database,
    'select a::text as row from activity a where channel_oa_id = $1',
    [tenant.accountId],
  )
  expect(rows.map(({ row }) => row).join()).not.toContain(person)
})

it("a person's own data is read in pages, however many events and edits the person has", async () => {
  const tenant = await addTenant(database)
  await loadMembers(database, tenant, 1)
  const member = await service.member(tenant, 'U1')
  await load(
    database,
    `with edits as (
       insert into member_edit (channel_oa_id, member_id, fields) select $1, $2, '{tags}' from generate_series(1, 4100)
     )
     insert into event (channel_oa_id, source, kind, key, occurred_at, received_at, user_id, payload)
     select $1, 'line', 'message', gen_random_uuid(), now(), now() - (i % 7) * interval '1 second', 'U1',
            case when i % 1000 = 0 then concat('{"text":"', repeat('x', 1500000), '"}') else '{}' end
       from generate_series(1, 4100) i`,
    [tenant.accountId, member?.id],
  )
  const data = await dataOf(tenant, 'U1')
  expect(new Set(data.events.map(({ id }: { id: string }) => id)).size).toBe(4100)
  expect([data.events.length, data.edits.length]).toEqual([4100, 4100])
})

describe('the tables in docs/personal-data.md', () => {
  const root = new URL('../..', import.meta.url)
  const text = readFileSync(new URL('docs/personal-data.md', root), 'utf8')
  const [, table = ''] = /\| table \| part, or why there is none \|\n\|-.*\n((?:\|.*\n)+)/.exec(text) ?? []
  const rows = table
    .trim()
    .split('\n')
    .map((row) => row.split('|').map((cell) => cell.trim()))
  const listed = rows.flatMap(([, tables = '', part = '']) =>
    [...tables.matchAll(/`(\w+)`/g)].map(([, name = '']) => ({ name, part })),
  )

  it('include every table with a column about a person', () => {
    const schema = readFileSync(new URL('docs/schema.sql', root), 'utf8')
    const personal =
      /^ {2}"?(user_id|member_id|other_user_ids|\w*person\w*|message_id|event_keys|event_ids|payload|display_name|parameters|object_id)"? /m
    const found = [...schema.matchAll(/^create table (\w+) \((.*?)^\)/gms)]
      .filter(([, name, columns = '']) => name !== 'official_account' && personal.test(columns))
      .map(([, name]) => name)
    expect(found).toContain('event')
    expect(found.filter((name) => !listed.some((one) => one.name === name))).toEqual([])
    for (const { name } of listed) expect(schema).toContain(`create table ${name} (`)
  })

  it('name exactly the parts of the file', async () => {
    const { tenant, person } = await addPerson()
    const parts = listed.map(({ part }) => /^`(\w+)`/.exec(part)?.[1] ?? part)
    const named = parts.filter((part) => !part.startsWith('none: '))
    const about = ['formatVersion', 'generatedAt', 'account', 'userId']
    const found = Object.keys(await dataOf(tenant, person)).filter((name) => !about.includes(name))
    expect([...new Set(named)].toSorted()).toEqual(found.toSorted())
  })
})

describe('withoutOthers', () => {
  const [person, other] = [randomUserId(), randomUserId()]

  it('leaves no other user id, at any place of an event of any kind, and everything else', () => {
    const id = fc.constantFrom(person, other)
    const { value } = fc.letrec((tie) => ({
      value: fc.oneof(
        { maxDepth: 5 },
        fc.integer(),
        fc.constantFrom('text', 'user'),
        id,
        tie('list'),
        tie('object'),
      ),
      list: fc.array(tie('value'), { maxLength: 4 }),
      object: fc.dictionary(fc.constantFrom('userId', 'type', 'source', 'members', 'x'), tie('value'), {
        maxKeys: 4,
      }),
    }))
    fc.assert(
      fc.property(value, (event) => {
        // JSON.parse() would change the number.
        const payload = `{"id": 12345678901234567890, "event": ${JSON.stringify(event)}}`
        const kept = withoutOthers({ source: 'line', isSource: true }, person, payload)
        expect(kept).not.toContain(other)
        if (!payload.includes(other) && !payload.includes('"userId":"')) expect(kept).toBe(payload)
      }),
    )
  })

  it('leaves the texts of a support chat about what agents did, which contain their names', () => {
    const did = 'Assigned to Agent Smith by Agent Jones'
    const texts = { content: did, processed_message_content: did }
    const webhook = {
      ...{ event: 'message_created', id: 7, message_type: 'activity', ...texts },
      conversation: {
        id: 5,
        messages: [
          { id: 7, message_type: 2, ...texts },
          { id: 8, message_type: 0, content: 'hello' },
        ],
      },
    }
    const kept = withoutOthers({ source: 'mbox', isSource: true }, person, JSON.stringify(webhook))
    expect(kept).not.toMatch(/Smith|Jones/)
    expect(JSON.parse(kept)).toMatchObject({
      ...{ id: 7, message_type: 'activity' },
      conversation: { messages: [{ id: 7 }, { id: 8, content: 'hello' }] },
    })
  })
})
