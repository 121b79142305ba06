/** CONTRACT: DELETE /api/audience/:id, and that erasure lasts. */
import { describe, expect, it } from 'vitest'
import { eraseMember } from '../src/audience/erase.ts'
import type { Member } from '../src/audience/member.ts'
import { finishErasures } from '../src/audience/pending-erasure.ts'
import { PostgresDatabase } from '../src/postgres/postgres-database.ts'
import { lineEvent, randomUserId, textMessage } from '../tools/simulator/events.ts'
import { addTenant, createTestDatabase, type Tenant } from './support/database.ts'
import { setUpFile, startAppForTest } from './support/service.ts'

const { database, service, tenant } = await setUpFile()

const erase = (who: Tenant, id: string) =>
  service.call('DELETE', `/api/audience/${id}`, { headers: who.headers })
const ago = (ms: number) => ({ timestamp: Date.now() - ms })

async function memberOf(who: Tenant, userId: string): Promise<Member> {
  return (await service.member(who, userId)) as Member
}

/** Every row of every table, as text: what somebody who steals the database would read. */
async function everything(): Promise<string> {
  const tables = await database.query<{ name: string }>(
    `select table_name as name from information_schema.tables where table_schema = 'public' and table_type = 'BASE TABLE'`,
  )
  const texts = await Promise.all(
    tables.map(({ name }) =>
      database.query<{ text: string }>(
        `select coalesce(string_agg(t::text, ' '), '') as text from ${name} t`,
      ),
    ),
  )
  return texts
    .flat()
    .map(({ text }) => text)
    .join('\n')
}

describe('erasing a person', () => {
  it('answers 204 and then 404, and the listing no longer has them', async () => {
    const userId = randomUserId()
    await service.deliver(tenant, [lineEvent('follow', userId, ago(5000))])
    const { id } = await memberOf(tenant, userId)
    const answer = await erase(tenant, id)
    expect(answer.status).toBe(204)
    expect(answer.text).toBe('')
    expect(await service.member(tenant, userId)).toBeUndefined()
    const again = await erase(tenant, id)
    expect(again.json).toMatchObject({ statusCode: 404, message: expect.stringMatching(/^Step 2: /) })
  })

  it('is refused with 412 and erases nothing where If-Match names another version', async () => {
    const userId = randomUserId()
    await service.deliver(tenant, [lineEvent('follow', userId, ago(5000))])
    const { id } = await memberOf(tenant, userId)
    const eraseVersion = (version: string, of = id) =>
      service.call('DELETE', `/api/audience/${of}`, { headers: { ...tenant.headers, 'if-match': version } })
    expect((await eraseVersion('"2"')).json).toMatchObject({
      statusCode: 412,
      message: expect.stringMatching(/^Step 2: /),
    })
    expect(await memberOf(tenant, userId)).toMatchObject({ id, userId })
    expect((await eraseVersion('"1"', '999999')).status).toBe(404)
    expect((await eraseVersion('"1"')).status).toBe(204)
  })

  it('leaves neither their user id nor their words anywhere in the database', async () => {
    const [userId, friend] = [randomUserId(), randomUserId()]
    const group = { type: 'group', groupId: 'Cgroup' }
    await service.deliver(tenant, [
      textMessage(userId, 'my secret words', ago(5000)),
      textMessage(userId, 'more secret words', { ...ago(5000), source: { ...group, userId } }),
      {
        ...lineEvent('message', userId, ago(5000)),
        timestamp: 'never',
        message: { text: 'unusable secret words' },
      },
      lineEvent('memberJoined', null, {
        ...ago(5000),
        source: group,
        joined: {
          members: [
            { type: 'user', userId },
            { type: 'user', userId: friend },
          ],
        },
      }),
      lineEvent('memberLeft', null, {
        ...ago(5000),
        source: group,
        left: { members: [{ type: 'user', userId }] },
      }),
    ])
    await service.chat(tenant, {
      event: 'message_created',
      id: 1,
      content: 'secret words in the chat',
      created_at: (Date.now() - 5000) / 1000,
      conversation: { id: 4, status: 'open', contact_inbox: { source_id: userId } },
    })
    await service.track(tenant, [{ type: 'page', userId, properties: { page: 'secret words on a page' } }])
    expect(await everything()).toContain(userId)
    expect((await erase(tenant, (await memberOf(tenant, userId)).id)).status).toBe(204)
    const rest = await everything()
    expect(rest).not.toContain(userId)
    expect(rest).not.toContain('secret words')
    expect((await memberOf(tenant, friend)).eventCount).toBe(1)
  })

  it('finds events that could not be applied, too', async () => {
    const userId = randomUserId()
    await service.deliver(tenant, [
      lineEvent('follow', userId, ago(5000)),
      lineEvent('memberJoined', null, {
        ...ago(5000),
        source: { type: 'group', groupId: 'C1' },
        joined: {
          members: [
            { type: 'user', userId },
            { type: 'user', userId: 7 },
          ],
        },
      }),
    ])
    await service.chat(tenant, {
      event: 'message_created',
      id: 77,
      content: 'unusable secret words in the chat',
      updated_at: {},
      contact_inbox: { source_id: userId },
    })
    expect((await everything()).split(userId).length).toBeGreaterThan(3)
    await erase(tenant, (await memberOf(tenant, userId)).id)
    const rest = await everything()
    expect(rest).not.toContain(userId)
    expect(rest).not.toContain('unusable secret words in the chat')
  })

  it('lasts where the database isolates transactions more strictly by default', async () => {
    const { database: strict, connection } = await createTestDatabase()
    await strict.query(
      `alter database ${connection.database} set default_transaction_isolation = 'repeatable read'`,
    )
    await strict.close()
    const reopened = new PostgresDatabase(connection, () => undefined)
    reopened.markReady()
    const app = await startAppForTest(reopened)
    const who = await addTenant(reopened)
    for (let round = 0; round < 10; round += 1) {
      const userId = randomUserId()
      await app.deliver(who, [lineEvent('follow', userId, ago(60_000))])
      const id = (await app.member(who, userId))?.id
      const late = Array.from({ length: 5 }, (_, i) =>
        app.deliver(who, [textMessage(userId, 'late', ago(50_000 - i))]),
      )
      const erased = app.call('DELETE', `/api/audience/${id}`, { headers: who.headers })
      const later = Array.from({ length: 5 }, (_, i) =>
        app.deliver(who, [textMessage(userId, 'late', ago(40_000 - i))]),
      )
      for (const { status } of await Promise.all([...late, ...later])) expect(status).toBe(200)
      expect((await erased).status).toBe(204)
      expect(await app.member(who, userId)).toBeUndefined()
    }
    await reopened.close()
  })

  it('lasts: older events never bring them back, redelivered or late, and leave no trace', async () => {
    const userId = randomUserId()
    const known = lineEvent('follow', userId, ago(60_000))
    await service.deliver(tenant, [known])
    await erase(tenant, (await memberOf(tenant, userId)).id)
    const late = textMessage(userId, 'late secret words', ago(30_000))
    const joined = lineEvent('memberJoined', null, {
      ...ago(20_000),
      source: { type: 'group', groupId: 'C1' },
      joined: { members: [{ type: 'user', userId }] },
    })
    expect((await service.deliver(tenant, [known, late, joined])).json).toEqual({
      accepted: 2,
      duplicates: 1,
    })
    await service.track(tenant, [
      { type: 'page', userId, timestamp: new Date(Date.now() - 10_000).toISOString() },
    ])
    expect(await service.member(tenant, userId)).toBeUndefined()
    const rest = await everything()
    expect(rest).not.toContain(userId)
    expect(rest).not.toContain('late secret words')
  })

  it('is followed by a new member when a new event comes', async () => {
    const userId = randomUserId()
    await service.deliver(tenant, [lineEvent('follow', userId, ago(5000))])
    const { id } = await memberOf(tenant, userId)
    await erase(tenant, id)
    await service.deliver(tenant, [
      textMessage(userId, 'again', { timestamp: Date.now() + 5 }),
      lineEvent('follow', userId, ago(4000)),
    ])
    const back = await memberOf(tenant, userId)
    expect(back.id).not.toBe(id)
    expect(back).toMatchObject({ relationship: 'unknown', eventCount: 1, followedAt: null })
  })

  it('at one account leaves the person at another one alone', async () => {
    const other = await addTenant(database)
    const userId = randomUserId()
    for (const who of [tenant, other]) await service.deliver(who, [lineEvent('follow', userId, ago(5000))])
    await erase(tenant, (await memberOf(tenant, userId)).id)
    expect(await memberOf(other, userId)).toMatchObject({ relationship: 'following', eventCount: 1 })
    const foreign = await erase(tenant, (await memberOf(other, userId)).id)
    expect(foreign.json).toMatchObject({ statusCode: 404, message: expect.stringMatching(/^Step 2: /) })
  })

  it('wins against older events that are in flight at that very moment', async () => {
    for (let round = 0; round < 15; round += 1) {
      const userId = randomUserId()
      await service.deliver(tenant, [lineEvent('follow', userId, ago(60_000))])
      const { id } = await memberOf(tenant, userId)
      const inFlight = Array.from({ length: 10 }, (_, i) =>
        service.deliver(tenant, [textMessage(userId, `flying secret ${i}`, ago(50_000 - i))]),
      )
      const erased = erase(tenant, id)
      const more = Array.from({ length: 10 }, (_, i) =>
        service.deliver(tenant, [textMessage(userId, `flying secret ${i}`, ago(40_000 - i))]),
      )
      for (const answer of await Promise.all([...inFlight, ...more])) expect(answer.status).toBe(200)
      expect((await erased).status).toBe(204)
      expect(await service.member(tenant, userId)).toBeUndefined()
      expect(await everything()).not.toContain(userId)
    }
    expect(await everything()).not.toContain('flying secret')
  })

  it('waits for a flush that has begun, and is seen by one that has not', async () => {
    const userId = randomUserId()
    await service.deliver(tenant, [lineEvent('follow', userId, ago(60_000))])
    const { id } = await memberOf(tenant, userId)
    // Somebody holds the member's row, so the next flush stops in the middle of its statement.
    let release = () => {}
    const held = database.transaction(async (transaction) => {
      await transaction.query('select from audience_member where user_id = $1 for update', [userId])
      await new Promise<void>((resolve) => {
        release = resolve
      })
    })
    await new Promise((resolve) => setTimeout(resolve, 50))
    const stopped = service.deliver(tenant, [textMessage(userId, 'stopped', ago(50_000))])
    await new Promise((resolve) => setTimeout(resolve, 50))
    const erased = erase(tenant, id)
    await new Promise((resolve) => setTimeout(resolve, 50))
    release()
    await held
    expect((await stopped).json).toEqual({ accepted: 1, duplicates: 0 })
    expect((await erased).status).toBe(204)
    expect(await everything()).not.toContain(userId)
  })

  /** Events that would take hours to deliver here: of the person alone, and of others whom they joined. */
  async function addEvents(who: Tenant, userId: string, own: number, others: number): Promise<void> {
    await database.query(
      `insert into event (channel_oa_id, source, kind, key, occurred_at, user_id, other_user_ids, payload)
       select $1, 'line', 'message', gen_random_uuid(), now(), case when i <= $3 then $2 end,
              case when i > $3 then array[$2, 'Uother'] end, 'words of ' || $2 from generate_series(1, $3 + $4::int) i`,
      [who.accountId, userId, own, others],
    )
  }
  const left = (userId: string) =>
    database.query(
      `select from event where user_id = $1 or other_user_ids @> array[$1] or payload like '%' || $1 || '%' limit 1`,
      [userId],
    )

  it('of very many events is whole, too', async () => {
    const who = await addTenant(database)
    const userId = randomUserId()
    await service.deliver(who, [lineEvent('follow', userId, ago(5000))])
    await addEvents(who, userId, 45_000, 25_000)
    expect((await erase(who, (await memberOf(who, userId)).id)).status).toBe(204)
    expect(await left(userId)).toEqual([])
    expect(await database.query('select from pending_erasure')).toEqual([])
    const [others] = await database.query<{ count: number }>(
      `select count(*)::int as count from event where channel_oa_id = $1 and other_user_ids = '{Uother}'`,
      [who.accountId],
    )
    expect(others?.count).toBe(25_000)
  })

  it('of two people at once, whom the same events name, is whole for both', async () => {
    const who = await addTenant(database)
    const [one, two] = [randomUserId(), randomUserId()]
    await service.deliver(who, [lineEvent('follow', one, ago(5000)), lineEvent('follow', two, ago(5000))])
    await database.query(
      `insert into event (channel_oa_id, source, kind, key, occurred_at, other_user_ids, payload)
       select $1, 'line', 'memberJoined', gen_random_uuid(), now(), array[$2, $3], '{}' from generate_series(1, 50000)`,
      [who.accountId, one, two],
    )
    const ids = [(await memberOf(who, one)).id, (await memberOf(who, two)).id]
    const answers = await Promise.all(ids.map((id) => erase(who, id)))
    for (const [index, { status }] of answers.entries()) {
      // They may meet at a row for longer than either waits: then the same request finishes it.
      if (status !== 204) expect((await erase(who, ids[index] as string)).status).toBe(204)
    }
    expect([...(await left(one)), ...(await left(two))]).toEqual([])
  })

  it.each(['their client, who asks again', 'the service, by itself'])(
    'of very many events that was interrupted is finished by %s; who came back meanwhile stays',
    async (by) => {
      const who = await addTenant(database)
      const userId = randomUserId()
      await service.deliver(who, [lineEvent('follow', userId, ago(5000))])
      await addEvents(who, userId, 45_000, 0)
      const { id } = await memberOf(who, userId)
      const scope = { keyId: null, accountId: who.accountId, organizationId: who.organizationId }
      // The service ends here.
      await database.transaction((transaction) => eraseMember(transaction, scope, BigInt(id)))
      expect(await left(userId)).toHaveLength(1)
      await service.deliver(who, [textMessage(userId, 'hello again', { timestamp: Date.now() + 1000 })])
      if (by === 'the service, by itself') await finishErasures(database)
      else expect((await erase(who, id)).status).toBe(204)
      expect(await database.query('select from pending_erasure')).toEqual([])
      const events = await database.query<{ payload: string }>(
        'select payload from event where user_id = $1',
        [userId],
      )
      expect(events.map(({ payload }) => JSON.parse(payload).message.text)).toEqual(['hello again'])
      expect((await erase(who, id)).status).toBe(404)
      expect(await memberOf(who, userId)).toMatchObject({ eventCount: 1 })
    },
  )

  it('answers 500 with its step when it fails, and has changed nothing', async () => {
    const userId = randomUserId()
    await service.deliver(tenant, [lineEvent('follow', userId, ago(5000))])
    const { id } = await memberOf(tenant, userId)
    await database.query('alter table erased_person rename to erased_person_away')
    const answer = await erase(tenant, id)
    await database.query('alter table erased_person_away rename to erased_person')
    expect(answer.json).toMatchObject({ statusCode: 500, message: expect.stringMatching(/^Step 3: /) })
    expect(answer.text).not.toContain('erased_person')
    expect(await memberOf(tenant, userId)).toMatchObject({ id })
    expect((await erase(tenant, id)).status).toBe(204)
  })
})
