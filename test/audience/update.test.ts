/** PUT /api/audience/:id: clients change a member. */
import { expect, it } from 'vitest'
import type { Member } from '../../src/audience/member.ts'
import { lineEvent } from '../../tools/simulator/events.ts'
import { addTenant } from '../support/database.ts'
import { loadMembers } from '../support/load.ts'
import { setUpService } from '../support/service.ts'

const { database, service, tenant } = await setUpService()

const newMember = (of = tenant) => service.addFollower(of)

it('PUT /api/audience/:id sets the fields that are given, keeps the others, and clears those that are null', async () => {
  const member = await newMember()
  const attributes = { cups: 3, gold: true, note: null }
  const fields = { externalId: 'c-1', tags: ['vip', 'ชา'], attributes }
  const first = await service.put(tenant, member.id, fields)
  expect(first.status).toBe(200)
  expect(first.json).toEqual({ ...member, ...fields, version: 2, updatedAt: expect.any(String) })
  const second = await service.put(tenant, member.id, { tags: [] })
  expect(second.json).toMatchObject({ externalId: 'c-1', tags: [], attributes: { cups: 3 }, version: 3 })
  const third = await service.put(tenant, member.id, { externalId: null, attributes: null, tags: null })
  expect(third.json).toMatchObject({ externalId: null, tags: [], attributes: {}, version: 4 })
  expect(await service.member(tenant, member.userId)).toEqual(third.json)
})

it('PUT /api/audience/:id keeps the version when nothing changes', async () => {
  const member = await newMember()
  await service.put(tenant, member.id, { tags: ['a'] })
  const again = await service.put(tenant, member.id, { tags: ['a'] })
  expect(again.json.version).toBe(2)
  expect(again.headers.get('etag')).toBe('"2"')
  expect((await service.put(tenant, member.id, {})).json.version).toBe(2)
})

it('PUT /api/audience/:id answers 412 unless If-Match names the current version', async () => {
  const member = await newMember()
  for (const stale of ['"2"', 'W/"2"', '"0"', '"x"', '""', '"a,b"', '"99999999999999999999"']) {
    const refused = await service.put(tenant, member.id, { tags: ['a'] }, { 'if-match': stale })
    expect(refused.status, stale).toBe(412)
  }
  const done = await service.put(tenant, member.id, { tags: ['a'] }, { 'if-match': '"7", "1"' })
  expect(done.status).toBe(200)
  expect(done.headers.get('etag')).toBe('"2"')
  expect((await service.put(tenant, member.id, { tags: ['b'] }, { 'if-match': '*' })).status).toBe(200)
  expect((await service.put(tenant, '999999', { tags: ['b'] }, { 'if-match': '"1"' })).status).toBe(404)
})

it('PUT /api/audience/:id accepts a weak tag, into which a compressing proxy turns the ETag, also in a list', async () => {
  const member = await newMember()
  for (const [no, current] of ['W/"1"', '"1", W/"2"', 'W/"3",W/"9"'].entries()) {
    const done = await service.put(tenant, member.id, { tags: [`${no}`] }, { 'if-match': current })
    expect(done.headers.get('etag'), current).toBe(`"${no + 2}"`)
  }
})

it('PUT /api/audience/:id answers 400 with the expected form when If-Match is malformed, unquoted or empty', async () => {
  const member = await newMember()
  const forms = ['W/1', 'w/"1"', 'W/*', 'W"1"', '*, "1"', '1', '"1', '"1" "2"', '"1", 2', '"1",', '']
  for (const malformed of [...forms, '1'.repeat(9_000)]) {
    const refused = await service.put(tenant, member.id, { tags: ['a'] }, { 'if-match': malformed })
    expect(refused.json, malformed).toMatchObject({
      statusCode: 400,
      message: 'If-Match must be versions in quotes, as ETag has them: "4"',
    })
  }
})

it('PUT /api/audience/:id keeps the version when events change the member', async () => {
  const member = await newMember()
  await service.deliver(tenant, [lineEvent('unfollow', member.userId, { timestamp: Date.now() + 1000 })])
  const done = await service.put(tenant, member.id, { tags: ['a'] }, { 'if-match': '"1"' })
  expect(done.json).toMatchObject({ relationship: 'blocked', tags: ['a'] })
  await service.deliver(tenant, [lineEvent('follow', member.userId, { timestamp: Date.now() + 2000 })])
  expect(await service.member(tenant, member.userId)).toMatchObject({
    relationship: 'following',
    tags: ['a'],
    version: 2,
  })
})

it('PUT /api/audience/:id answers 412 after another program changed the member, which moves version and updatedAt', async () => {
  const member = await newMember()
  const change = `update audience_member set tags = '{gold}' where id = $1`
  await database.query(change, [member.id])
  const changed = (await service.member(tenant, member.userId)) as Member
  expect(changed).toMatchObject({ tags: ['gold'], version: member.version + 1 })
  expect(Date.parse(changed.updatedAt)).toBeGreaterThan(Date.parse(member.updatedAt))
  const stale = { 'if-match': `"${member.version}"` }
  expect((await service.put(tenant, member.id, { tags: [] }, stale)).status).toBe(412)
  await database.query(change, [member.id])
  expect(await service.member(tenant, member.userId)).toEqual(changed)
})

it('PUT /api/audience/:id loses no change when clients change different fields at the same time', async () => {
  const member = await newMember()
  const changes = [{ externalId: member.userId }, { tags: ['x'] }, { attributes: { n: 1 } }]
  await Promise.all([...changes, ...changes].map((change) => service.put(tenant, member.id, change)))
  expect(await service.member(tenant, member.userId)).toMatchObject({
    externalId: member.userId,
    tags: ['x'],
    attributes: { n: 1 },
    version: 4,
  })
})

it('PUT /api/audience/:id answers 409 when another member of the same scope has the externalId', async () => {
  const [one, two] = [await newMember(), await newMember()]
  const other = await addTenant(database)
  const foreign = await newMember(other)
  expect((await service.put(tenant, one.id, { externalId: 'taken' })).status).toBe(200)
  const conflict = { statusCode: 409, error: 'Conflict' }
  expect((await service.put(tenant, two.id, { externalId: 'taken' })).json).toMatchObject(conflict)
  expect((await service.put(other, foreign.id, { externalId: 'taken' })).status).toBe(200)
  expect((await service.put(tenant, one.id, { externalId: 'taken' })).status).toBe(200)
})

it.each([
  ['broken JSON', '{"tags":'],
  ['an externalId of 129 characters', { externalId: 'x'.repeat(129) }],
  ['half a surrogate pair', { tags: ['\ud800'] }],
  ['an externalId with U+0000', { externalId: 'a\u0000b' }],
  ['101 tags', { tags: Array.from({ length: 101 }, (_, i) => `t${i}`) }],
  ['a tag of 65 characters', { tags: ['x'.repeat(65)] }],
  ['attributes over 16 KiB', { attributes: { a: 'x'.repeat(16 * 1024) } }],
  ['a number that overflows to infinity', '{"attributes":{"a":1e999}}'],
  ['an integer beyond 2^53', '{"attributes":{"a":9007199254740993}}'],
  ['nesting under a name with a line break', { attributes: { 'a\nb': { c: '\0' } } }],
])('PUT /api/audience/:id rejects %s with 400', async (_, body) => {
  const member = await newMember()
  const answer = await service.put(tenant, member.id, body)
  expect(answer.status).toBe(400)
  expect(answer.json).toMatchObject({ error: 'Bad Request', requestId: expect.any(String) })
})

it.each([
  ['the longest externalId', { externalId: '😀'.repeat(128) }],
  ['__proto__ as an attribute', '{"attributes":{"__proto__":"x","constructor":"y"}}'],
  ['an attribute whose name contains line breaks', { attributes: { 'a\n\u2028b': 'x' } }],
])('PUT /api/audience/:id accepts %s', async (_, body) => {
  const member = await newMember()
  expect((await service.put(tenant, member.id, body)).status).toBe(200)
  expect((await service.member(tenant, member.userId))?.version).toBe(2)
})

it.each([
  [
    { externalId: 7, tags: [1], attributes: { a: [1] } },
    { path: 'externalId', message: 'must be a string' },
    { path: 'tags/0', message: 'must be a string' },
    { path: 'attributes/a', message: 'must be one of a string, a number, true or false' },
  ],
  [{ tags: [''] }, { path: 'tags/0', message: 'must not be empty' }],
  [{ name: 'x' }, { path: 'name', message: 'is not a known field' }],
  [[], { path: '', message: 'must be an object' }],
])(
  'PUT /api/audience/:id lists each fault of %j once, without words of JSON Schema',
  async (body, ...details) => {
    const member = await newMember()
    expect((await service.put(tenant, member.id, body)).json.details).toEqual(details)
  },
)

it('PUT /api/audience/:id rejects a body that is not in UTF-8', async () => {
  const { id } = (await service.members(tenant))[0] ?? {}
  const answer = await service.call('PUT', `/api/audience/${id}`, {
    headers: { ...tenant.headers, 'content-type': 'application/json' },
    body: Buffer.from('{"externalId":"Jos\u00e9"}', 'latin1'),
  })
  expect(answer).toMatchObject({ status: 400, json: { message: 'The body is not in UTF-8' } })
})

it('PUT /api/audience/:id finds a member that another program loaded with a negative id', async () => {
  await loadMembers(database, tenant, 1, { id: '-5' })
  expect((await service.members(tenant)).map(({ id }) => id)).toContain('-5')
  expect((await service.put(tenant, '-5', { tags: ['a'] })).json).toMatchObject({ id: '-5', tags: ['a'] })
  expect((await service.put(tenant, '-0', { tags: ['a'] })).status).toBe(404)
})
