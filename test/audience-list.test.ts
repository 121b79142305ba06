/** CONTRACT: GET /api/audience. */
import { describe, expect, it } from 'vitest'
import { lineEvent, randomUserId, textMessage } from '../tools/simulator/events.ts'
import { addTenant, type Tenant } from './support/database.ts'
import { setUpFile } from './support/service.ts'

const { database, service, tenant } = await setUpFile()

const list = (who: Tenant, query = '') =>
  service.call('GET', `/api/audience${query}`, { headers: who.headers })

async function addMembers(who: Tenant, count: number): Promise<void> {
  await database.query(
    `insert into audience_member (channel_oa_id, organization_id, user_id, display_name, external_id, tags, attributes)
     select $1, $2, 'U' || i, 'Name ' || i, 'e' || i, array['a', 'b'], '{"n": 1}' from generate_series(1, $3) i`,
    [who.accountId, who.organizationId, count],
  )
}

describe('a listing', () => {
  it('shows members in full, with ids as text and times in ISO 8601', async () => {
    const who = await addTenant(database)
    const userId = randomUserId()
    const at = Date.UTC(2024, 0, 2, 3, 4, 5, 6)
    await service.deliver(who, [
      lineEvent('follow', userId, { timestamp: at }),
      textMessage(userId, 'x', { timestamp: at + 1 }),
    ])
    const { json } = await list(who)
    expect(json).toEqual({
      data: [
        {
          id: expect.stringMatching(/^\d+$/),
          userId,
          displayName: null,
          pictureUrl: null,
          language: null,
          relationship: 'following',
          followedAt: '2024-01-02T03:04:05.006Z',
          blockedAt: null,
          firstSeenAt: '2024-01-02T03:04:05.006Z',
          lastSeenAt: '2024-01-02T03:04:05.007Z',
          eventCount: 2,
          conversation: null,
          externalId: null,
          tags: [],
          attributes: {},
          version: 1,
          createdAt: expect.stringMatching(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/),
          updatedAt: expect.stringMatching(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/),
        },
      ],
      nextCursor: null,
    })
  })

  it('shows members that another program loaded with plain inserts', async () => {
    const who = await addTenant(database)
    await addMembers(who, 1)
    expect((await list(who)).json.data[0]).toMatchObject({
      userId: 'U1',
      displayName: 'Name 1',
      externalId: 'e1',
      tags: ['a', 'b'],
      attributes: { n: 1 },
      relationship: 'unknown',
      eventCount: 0,
      firstSeenAt: null,
    })
    await service.deliver(who, [lineEvent('follow', 'U1')])
    expect((await list(who)).json.data[0]).toMatchObject({
      externalId: 'e1',
      relationship: 'following',
      eventCount: 1,
    })
  })

  it('keeps the shape of a member whatever another program wrote', async () => {
    const who = await addTenant(database)
    const rows = [
      [`'{a,NULL,b}'`, `'{"n": 1}'`],
      [`'{{a,b},{c,d}}'`, `'[1]'`],
      [`'{NULL}'`, `'"text"'`],
      [`'{}'`, `'null'`],
    ]
    for (const [index, [tags, attributes]] of rows.entries()) {
      await database.query(
        `insert into audience_member (channel_oa_id, organization_id, user_id, tags, attributes)
         values ($1, $2, 'U${index}', ${tags}, ${attributes})`,
        [who.accountId, who.organizationId],
      )
    }
    const expected = [
      { tags: ['a', 'b'], attributes: { n: 1 } },
      { tags: ['a', 'b', 'c', 'd'], attributes: {} },
      { tags: [], attributes: {} },
      { tags: [], attributes: {} },
    ]
    expect((await list(who)).json.data).toMatchObject(expected)
    const csv = await service.call('GET', '/api/audience', {
      headers: { ...who.headers, accept: 'text/csv' },
    })
    expect(csv.text).toContain(`,"[""a"",""b""]","{""n"": 1}",`)
    expect(csv.text).toContain(`,"[]","{}",`)
  })

  it('walks over all pages, oldest first, each member once', async () => {
    const who = await addTenant(database)
    await addMembers(who, 123)
    const seen: string[] = []
    let cursor: string | null = null
    let pages = 0
    do {
      const { json } = await list(who, `?limit=10${cursor ? `&cursor=${cursor}` : ''}`)
      seen.push(...json.data.map((member: { userId: string }) => member.userId))
      cursor = json.nextCursor
      pages += 1
    } while (cursor !== null)
    expect(pages).toBe(13)
    expect(seen).toEqual(Array.from({ length: 123 }, (_, i) => `U${i + 1}`))
  })

  it('has 50 members a page unless told otherwise, from 1 to 200', async () => {
    const who = await addTenant(database)
    await addMembers(who, 201)
    expect((await list(who)).json.data).toHaveLength(50)
    expect((await list(who, '?limit=1')).json.data).toHaveLength(1)
    expect((await list(who, '?limit=200')).json.data).toHaveLength(200)
  })

  it('finds one person by user id', async () => {
    const who = await addTenant(database)
    await addMembers(who, 3)
    expect((await list(who, '?userId=U2')).json.data.map(({ userId }: { userId: string }) => userId)).toEqual(
      ['U2'],
    )
    expect((await list(who, '?userId=U9')).json).toEqual({ data: [], nextCursor: null })
  })

  it.each([
    ['limit', '?limit=0'],
    ['limit', '?limit=201'],
    ['limit', '?limit=1e1'],
    ['limit', '?limit='],
    ['limit', '?limit=1&limit=2'],
    ['cursor', '?cursor='],
    ['cursor', '?cursor=abc'],
    ['cursor', `?cursor=${'A'.repeat(23)}`],
    ['userId', '?userId='],
    ['userId', '?userId=%00'],
    ['colour', '?colour=red'],
    ['__proto__', '?__proto__=1'],
  ])('refuses a bad %s in %s: 400 that names it', async (path, query) => {
    const answer = await list(tenant, query)
    expect(answer.status).toBe(400)
    expect(answer.json.details.map((detail: { path: string }) => detail.path)).toContain(path)
  })

  it('refuses the cursor of another tenant and of another query', async () => {
    const [one, two] = [await addTenant(database), await addTenant(database)]
    await addMembers(one, 3)
    await addMembers(two, 3)
    const { json } = await list(one, '?limit=1')
    expect((await list(one, `?limit=2&cursor=${json.nextCursor}`)).status).toBe(200)
    expect((await list(two, `?limit=1&cursor=${json.nextCursor}`)).status).toBe(400)
    expect((await list(one, `?limit=1&userId=U1&cursor=${json.nextCursor}`)).status).toBe(400)
  })

  it("never shows another tenant's members", async () => {
    const [one, two] = [await addTenant(database), await addTenant(database)]
    await addMembers(one, 2)
    expect((await list(two)).json.data).toEqual([])
    expect((await list(two, '?userId=U1')).json.data).toEqual([])
  })
})
