/** CONTRACT: POST /api/line/:id, LINE's webhook. */
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { PostgresDatabase } from '../src/postgres/postgres-database.ts'
import { lineEvent, randomUserId, textMessage, ulid } from '../tools/simulator/events.ts'
import { addTenant } from './support/database.ts'
import { setUpFile, startAppForTest } from './support/service.ts'

const { database, service, tenant } = await setUpFile()

describe('the signature', () => {
  it("accepts the platform's published example to the letter", async () => {
    const official = await addTenant(database, { channelSecret: '8c570fa6dd201bb328f1c1eac23a96d8' })
    const answer = await service.call('POST', `/api/line/${official.accountId}`, {
      headers: { 'X-Line-Signature': 'GhRKmvmHys4Pi8DxkF4+EayaH0OqtJtaZxgTD9fMDLs=' },
      body: '{"destination":"U8e742f61d673b39c7fff3cecb7536ef0","events":[]}',
    })
    expect(answer.status).toBe(200)
    expect(answer.json).toEqual({ accepted: 0, duplicates: 0 })
  })

  it('refuses a missing or wrong one with 403, before it reads the body', async () => {
    const path = `/api/line/${tenant.accountId}`
    expect((await service.call('POST', path, { body: '{"events":[]}' })).status).toBe(403)
    for (const signature of ['', 'x', 'GhRKmvmHys4Pi8DxkF4+EayaH0OqtJtaZxgTD9fMDLs=', '='.repeat(44)]) {
      const answer = await service.call('POST', path, {
        headers: { 'x-line-signature': signature },
        body: 'no JSON',
      })
      expect(answer.json).toMatchObject({ statusCode: 403, error: 'Forbidden' })
    }
  })

  it('is over the bytes as they came: one changed byte is refused', async () => {
    const { signLine } = await import('../src/intake/line/signature.ts')
    const { Secret } = await import('../src/secret.ts')
    const signature = signLine('{"events":[]}', new Secret(tenant.channelSecret))
    const answer = await service.call('POST', `/api/line/${tenant.accountId}`, {
      headers: { 'x-line-signature': signature },
      body: '{"events": []}',
    })
    expect(answer.status).toBe(403)
  })

  it('refuses everything for an account without a secret', async () => {
    for (const secret of [null, '']) {
      const silent = await addTenant(database)
      await database.query('update official_account set channel_secret = $2 where id = $1', [
        silent.accountId,
        secret,
      ])
      expect((await service.deliver({ ...silent, channelSecret: '' }, [])).status).toBe(403)
    }
  })

  it('counts from the next delivery on when the secret was changed', async () => {
    const changed = await addTenant(database)
    expect((await service.deliver(changed, [])).status).toBe(200)
    await database.query(`update official_account set channel_secret = 'another' where id = $1`, [
      changed.accountId,
    ])
    expect((await service.deliver(changed, [])).status).toBe(403)
    expect((await service.deliver({ ...changed, channelSecret: 'another' }, [])).status).toBe(200)
  })

  it('of an old secret has no effect at all, not even with the id of an event that is known', async () => {
    for (const forge of [
      (webhookEventId: string) => lineEvent('botSuspended', null, { webhookEventId }),
      (webhookEventId: string) =>
        lineEvent('unsend', 'U1', { webhookEventId, unsend: { messageId: 'stays' } }),
    ]) {
      const changed = await addTenant(database)
      const known = lineEvent('message', 'U1', { message: { type: 'text', id: 'stays', text: 'hello' } })
      expect((await service.deliver(changed, [known])).status).toBe(200)
      await database.query(`update official_account set channel_secret = 'another' where id = $1`, [
        changed.accountId,
      ])
      expect((await service.deliver(changed, [forge(known.webhookEventId)])).status).toBe(403)
      expect(
        await database.query(
          `select a.suspended, e.payload like '%hello%' as stays
             from official_account a join event e on e.channel_oa_id = a.id where a.id = $1`,
          [changed.accountId],
        ),
      ).toEqual([{ suspended: null, stays: true }])
    }
  })
})

describe('the body', () => {
  it('must be JSON with an array named events: else 400', async () => {
    for (const body of ['', '{', '[]', '7', '{}', '{"events":{}}', '\uFEFF{"events":[]}', 'null']) {
      expect((await service.deliverRaw(tenant, body)).status, body).toBe(400)
    }
  })

  it('answers 404 for an account that does not exist', async () => {
    expect((await service.deliver(tenant, [], '/api/line/999999')).status).toBe(404)
  })

  it('answers on /api/Line/:id alike', async () => {
    const answer = await service.deliver(
      tenant,
      [lineEvent('follow', randomUserId())],
      `/api/Line/${tenant.accountId}`,
    )
    expect(answer.json).toEqual({ accepted: 1, duplicates: 0 })
  })
})

describe('an event', () => {
  it('takes effect once, however often it comes, alone or beside others', async () => {
    const userId = randomUserId()
    const event = textMessage(userId, 'once')
    const other = textMessage(userId, 'other')
    expect((await service.deliver(tenant, [event])).json).toEqual({ accepted: 1, duplicates: 0 })
    const again = { ...event, deliveryContext: { isRedelivery: true } }
    expect((await service.deliver(tenant, [again, other, again, other])).json).toEqual({
      accepted: 1,
      duplicates: 3,
    })
    expect((await service.member(tenant, userId))?.eventCount).toBe(2)
  })

  it('takes effect once when its deliveries arrive at the same moment at several instances', async () => {
    const second = await startAppForTest(database)
    const userId = randomUserId()
    const events = Array.from({ length: 20 }, (_, i) => textMessage(userId, `message ${i}`))
    const deliveries = Array.from({ length: 12 }, (_, i) =>
      (i % 2 === 0 ? service : second).deliver(tenant, i % 3 === 0 ? events.toReversed() : events),
    )
    const answers = await Promise.all(deliveries)
    expect(answers.map(({ status }) => status)).toEqual(answers.map(() => 200))
    const accepted = answers.reduce((sum, { json }) => sum + json.accepted, 0)
    expect(accepted).toBe(20)
    expect((await service.member(tenant, userId))?.eventCount).toBe(20)
  })

  it('without webhookEventId is known by its content', async () => {
    const userId = randomUserId()
    const { webhookEventId: _, ...old } = textMessage(userId, 'from before 2022')
    expect((await service.deliver(tenant, [old])).json).toEqual({ accepted: 1, duplicates: 0 })
    const again = { ...old, deliveryContext: { isRedelivery: true } }
    expect((await service.deliver(tenant, [again])).json).toEqual({ accepted: 0, duplicates: 1 })
  })

  it('of one id at two accounts is two events, and one person is two members', async () => {
    const other = await addTenant(database)
    const userId = randomUserId()
    const event = lineEvent('follow', userId)
    for (const each of [tenant, other]) {
      expect((await service.deliver(each, [event])).json).toEqual({ accepted: 1, duplicates: 0 })
    }
    await service.deliver(other, [lineEvent('unfollow', userId, { timestamp: event.timestamp + 1 })])
    expect((await service.member(tenant, userId))?.relationship).toBe('following')
    expect((await service.member(other, userId))?.relationship).toBe('blocked')
  })

  it('about several people makes members of all of them, and counts once for each', async () => {
    const [sender, joined, left] = [randomUserId(), randomUserId(), randomUserId()]
    const group = { type: 'group', groupId: 'C1' }
    await service.deliver(tenant, [
      textMessage(sender, 'in a group', { source: { ...group, userId: sender } }),
      lineEvent('memberJoined', null, {
        source: group,
        joined: {
          members: [{ type: 'user', userId: joined }, { type: 'user', userId: joined }, { type: 'user' }],
        },
      }),
      lineEvent('memberLeft', null, { source: group, left: { members: [{ type: 'user', userId: left }] } }),
      lineEvent('join', null, { source: group }),
      lineEvent('botSuspended', null),
    ])
    for (const userId of [sender, joined, left]) {
      expect(await service.member(tenant, userId)).toMatchObject({ eventCount: 1, relationship: 'unknown' })
    }
  })

  it('of an unknown kind or source is kept', async () => {
    const userId = randomUserId()
    const before = await service.members(tenant)
    const answer = await service.deliver(tenant, [
      lineEvent('somethingNew', userId, { source: { type: 'thread', threadId: 'T1', userId } }),
      lineEvent('somethingNewer', null, { source: { type: 'thread' } }),
    ])
    expect(answer.json).toEqual({ accepted: 2, duplicates: 0 })
    expect((await service.members(tenant)).length).toBe(before.length + 1)
    const [kept] = await database.query<{ count: bigint }>(
      `select count(*) from event where kind like 'somethingNew%'`,
    )
    expect(kept?.count).toBe(2n)
  })

  it('of the console’s old test button makes nobody a member', async () => {
    const tested = await addTenant(database)
    const userId = 'Udeadbeefdeadbeefdeadbeefdeadbeef'
    const event = { replyToken: '0'.repeat(32), type: 'message', timestamp: 1_513_669_370_317 }
    const source = { type: 'user', userId }
    const answer = await service.deliver(tested, [
      { ...event, source, message: { id: '100001', type: 'text' } },
    ])
    expect(answer.json).toEqual({ accepted: 1, duplicates: 0 })
    expect(await service.members(tested)).toEqual([])
  })

  it('that makes no sense is kept with its reason, and spoils no neighbour', async () => {
    const userId = randomUserId()
    const answer = await service.deliverRaw(
      tenant,
      JSON.stringify({
        destination: tenant.botUserId,
        events: [
          null,
          7,
          'text',
          [],
          {},
          lineEvent('message', '\u0000'),
          lineEvent('message', 'U\ud800'),
          lineEvent('message', 'U'.repeat(5000)),
          lineEvent('message', userId, { timestamp: 1e300 }),
          lineEvent('message', userId, { timestamp: -1 }),
          { ...lineEvent('message', userId), timestamp: 'yesterday' },
          lineEvent('me\u0000ssage\ud800', userId, { webhookEventId: '\u0000' }),
          textMessage(userId, 'half \ud83e and \u0000'),
          { ...lineEvent('message', userId), source: 'x', webhookEventId: 'x'.repeat(5000) },
        ],
      }).replace('"yesterday"', '"yesterday","__proto__":{"polluted":true}'),
    )
    expect(answer.json).toEqual({ accepted: 14, duplicates: 0 })
    expect((await service.member(tenant, userId))?.eventCount).toBe(2)
    const failures = await database.query(
      'select failure from event where failure is not null and channel_oa_id = $1',
      [tenant.accountId],
    )
    expect(failures).toHaveLength(11)
    expect(({} as { polluted?: boolean }).polluted).toBeUndefined()
  })

  it('nested 20,000 levels deep is kept, and its neighbours count', async () => {
    const userId = randomUserId()
    const deep = `${'{"a":'.repeat(20_000)}1${'}'.repeat(20_000)}`
    const neighbour = JSON.stringify(textMessage(userId, 'hello'))
    const id = ulid(Date.now())
    const body = `{"events":[{"type":"message","timestamp":1,"webhookEventId":"${id}","x":${deep}},${neighbour}]}`
    expect((await service.deliverRaw(tenant, body)).json).toEqual({ accepted: 2, duplicates: 0 })
    expect((await service.deliverRaw(tenant, body)).json).toEqual({ accepted: 0, duplicates: 2 })
    expect((await service.member(tenant, userId))?.eventCount).toBe(1)
  })

  it('nested 20,000 levels deep and without an id is known by all of its content', async () => {
    const deep = (leaf: string) => `${'['.repeat(20_000)}${leaf}${']'.repeat(20_000)}`
    const body = (leaf: string) => `{"events":[{"type":"message","timestamp":5,"a":"x","x":${deep(leaf)}}]}`
    expect((await service.deliverRaw(tenant, body('1'))).json).toEqual({ accepted: 1, duplicates: 0 })
    expect((await service.deliverRaw(tenant, body('2'))).json).toEqual({ accepted: 1, duplicates: 0 })
    expect((await service.deliverRaw(tenant, body('1'))).json).toEqual({ accepted: 0, duplicates: 1 })
    const [kept] = await database.query<{ payload: string }>(
      `select payload from event where payload like '%"a":"x"%' order by id limit 1`,
    )
    expect(kept?.payload).toBe(body('1').slice('{"events":['.length, -2))
  })

  it('for another bot is kept, and the account is flagged, again and again while they come', async () => {
    const deliver = () =>
      service.deliver({ ...tenant, botUserId: 'Uanother' }, [lineEvent('follow', randomUserId())])
    const flag = () =>
      database.query(
        `select foreign_destination, foreign_destination_at > now() - interval '1 minute' as is_new
           from official_account where id = $1`,
        [tenant.accountId],
      )
    expect((await deliver()).json).toEqual({ accepted: 1, duplicates: 0 })
    expect(await flag()).toEqual([{ foreign_destination: 'Uanother', is_new: true }])
    await database.query(
      `update official_account set foreign_destination_at = now() - interval '61 minutes' where id = $1`,
      [tenant.accountId],
    )
    await deliver()
    expect(await flag()).toEqual([{ foreign_destination: 'Uanother', is_new: true }])
  })
})

describe('follow and unfollow', () => {
  const at = 1_700_000_000_000
  type Step = { kind: 'follow' | 'unfollow' | 'message'; offset: number }

  async function tell(_userId: string, events: unknown[], deliverEach: boolean): Promise<void> {
    if (!deliverEach) await service.deliver(tenant, events)
    else for (const event of events) await service.deliver(tenant, [event])
  }

  it('end in the same state in every order, in one delivery or in several', async () => {
    const ids = ['01HF7YAT00AAAAAAAAAAAAAAAA', '01HF7YAT00BBBBBBBBBBBBBBBB', '01HF7YAT00CCCCCCCCCCCCCCCC']
    const steps: Step[] = [
      { kind: 'follow', offset: 0 },
      { kind: 'unfollow', offset: 5 },
      { kind: 'follow', offset: 5 },
    ]
    const orders = [
      [0, 1, 2],
      [0, 2, 1],
      [1, 0, 2],
      [1, 2, 0],
      [2, 0, 1],
      [2, 1, 0],
    ]
    for (const order of orders) {
      for (const deliverEach of [true, false]) {
        const userId = randomUserId()
        const events = steps.map(({ kind, offset }, i) =>
          lineEvent(kind, userId, {
            timestamp: at + offset,
            webhookEventId: `${ids[i]?.slice(0, 20)}${userId.slice(1, 7).toUpperCase()}`,
          }),
        )
        await tell(
          userId,
          order.map((i) => events[i]),
          deliverEach,
        )
        expect(await service.member(tenant, userId)).toMatchObject({
          relationship: 'following',
          followedAt: new Date(at + 5).toISOString(),
          blockedAt: new Date(at + 5).toISOString(),
          eventCount: 3,
        })
      }
    }
  })

  it('moves updatedAt also when an older follow only fills followedAt', async () => {
    const userId = randomUserId()
    await service.deliver(tenant, [lineEvent('unfollow', userId, { timestamp: at + 5 })])
    const before = await service.member(tenant, userId)
    await service.deliver(tenant, [lineEvent('follow', userId, { timestamp: at })])
    const after = await service.member(tenant, userId)
    expect(after).toMatchObject({ relationship: 'blocked', followedAt: new Date(at).toISOString() })
    expect((after?.updatedAt as string) > (before?.updatedAt as string)).toBe(true)
    await service.deliver(tenant, [textMessage(userId, 'mere activity')])
    expect((await service.member(tenant, userId))?.updatedAt).toBe(after?.updatedAt)
  })

  it('any history, shuffled, repeated and split, ends in the same member (property)', async () => {
    const step = fc.record({
      kind: fc.constantFrom('follow', 'unfollow', 'message'),
      offset: fc.integer({ min: 0, max: 6 }),
    })
    const history = fc.uniqueArray(step, {
      minLength: 1,
      maxLength: 8,
      selector: ({ kind, offset }) => `${kind} ${offset}`,
    })
    await fc.assert(
      fc.asyncProperty(history, fc.infiniteStream(fc.nat()), async (steps, chance) => {
        const next = (below: number) => (chance.next().value as number) % below
        const histories = [randomUserId(), randomUserId()].map((userId) => ({
          userId,
          // the same tie-break in both histories: the id's last characters decide among equal times
          events: steps.map(({ kind, offset }, i) => {
            const order = `${offset}${i}`.padStart(3, '0')
            return lineEvent(kind, userId, {
              timestamp: at + offset,
              webhookEventId: `${ulid(at).slice(0, 10)}${order}${userId.slice(1, 14).toUpperCase()}`,
            })
          }),
        }))
        const [straight, shuffled] = histories
        if (!straight || !shuffled) return
        await service.deliver(tenant, straight.events)
        const pile = [...shuffled.events, ...shuffled.events.filter(() => next(2) === 0)]
        while (pile.length > 0) {
          const size = 1 + next(pile.length)
          const delivery = Array.from({ length: size }, () => pile.splice(next(pile.length), 1)[0])
          await service.deliver(tenant, delivery)
        }
        const view = async (userId: string) => {
          const {
            id,
            userId: _,
            createdAt,
            updatedAt,
            ...state
          } = (await service.member(tenant, userId)) ?? {}
          return state
        }
        expect(await view(shuffled.userId)).toEqual(await view(straight.userId))
      }),
      { numRuns: 40 },
    )
  })
})

describe('a message that its sender takes back', () => {
  const contentOf = (messageId: string) =>
    database.query<{ kind: string; payload: string | null }>(
      'select kind, payload from event where message_id = $1 order by id',
      [messageId],
    )

  it('loses its stored content, also where it was edited, and only there', async () => {
    const userId = randomUserId()
    const [taken, kept] = [textMessage(userId, 'take me back'), textMessage(userId, 'keep me')]
    const edited = lineEvent('messageEdited', userId, {
      message: { ...taken.message, text: 'take me back, too' },
    })
    await service.deliver(tenant, [taken, kept, edited])
    await service.deliver(tenant, [lineEvent('unsend', userId, { unsend: { messageId: taken.message.id } })])
    expect(await contentOf(taken.message.id)).toEqual([
      { kind: 'message', payload: null },
      { kind: 'messageEdited', payload: null },
    ])
    expect((await contentOf(kept.message.id))[0]?.payload).toContain('keep me')
    expect(await service.member(tenant, userId)).toMatchObject({ eventCount: 4 })
  })

  it('never has its content stored when it arrives after its unsend, or beside it', async () => {
    const userId = randomUserId()
    for (const separate of [true, false]) {
      const late = textMessage(userId, 'too late')
      const unsend = lineEvent('unsend', userId, { unsend: { messageId: late.message.id } })
      if (separate) {
        await service.deliver(tenant, [unsend])
        await service.deliver(tenant, [late])
      } else {
        await service.deliver(tenant, [unsend, late])
      }
      expect(await contentOf(late.message.id)).toEqual([{ kind: 'message', payload: null }])
    }
  })

  it('has no content left when message and unsend arrive at the same moment at two instances', async () => {
    const second = await startAppForTest(database)
    const userId = randomUserId()
    for (let round = 0; round < 20; round += 1) {
      const message = textMessage(userId, 'racing')
      const unsend = lineEvent('unsend', null, { unsend: { messageId: message.message.id } })
      const answers = await Promise.all([
        service.deliver(tenant, [message]),
        second.deliver(tenant, [unsend]),
      ])
      expect(answers.map(({ status }) => status)).toEqual([200, 200])
      expect(await contentOf(message.message.id)).toEqual([{ kind: 'message', payload: null }])
    }
  })
})

describe('an account that the platform suspends', () => {
  it('is noted as its newest word says, in whatever order the words arrive', async () => {
    const at = 1_700_000_000_000
    const words = [
      lineEvent('botSuspended', null, { timestamp: at }),
      lineEvent('botResumed', null, { timestamp: at + 1 }),
      lineEvent('botSuspended', null, { timestamp: at + 2 }),
    ]
    for (const order of [
      [0, 1, 2],
      [2, 1, 0],
      [2, 0, 1],
    ]) {
      const who = await addTenant(database)
      for (const index of order) await service.deliver(who, [words[index]])
      const [account] = await database.query('select suspended from official_account where id = $1', [
        who.accountId,
      ])
      expect(account).toEqual({ suspended: true })
    }
  })
})

describe('other programs that write to the same tables', () => {
  it('may load members with ids of their own: new people still become members', async () => {
    const who = await addTenant(database)
    const [sequence] = await database.query<{ next: bigint }>(
      'select last_value + 1 as next from audience_member_id_seq',
    )
    await database.query(
      `insert into audience_member (id, channel_oa_id, organization_id, user_id)
       select $3 + i, $1, $2, 'Uloaded' || i from generate_series(0, 50) i`,
      [who.accountId, who.organizationId, sequence?.next],
    )
    const people = [randomUserId(), randomUserId()]
    const answers = await Promise.all(
      people.map((userId) => service.deliver(who, [lineEvent('follow', userId)])),
    )
    expect(answers.map(({ json }) => json)).toEqual(people.map(() => ({ accepted: 1, duplicates: 0 })))
    for (const userId of people)
      expect(await service.member(who, userId)).toMatchObject({ relationship: 'following' })
  })

  it('may hold a row for long: only deliveries about that row wait and are told to come back', async () => {
    const [slow, other] = [await addTenant(database), await addTenant(database)]
    let release = () => {}
    const held = database.transaction(async (transaction) => {
      await transaction.query(
        `insert into audience_member (channel_oa_id, organization_id, user_id) values ($1, $2, 'Uheld')`,
        [slow.accountId, slow.organizationId],
      )
      await new Promise<void>((resolve) => {
        release = resolve
      })
    })
    await new Promise((resolve) => setTimeout(resolve, 50))
    const event = textMessage('Uheld', 'held')
    const startedAt = Date.now()
    const blocked = service.deliver(slow, [event])
    await new Promise((resolve) => setTimeout(resolve, 20))
    const besides = [
      service.deliver(slow, [textMessage('Uheld', 'held too')]),
      service.deliver(other, [lineEvent('follow', 'U1')]),
    ]
    expect((await blocked).status).toBe(503)
    expect((await besides[0])?.status).toBe(503)
    expect((await besides[1])?.status).toBe(200)
    expect(Date.now() - startedAt).toBeLessThan(5000)
    release()
    await held
    expect((await service.deliver(slow, [event])).json).toEqual({ accepted: 1, duplicates: 0 })
    expect(await service.member(slow, 'Uheld')).toMatchObject({ eventCount: 1 })
  })
})

describe('one delivery', () => {
  it('about 20,000 people who joined is kept in a moment', async () => {
    const who = await addTenant(database)
    const members = Array.from({ length: 20_000 }, (_, i) => ({ type: 'user', userId: `Ujoined${i}` }))
    const startedAt = Date.now()
    const event = lineEvent('memberJoined', null, {
      source: { type: 'group', groupId: 'C1' },
      joined: { members },
    })
    expect((await service.deliver(who, [event])).json).toEqual({ accepted: 1, duplicates: 0 })
    expect(Date.now() - startedAt).toBeLessThan(4000)
    expect(await service.member(who, 'Ujoined19999')).toMatchObject({ eventCount: 1 })
  })

  it('of more than 5,000 events is refused: 400', async () => {
    expect(
      (
        await service.deliver(
          tenant,
          Array.from({ length: 5001 }, () => 1),
        )
      ).status,
    ).toBe(400)
  })
})

describe('when the database is away', () => {
  it('answers 503 with Retry-After, so that the platform sends it again', async () => {
    const nowhere = new PostgresDatabase('postgres://nobody@127.0.0.1:1/none', () => undefined)
    nowhere.markReady()
    const broken = await startAppForTest(nowhere)
    const answer = await broken.deliver(tenant, [])
    expect(answer.status).toBe(503)
    expect(answer.headers.get('retry-after')).toBe('2')
    expect((await broken.call('GET', '/api/health')).json).toMatchObject({
      statusCode: 503,
      database: 'down',
    })
    await nowhere.close()
  })
})
