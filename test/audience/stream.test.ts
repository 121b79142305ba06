/** GET /api/audience as a stream of NDJSON or CSV. */
import { parse } from 'csv-parse/sync'
import { expect, it } from 'vitest'
import { lineEvent, randomUserId } from '../../tools/simulator/events.ts'
import { addTenant, type Tenant } from '../support/database.ts'
import { load, tenantWithMembers } from '../support/load.ts'
import { setUpService } from '../support/service.ts'
import { sendHead } from '../support/stream.ts'

const { database, service, tenant } = await setUpService()

const stream = (of: Tenant, accept: string, query = '') =>
  service.call('GET', `/api/audience${query}`, { headers: { ...of.headers, accept } })

const parseLines = (text: string) => Array.from(text.trimEnd().split('\n'), (line) => JSON.parse(line))

it('GET /api/audience as NDJSON returns each member as a page does, one per line', async () => {
  const owner = await tenantWithMembers(database, 2_001)
  const answer = await stream(owner, 'application/x-ndjson')
  expect(answer.status).toBe(200)
  expect(answer.headers.get('content-type')).toBe('application/x-ndjson; charset=utf-8')
  expect(answer.text.endsWith('\n')).toBe(true)
  expect(parseLines(answer.text)).toEqual(await service.members(owner))
})

const NAMES = [
  ...['plain', 'with "quotes", and\r\nlines', "'plain", 'สวัสดี', '', null],
  ...['=1+1', "'=x", '+1', '-1', '@sum', '\ttab', '＝1+1'],
]

it('GET /api/audience as CSV follows RFC 4180, has a header, and escapes cells that a spreadsheet would take for a formula', async () => {
  const owner = await addTenant(database)
  await load(
    database,
    `insert into audience_member (channel_oa_id, organization_id, user_id, display_name, external_id, attributes, tags)
     select $1, $2, 'U' || no, name, '=' || no, '{"a": "x,\\"y\\""}', '{a,"b,c"}'
       from unnest($3::text[]) with ordinality as list (name, no)`,
    [owner.accountId, owner.organizationId, NAMES],
  )
  const answer = await stream(owner, 'text/csv')
  expect(answer.headers.get('content-type')).toBe('text/csv; charset=utf-8')
  expect(answer.text.replaceAll(/"(?:[^"]|"")*"/g, '')).toMatch(/^([^\r\n]*\r\n)+$/)
  const format = { columns: true, record_delimiter: '\r\n' } as const
  const rows: Array<Record<string, string>> = parse(answer.text, format)
  expect(rows.map(({ displayName }) => displayName)).toEqual(
    NAMES.map((name) => (/^['=+\-@＝\t]/.test(name ?? '') ? `'${name}` : (name ?? ''))),
  )
  expect(rows[0]).toMatchObject({
    userId: 'U1',
    externalId: "'=1",
    tags: '["a","b,c"]',
    attributes: '{"a": "x,\\"y\\""}',
    relationship: 'unknown',
    followedAt: '',
    version: '1',
    deletedAt: '',
  })
})

it.each([
  ['text/csv; header=present', 'text/csv'],
  ['text/csv;charset=utf-8', 'text/csv'],
  ['text/csv; header=absent, application/json;q=0.5', 'text/csv'],
  ['text/csv; header=present; q=0.4, application/json; q=0.5', 'application/json'],
  ['application/x-ndjson; charset=utf-8', 'application/x-ndjson'],
  ['text/csv;q=0', 'application/json'],
])('GET /api/audience with Accept: %s answers %s, without a byte order mark', async (accept, mediaType) => {
  const headers = { ...tenant.headers, accept }
  const response = await fetch(`${service.url}/api/audience`, { headers })
  expect(response.headers.get('content-type')).toBe(`${mediaType}; charset=utf-8`)
  const [first] = new Uint8Array(await response.arrayBuffer())
  expect(first).not.toBe(0xef)
})

it('GET /api/audience as a stream includes erased members when updatedSince is given', async () => {
  const owner = await addTenant(database)
  const [stays, goes] = [randomUserId(), randomUserId()]
  for (const userId of [stays, goes]) await service.deliver(owner, [lineEvent('follow', userId)])
  const gone = await service.member(owner, goes)
  await service.erase(owner, gone?.id)
  const ndjson = await stream(owner, 'application/x-ndjson', '?updatedSince=2020-01-01T00:00:00Z')
  const lines = parseLines(ndjson.text)
  expect(lines).toMatchObject([{ userId: stays }, { id: gone?.id, deletedAt: expect.any(String) }])
  const csv = await stream(owner, 'text/csv', '?updatedSince=2020-01-01T00:00:00Z')
  const rows: Array<Record<string, string>> = parse(csv.text, { columns: true })
  expect(rows[1]).toMatchObject({ id: gone?.id, userId: '', deletedAt: lines[1].deletedAt })
})

it('GET /api/audience as a stream applies filters, and rejects limit, cursor and wrong values', async () => {
  await service.deliver(tenant, [lineEvent('follow', randomUserId())])
  expect((await stream(tenant, 'text/csv', '?relationship=following')).text.split('\r\n')).toHaveLength(3)
  expect((await stream(tenant, 'text/csv', '?relationship=blocked')).text.split('\r\n')).toHaveLength(2)
  for (const query of ['?limit=5', '?cursor=x', '?relationship=friend']) {
    expect((await stream(tenant, 'text/csv', query)).status, query).toBe(400)
  }
})

it.each([
  ['text/csv;q=0.5, application/x-ndjson', 'application/x-ndjson'],
  ['application/x-ndjson;q=0.1, text/csv;q=0.9', 'text/csv'],
  ['application/json, text/csv;q=0.9', 'application/json'],
  ['*/*', 'application/json'],
  ['text/csv;q=0', 'application/json'],
  ['text/html', 'application/json'],
])('GET /api/audience as a stream answers Accept: %s with %s', async (accept, type) => {
  expect((await stream(tenant, accept)).headers.get('content-type')).toContain(type)
})

it('GET /api/audience as a stream returns 400 over HTTP/1.0, where a client cannot tell the end from an interruption', async () => {
  let text = ''
  for await (const chunk of sendHead(service, tenant, '1.0')) text += chunk
  expect(text).toContain('400 Bad Request')
  expect(text).toContain('needs HTTP/1.1')
})
