/** CONTRACT: PUT /api/audience/:id. */
import { describe, expect, it } from 'vitest'
import type { Member } from '../src/audience/member.ts'
import { lineEvent, randomUserId } from '../tools/simulator/events.ts'
import { addTenant, type Tenant } from './support/database.ts'
import { type Answer, setUpFile } from './support/service.ts'

const { database, service, tenant } = await setUpFile()

async function newMember(who = tenant): Promise<Member> {
  const userId = randomUserId()
  await service.deliver(who, [lineEvent('follow', userId)])
  return (await service.member(who, userId)) as Member
}

function put(who: Tenant, id: string, body: unknown, headers: Record<string, string> = {}): Promise<Answer> {
  return service.call('PUT', `/api/audience/${id}`, {
    headers: { ...who.headers, 'content-type': 'application/json', ...headers },
    body: typeof body === 'string' ? body : JSON.stringify(body),
  })
}

describe('an update', () => {
  it('sets what it names, keeps what it leaves out, clears what is null', async () => {
    const member = await newMember()
    const first = await put(tenant, member.id, {
      externalId: 'c-1',
      tags: ['vip', 'ชา'],
      attributes: { cups: 3, gold: true, note: null },
    })
    expect(first.status).toBe(200)
    expect(first.json).toEqual({
      ...member,
      externalId: 'c-1',
      tags: ['vip', 'ชา'],
      attributes: { cups: 3, gold: true, note: null },
      version: 2,
      updatedAt: expect.any(String),
    })
    const second = await put(tenant, member.id, { tags: [] })
    expect(second.json).toMatchObject({ externalId: 'c-1', tags: [], attributes: { cups: 3 }, version: 3 })
    const third = await put(tenant, member.id, { externalId: null, attributes: null, tags: null })
    expect(third.json).toMatchObject({ externalId: null, tags: [], attributes: {}, version: 4 })
    expect(await service.member(tenant, member.userId)).toEqual(third.json)
  })

  it('that changes nothing is no new version', async () => {
    const member = await newMember()
    await put(tenant, member.id, { tags: ['a'] })
    const again = await put(tenant, member.id, { tags: ['a'] })
    expect(again.json.version).toBe(2)
    expect(again.headers.get('etag')).toBe('"2"')
    expect((await put(tenant, member.id, {})).json.version).toBe(2)
  })

  it('is refused with 412 when If-Match names another version, and done when it names this one', async () => {
    const member = await newMember()
    for (const stale of ['"2"', '"0"', 'W/"1"', '1', '"x"', '""', '"99999999999999999999"']) {
      expect(
        (await put(tenant, member.id, { tags: ['a'] }, { 'if-match': stale })).json,
        stale,
      ).toMatchObject({ statusCode: 412 })
    }
    const done = await put(tenant, member.id, { tags: ['a'] }, { 'if-match': '"7", "1"' })
    expect(done.status).toBe(200)
    expect(done.headers.get('etag')).toBe('"2"')
    expect((await put(tenant, member.id, { tags: ['b'] }, { 'if-match': '*' })).status).toBe(200)
    expect((await put(tenant, '999999', { tags: ['b'] }, { 'if-match': '"1"' })).status).toBe(404)
  })

  it('is not made stale by events: the version is about what clients changed', async () => {
    const member = await newMember()
    await service.deliver(tenant, [lineEvent('unfollow', member.userId, { timestamp: Date.now() + 1000 })])
    const done = await put(tenant, member.id, { tags: ['a'] }, { 'if-match': '"1"' })
    expect(done.json).toMatchObject({ relationship: 'blocked', tags: ['a'] })
    await service.deliver(tenant, [lineEvent('follow', member.userId, { timestamp: Date.now() + 2000 })])
    expect(await service.member(tenant, member.userId)).toMatchObject({
      relationship: 'following',
      tags: ['a'],
      version: 2,
    })
  })

  it('by another program counts like one by a client: it moves version and updatedAt', async () => {
    const member = await newMember()
    await database.query(`update audience_member set tags = '{gold}' where channel_oa_id = $1 and id = $2`, [
      tenant.accountId,
      member.id,
    ])
    const changed = (await service.member(tenant, member.userId)) as Member
    expect(changed).toMatchObject({ tags: ['gold'], version: member.version + 1 })
    expect(Date.parse(changed.updatedAt)).toBeGreaterThan(Date.parse(member.updatedAt))
    expect((await put(tenant, member.id, { tags: [] }, { 'if-match': `"${member.version}"` })).status).toBe(
      412,
    )
    await database.query(`update audience_member set tags = '{gold}' where id = $1`, [member.id])
    expect(await service.member(tenant, member.userId)).toEqual(changed)
  })

  it('of different fields by two clients at once loses nothing', async () => {
    const member = await newMember()
    const changes = [{ externalId: member.userId }, { tags: ['x'] }, { attributes: { n: 1 } }]
    await Promise.all([...changes, ...changes].map((change) => put(tenant, member.id, change)))
    expect(await service.member(tenant, member.userId)).toMatchObject({
      externalId: member.userId,
      tags: ['x'],
      attributes: { n: 1 },
      version: 4,
    })
  })

  it('answers 409 for an externalId that another member of the scope has, and only of this scope', async () => {
    const [one, two] = [await newMember(), await newMember()]
    const other = await addTenant(database)
    const foreign = await newMember(other)
    expect((await put(tenant, one.id, { externalId: 'taken' })).status).toBe(200)
    expect((await put(tenant, two.id, { externalId: 'taken' })).json).toMatchObject({
      statusCode: 409,
      error: 'Conflict',
    })
    expect((await put(other, foreign.id, { externalId: 'taken' })).status).toBe(200)
    expect((await put(tenant, one.id, { externalId: 'taken' })).status).toBe(200)
  })

  it("answers 404 for an unknown member and for another tenant's", async () => {
    const foreign = await newMember(await addTenant(database))
    for (const id of ['999999', '0', foreign.id, '9223372036854775807']) {
      expect((await put(tenant, id, { tags: ['a'] })).json).toMatchObject({
        statusCode: 404,
        error: 'Not Found',
      })
    }
  })

  it.each([
    ['no JSON', '', 400],
    ['broken JSON', '{"tags":', 400],
    ['an array', [], 400],
    ['null', 'null', 400],
    ['an unknown field', { displayName: 'x' }, 400],
    ['a number as externalId', { externalId: 7 }, 400],
    ['an empty externalId', { externalId: '' }, 400],
    ['an externalId of 129 characters', { externalId: 'x'.repeat(129) }, 400],
    ['an externalId with U+0000', { externalId: 'a\u0000b' }, 400],
    ['half a surrogate pair', { tags: ['\ud800'] }, 400],
    ['101 tags', { tags: Array.from({ length: 101 }, (_, i) => `t${i}`) }, 400],
    ['a tag of 65 characters', { tags: ['x'.repeat(65)] }, 400],
    ['tags that are no texts', { tags: [null] }, 400],
    ['attributes in attributes', { attributes: { a: { b: 1 } } }, 400],
    ['attributes over 16 KiB', { attributes: { a: 'x'.repeat(16 * 1024) } }, 400],
    ['U+0000 in an attribute', { attributes: { a: '\u0000' } }, 400],
    ['a number beyond all numbers', '{"attributes":{"a":1e999}}', 400],
    ['a number that takes 309 digits', '{"attributes":{"a":1e308}}', 400],
    ['an integer that JSON numbers cannot hold', '{"attributes":{"a":9007199254740993}}', 400],
    ['the longest externalId', { externalId: '😀'.repeat(128) }, 200],
    ['the most tags', { tags: Array.from({ length: 100 }, (_, i) => `${i}`.padEnd(64, 'ชา')) }, 200],
    ...['\n', '\r', '\u2028'].flatMap(
      (end): Array<[string, unknown, number]> => [
        [
          `nesting under a name with ${JSON.stringify(end)}`,
          { attributes: { [`a${end}b`]: { c: '\0' } } },
          400,
        ],
        [
          `an exact value under a name with ${JSON.stringify(end)}`,
          { attributes: { [`a${end}b`]: 'x' } },
          200,
        ],
      ],
    ),
    ['__proto__ as an attribute', '{"attributes":{"__proto__":"x","constructor":"y"}}', 200],
  ])('with %s is answered $2', async (_what, body, status) => {
    const member = await newMember()
    const answer = await put(tenant, member.id, body)
    expect(answer.status).toBe(status)
    if (status === 400)
      expect(answer.json).toMatchObject({ error: 'Bad Request', requestId: expect.any(String) })
    else expect((await service.member(tenant, member.userId))?.version).toBe(2)
  })

  it('with a bad field is told what the field should be, once', async () => {
    const member = await newMember()
    const { json } = await put(tenant, member.id, { externalId: 7, tags: [1], attributes: { a: [1] } })
    expect(json.details).toEqual([
      { path: 'externalId', message: 'must be string' },
      { path: 'tags/0', message: 'must be string' },
      { path: 'attributes/a', message: 'must be one of string, number, boolean' },
    ])
  })

  it('that is not in UTF-8 is refused: its characters would be others', async () => {
    const { id } = (await service.members(tenant))[0] ?? {}
    const answer = await service.call('PUT', `/api/audience/${id}`, {
      headers: { ...tenant.headers, 'content-type': 'application/json' },
      body: Buffer.from('{"externalId":"Jos\u00e9"}', 'latin1'),
    })
    expect(answer).toMatchObject({ status: 400, json: { message: 'The body is not in UTF-8' } })
  })

  it('finds a member whose id is negative, as another program may have loaded it', async () => {
    await database.query(
      `insert into audience_member (id, channel_oa_id, organization_id, user_id) values (-5, $1, $2, 'Unegative')`,
      [tenant.accountId, tenant.organizationId],
    )
    expect((await service.members(tenant)).map(({ id }) => id)).toContain('-5')
    expect((await put(tenant, '-5', { tags: ['a'] })).json).toMatchObject({ id: '-5', tags: ['a'] })
    expect((await put(tenant, '-0', { tags: ['a'] })).status).toBe(404)
  })

  it('in another content type is answered 415', async () => {
    const member = await newMember()
    expect(
      (await put(tenant, member.id, '{}', { 'content-type': 'application/x-www-form-urlencoded' })).status,
    ).toBe(415)
  })
})
