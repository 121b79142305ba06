/** CONTRACT: the filters of GET /api/audience, alone and together, and the delta feed of updatedSince. */
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { lineEvent, randomUserId, textMessage } from '../tools/simulator/events.ts'
import { addTenant, type Tenant } from './support/database.ts'
import { setUpFile } from './support/service.ts'

const { database, service, tenant } = await setUpFile()

const list = (who: Tenant, query: string) =>
  service.call('GET', `/api/audience?${query}`, { headers: who.headers })

interface Listed {
  id: string
  userId: string
  updatedAt: string
  deletedAt?: string
}

/** Every page of a walk, with `limit` members each. */
async function walk(who: Tenant, query: string, limit = 7): Promise<Listed[]> {
  const seen: Listed[] = []
  for (let cursor = ''; ; ) {
    const answer = await list(who, `limit=${limit}&${query}${cursor}`)
    expect(answer.status, answer.text).toBe(200)
    seen.push(...answer.json.data)
    if (answer.json.nextCursor === null) return seen
    cursor = `&cursor=${answer.json.nextCursor}`
  }
}

interface Person {
  userId: string
  displayName: string | null
  externalId: string | null
  relationship: string
  tags: string[]
}

async function addMembers(who: Tenant, people: Person[]): Promise<void> {
  await database.query(
    `insert into audience_member (channel_oa_id, organization_id, user_id, display_name, external_id, relationship, tags)
     select $1, $2, p->>'userId', p->>'displayName', p->>'externalId', p->>'relationship',
            array(select jsonb_array_elements_text(p->'tags'))
       from jsonb_array_elements($3::jsonb) with ordinality as list (p, no) order by no`,
    [who.accountId, who.organizationId, JSON.stringify(people)],
  )
}

const NAMES = ['Ann', 'ANNA', 'สมชาย ใจดี', '山田太郎', '100%', '10_0', 'a\\b', "O'Neil", 'Zoë', null, '😀x']
const PARTS = [
  'ann',
  'n',
  'ชาย',
  '山田',
  '太',
  '%',
  '_',
  '0%',
  '\\',
  "'",
  'ë',
  'Ë',
  '😀',
  'zz',
  'ใจ',
  '田太郎',
  'nn',
]

const person = (i: number): Person => ({
  userId: `U${i}`,
  displayName: NAMES[i % NAMES.length] ?? null,
  externalId: i % 3 === 0 ? `c-${i}` : null,
  relationship: ['following', 'blocked', 'unknown'][i % 5] ?? 'following',
  tags: ['vip', 'new', 'กลุ่ม'].filter((_, bit) => (i >> bit) & 1),
})

describe('filters', () => {
  it('find exactly what they say, in any combination, over any pages (property)', async () => {
    const who = await addTenant(database)
    const people = Array.from({ length: 60 }, (_, i) => person(i))
    await addMembers(who, people)
    const other = await addTenant(database)
    await addMembers(other, people)
    const filters = fc.record(
      {
        userId: fc.constantFrom('U1', 'U12', 'U999'),
        externalId: fc.constantFrom('c-3', 'c-12', 'c-999'),
        relationship: fc.constantFrom('following', 'blocked', 'unknown'),
        tag: fc.uniqueArray(fc.constantFrom('vip', 'new', 'กลุ่ม', 'absent'), { minLength: 1, maxLength: 3 }),
        q: fc.constantFrom(...PARTS),
      },
      { requiredKeys: [] },
    )
    await fc.assert(
      fc.asyncProperty(filters, fc.integer({ min: 1, max: 20 }), async (chosen, limit) => {
        const query = new URLSearchParams()
        for (const [name, value] of Object.entries(chosen)) {
          for (const each of [value].flat()) query.append(name, each)
        }
        const expected = people.filter(
          ({ userId, externalId, relationship, tags, displayName }) =>
            (chosen.userId ?? userId) === userId &&
            (chosen.externalId ?? externalId) === externalId &&
            (chosen.relationship ?? relationship) === relationship &&
            (chosen.tag ?? []).every((tag) => tags.includes(tag)) &&
            (chosen.q === undefined || displayName?.toLowerCase().includes(chosen.q.toLowerCase()) === true),
        )
        const seen = await walk(who, String(query), limit)
        expect(seen.map(({ userId }) => userId)).toEqual(expected.map(({ userId }) => userId))
      }),
      { numRuns: 150 },
    )
  })

  it('find a rare name far behind many others, in the order of ids', async () => {
    const who = await addTenant(database)
    await database.query(
      `insert into audience_member (channel_oa_id, organization_id, user_id, display_name)
       select $1, $2, 'U' || i, case when i % 2000 = 0 then 'สมหญิง ' || i else 'Ann ' || i end
         from generate_series(1, 20000) i`,
      [who.accountId, who.organizationId],
    )
    const seen = await walk(who, 'q=หญิง', 3)
    expect(seen.map(({ userId }) => userId)).toEqual(
      Array.from({ length: 10 }, (_, i) => `U${2000 * (i + 1)}`),
    )
    expect((await walk(who, 'q=2000&q=2000'.slice(0, 6))).map(({ userId }) => userId)).toEqual([
      'U2000',
      'U12000',
      'U20000',
    ])
  })

  it('see tags at once, whoever wrote them, and not any more when they are gone', async () => {
    const who = await addTenant(database)
    const userId = randomUserId()
    await service.deliver(who, [lineEvent('follow', userId)])
    const member = await service.member(who, userId)
    const put = (tags: string[] | null) =>
      service.call('PUT', `/api/audience/${member?.id}`, {
        headers: { ...who.headers, 'content-type': 'application/json' },
        body: JSON.stringify({ tags }),
      })
    const tagged = async (tag: string) => (await walk(who, `tag=${tag}`)).length
    await put(['vip', 'gold'])
    expect([await tagged('vip'), await tagged('gold')]).toEqual([1, 1])
    await put(['gold'])
    expect([await tagged('vip'), await tagged('gold')]).toEqual([0, 1])
    await database.query(`update audience_member set tags = '{late,late}' where user_id = $1`, [userId])
    expect([await tagged('late'), await tagged('gold')]).toEqual([1, 0])
    await service.call('DELETE', `/api/audience/${member?.id}`, { headers: who.headers })
    expect(await tagged('late')).toBe(0)
    const [left] = await database.query<{ count: bigint }>(
      'select count(*) from audience_tag where channel_oa_id = $1',
      [who.accountId],
    )
    expect(left?.count).toBe(0n)
  })

  it.each([
    ['limit=0', 'limit'],
    ['limit=1.5', 'limit'],
    ['relationship=friend', 'relationship'],
    ['tag=', 'tag'],
    [`tag=${'x'.repeat(65)}`, 'tag'],
    [Array.from({ length: 11 }, (_, i) => `tag=${i}`).join('&'), 'tag'],
    ['q=', 'q'],
    ['q=a&q=b', 'q'],
    [`q=${'x'.repeat(101)}`, 'q'],
    ['q=%00', 'q'],
    ['userId=a&userId=b', 'userId'],
    ['externalId=', 'externalId'],
    ['updatedSince=yesterday', 'updatedSince'],
    ['updatedSince=2026-02-30T00:00:00', 'updatedSince'],
    ['updatedSince=2026-02-30T00:00:00Z', 'updatedSince'],
    ['updatedSince=2026-04-31T00:00:00%2B07:00', 'updatedSince'],
    ['updatedSince=1700000000', 'updatedSince'],
    ['colour=red', 'colour'],
    ['cursor=nonsense', 'cursor'],
  ])('that are wrong (%s) are refused by name: 400', async (query, name) => {
    const { status, json } = await list(tenant, query)
    expect(status).toBe(400)
    expect(json.details[0].path.split('/')[0]).toBe(name)
  })
})

describe('a cursor', () => {
  it('of another tenant, other filters or another kind of walk is refused: 400', async () => {
    const [one, two] = [await addTenant(database), await addTenant(database)]
    for (const who of [one, two])
      await addMembers(
        who,
        Array.from({ length: 5 }, (_, i) => person(i)),
      )
    const cursorOf = async (query: string) => (await list(one, `limit=1&${query}`)).json.nextCursor as string
    const plain = await cursorOf('')
    const delta = await cursorOf('updatedSince=2020-01-01T00:00:00Z')
    expect((await list(one, `cursor=${plain}`)).status).toBe(200)
    for (const [who, query] of [
      [two, `cursor=${plain}`],
      [one, `cursor=${plain}&relationship=following`],
      [one, `cursor=${delta}`],
      [one, `cursor=${plain}&updatedSince=2020-01-01T00:00:00Z`],
      [one, `cursor=${delta}&updatedSince=2020-01-01T00:00:01Z`],
      [one, `cursor=${plain}x`],
    ] as const) {
      expect((await list(who, query)).status, query).toBe(400)
    }
  })

  it('is good for the same tags in another order', async () => {
    const who = await addTenant(database)
    await addMembers(who, [person(1), person(2)])
    await database.query(`update audience_member set tags = '{a,b}' where channel_oa_id = $1`, [
      who.accountId,
    ])
    const { nextCursor } = (await list(who, 'tag=b&tag=a&limit=1')).json
    expect((await list(who, `tag=a&tag=b&cursor=${nextCursor}`)).json.data).toHaveLength(1)
  })

  it('walks past changes: who existed throughout is seen exactly once (property)', async () => {
    const change = fc.record({
      kind: fc.constantFrom('add', 'change', 'erase', 'event'),
      whom: fc.nat({ max: 29 }),
    })
    await fc.assert(
      fc.asyncProperty(
        fc.array(change, { maxLength: 12 }),
        fc.integer({ min: 1, max: 9 }),
        async (changes, limit) => {
          const who = await addTenant(database)
          await addMembers(
            who,
            Array.from({ length: 30 }, (_, i) => person(i)),
          )
          const ids = (await service.members(who)).map(({ id }) => id)
          const erased = new Set<string>()
          const pending = changes.values()
          const seen: string[] = []
          for (let cursor = ''; ; ) {
            const { json } = await list(who, `limit=${limit}${cursor}`)
            seen.push(...json.data.map(({ id }: Listed) => id))
            if (json.nextCursor === null) break
            cursor = `&cursor=${json.nextCursor}`
            const { value } = pending.next()
            const id = ids[value?.whom ?? 0] ?? ''
            if (value?.kind === 'add') await service.deliver(who, [lineEvent('follow', randomUserId())])
            if (value?.kind === 'event') await service.deliver(who, [textMessage(`U${value.whom}`, 'hello')])
            if (value?.kind === 'change') {
              await service.call('PUT', `/api/audience/${id}`, {
                headers: { ...who.headers, 'content-type': 'application/json' },
                body: JSON.stringify({ tags: [`t${value.whom}`] }),
              })
            }
            if (value?.kind === 'erase') {
              erased.add(id)
              await service.call('DELETE', `/api/audience/${id}`, { headers: who.headers })
            }
          }
          expect(new Set(seen).size).toBe(seen.length)
          for (const id of ids) if (!erased.has(id)) expect(seen).toContain(id)
        },
      ),
      { numRuns: 25 },
    )
  })
})

describe('a delta feed', () => {
  const FAR_AGO = '2020-01-01T00:00:00.000Z'

  it('tells what has changed, in the order of changes, and who was erased', async () => {
    const who = await addTenant(database)
    const [a, b, c] = [randomUserId(), randomUserId(), randomUserId()]
    for (const userId of [a, b, c]) await service.deliver(who, [lineEvent('follow', userId)])
    const [first, second] = await service.members(who)
    await service.call('PUT', `/api/audience/${first?.id}`, {
      headers: { ...who.headers, 'content-type': 'application/json' },
      body: '{"tags":["x"]}',
    })
    await service.call('DELETE', `/api/audience/${second?.id}`, { headers: who.headers })
    const feed = await walk(who, `updatedSince=${FAR_AGO}`, 1)
    expect(feed.map(({ userId }) => userId)).toEqual([c, a, undefined])
    expect(feed[2]).toEqual({
      id: second?.id,
      deletedAt: expect.stringMatching(/^\d{4}-\d\d-\d\dT.*\.\d{3}Z$/),
    })
    const future = new Date(Date.now() + 3_600_000).toISOString()
    expect(await walk(who, `updatedSince=${future}`)).toEqual([])
  })

  it('leaves out what changed long before, and mere activity', async () => {
    const who = await addTenant(database)
    await addMembers(who, [person(1), person(2)])
    await database.query(
      `update audience_member set updated_at = now() - interval '10 minutes' where channel_oa_id = $1`,
      [who.accountId],
    )
    await service.deliver(who, [textMessage('U1', 'seen again')])
    expect(await walk(who, `updatedSince=${new Date(Date.now() - 300_000).toISOString()}`)).toEqual([])
    await service.deliver(who, [lineEvent('follow', 'U2')])
    const since = new Date(Date.now() - 300_000).toISOString().replace('Z', '+00:00')
    expect((await walk(who, `updatedSince=${since}`)).map(({ userId }) => userId)).toEqual(['U2'])
  })

  it('misses nobody though a transaction commits late', async () => {
    const who = await addTenant(database)
    await addMembers(who, [person(1), person(2), person(3)])
    let commit = () => {}
    let isWritten = () => {}
    const written = new Promise<void>((resolve) => {
      isWritten = resolve
    })
    const late = database.transaction(async (transaction) => {
      await transaction.query(
        `update audience_member set display_name = 'late', updated_at = clock_timestamp()
          where channel_oa_id = $1 and user_id = 'U1'`,
        [who.accountId],
      )
      isWritten()
      await new Promise<void>((resolve) => {
        commit = resolve
      })
    })
    await written
    await new Promise((resolve) => setTimeout(resolve, 20))
    await service.deliver(who, [lineEvent('follow', 'U2')])
    const before = await walk(who, `updatedSince=${FAR_AGO}`, 1)
    const last = before.at(-1)?.updatedAt ?? ''
    expect(before.at(-1)?.userId).toBe('U2')
    commit()
    await late
    const after = await walk(who, `updatedSince=${last}`)
    expect(after).toContainEqual(expect.objectContaining({ userId: 'U1', displayName: 'late' }))
  })

  it('tells what other programs change with plain statements', async () => {
    const who = await addTenant(database)
    const since = new Date(Date.now() - 3_600_000).toISOString()
    for (const change of [
      `update audience_member set display_name = 'renamed'`,
      `update audience_member set relationship = case relationship when 'blocked' then 'unknown' else 'blocked' end`,
      `update audience_member set tags = '{z}'`,
      `update audience_member set tags = '{zz}', version = version + 1`,
      'delete from audience_member',
    ]) {
      await addMembers(who, [person(1)])
      await database.query(
        `update audience_member set updated_at = now() - interval '1 day' where channel_oa_id = $1`,
        [who.accountId],
      )
      await database.query(`delete from erased_member where channel_oa_id = $1`, [who.accountId])
      expect(await walk(who, `updatedSince=${since}`), change).toEqual([])
      await database.query(`${change} where channel_oa_id = $1`, [who.accountId])
      expect(await walk(who, `updatedSince=${since}`), change).toHaveLength(1)
      await database.query(`delete from audience_member where channel_oa_id = $1`, [who.accountId])
    }
  })

  it('ends where it stood when the walk began, so that a slow client misses nobody either', async () => {
    const who = await addTenant(database)
    await addMembers(who, [person(1), person(2), person(3)])
    const first = await list(who, `limit=1&updatedSince=${FAR_AGO}`)
    await service.deliver(who, [lineEvent('follow', 'U1')])
    const rest = await list(who, `updatedSince=${FAR_AGO}&cursor=${first.json.nextCursor}`)
    expect(rest.json.data.map(({ userId }: Listed) => userId)).toEqual(['U2', 'U3'])
    expect(rest.json.nextCursor).toBeNull()
  })

  it('goes past what changed in 1970, as a bulk load may have it', async () => {
    const who = await addTenant(database)
    await addMembers(who, [person(1), person(2), person(3)])
    await database.query(`update audience_member set updated_at = 'epoch' where channel_oa_id = $1`, [
      who.accountId,
    ])
    expect(await walk(who, 'updatedSince=1960-01-01T00:00:00Z', 1)).toHaveLength(3)
  })

  it('refuses a cursor whose times are none: 400', async () => {
    const who = await addTenant(database)
    await addMembers(who, [person(1), person(2)])
    const since = `updatedSince=${FAR_AGO}`
    const bytes = Buffer.from((await list(who, `limit=1&${since}`)).json.nextCursor, 'base64url')
    for (const [at, value] of [
      [17, 2n ** 63n - 1n],
      [17, -(2n ** 63n)],
      [25, 2n ** 63n - 1n],
      [25, -(2n ** 63n)],
    ] as const) {
      const forged = Buffer.from(bytes)
      forged.writeBigInt64BE(value, at)
      const { status } = await list(who, `${since}&cursor=${forged.toString('base64url')}`)
      expect(status, `${at} ${value}`).toBe(400)
    }
  })

  it('brings a copy to the same state as a full walk, whatever happened (property)', async () => {
    const step = fc.record({
      kind: fc.constantFrom('follow', 'unfollow', 'tag', 'erase', 'poll'),
      whom: fc.nat({ max: 4 }),
    })
    await fc.assert(
      fc.asyncProperty(fc.array(step, { maxLength: 20 }), async (steps) => {
        const who = await addTenant(database)
        const copy = new Map<string, unknown>()
        let since = FAR_AGO
        const poll = async () => {
          for (const entry of await walk(who, `updatedSince=${since}`, 3)) {
            if (entry.deletedAt === undefined) copy.set(entry.id, entry)
            else copy.delete(entry.id)
            since = entry.updatedAt ?? since
          }
        }
        for (const [i, { kind, whom }] of steps.entries()) {
          const userId = `U${whom}`
          const member = await service.member(who, userId)
          if (kind === 'poll') await poll()
          else if (kind === 'follow' || kind === 'unfollow')
            await service.deliver(who, [lineEvent(kind, userId)])
          else if (member !== undefined && kind === 'erase') {
            await service.call('DELETE', `/api/audience/${member.id}`, { headers: who.headers })
          } else if (member !== undefined) {
            await service.call('PUT', `/api/audience/${member.id}`, {
              headers: { ...who.headers, 'content-type': 'application/json' },
              body: JSON.stringify({ tags: [`t${i}`] }),
            })
          }
        }
        await poll()
        const truth = new Map((await service.members(who)).map((member) => [member.id, member]))
        expect(copy).toEqual(truth)
      }),
      { numRuns: 20 },
    )
  })
})
