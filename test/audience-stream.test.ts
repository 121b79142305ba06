/** GET /api/audience as a stream of NDJSON or CSV. */
import { once } from 'node:events'
import { type IncomingMessage, request, type ServerResponse } from 'node:http'
import { connect, type Socket } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import { parse } from 'csv-parse/sync'
import { describe, expect, it } from 'vitest'
import { lineEvent, randomUserId } from '../tools/simulator/events.ts'
import { addTenant, type Tenant } from './support/database.ts'
import { load, loadMembers } from './support/load.ts'
import { holdTransaction } from './support/locks.ts'
import { eventually } from './support/process.ts'
import { type Service, setUpFile, startObserved } from './support/service.ts'

const { database, service, tenant } = await setUpFile()

/**
 * 5 batches of 1,000 members × 8 KB = 40 MB: more than two batches and the socket buffers of both ends, which take up to 10 MB.
 * So the database has not sent everything while a client does not read.
 */
const LARGE = 5_000
const largeTenant = await addTenant(database)
await loadMembers(database, largeTenant, LARGE, {
  attributes: `jsonb_build_object('pad', repeat('x', 8000))`,
})

const stream = (of: Tenant, accept: string, query = '') =>
  service.call('GET', `/api/audience${query}`, { headers: { ...of.headers, accept } })

const parseLines = (text: string) => Array.from(text.trimEnd().split('\n'), (line) => JSON.parse(line))

/** Opens a stream of the large audience, and pauses it at its first bytes. */
async function openStream(from: Service): Promise<IncomingMessage> {
  const headers = { ...largeTenant.headers, accept: 'application/x-ndjson' }
  const [response] = (await once(
    request(`${from.url}/api/audience`, { headers, agent: false }).end(),
    'response',
  )) as [IncomingMessage]
  await once(response, 'readable')
  return response
}

/** Sends the head of a request for CSV on a bare socket. */
function sendHead(of: Tenant, httpVersion: string): Socket {
  const socket = connect(Number(new URL(service.url).port), '127.0.0.1')
  const headers = { ...of.headers, accept: 'text/csv', host: 'localhost' }
  const lines = Object.entries(headers).map(([name, value]) => `${name}: ${value}\r\n`)
  socket.write(`GET /api/audience HTTP/${httpVersion}\r\n${lines.join('')}\r\n`)
  return socket
}

/** Number of sessions that are not idle. In this file, only streams keep a session busy. */
const streamSessions = async () => {
  const rows = await database.query(
    `select from pg_stat_activity where datname = current_database() and backend_type = 'client backend'
        and state <> 'idle' and pid <> pg_backend_pid()`,
  )
  return rows.length
}

describe('GET /api/audience as NDJSON', () => {
  it('returns each member as a page does, one per line', async () => {
    const owner = await addTenant(database)
    await loadMembers(database, owner, 2_001)
    const answer = await stream(owner, 'application/x-ndjson')
    expect(answer.status).toBe(200)
    expect(answer.headers.get('content-type')).toBe('application/x-ndjson; charset=utf-8')
    expect(answer.text.endsWith('\n')).toBe(true)
    expect(parseLines(answer.text)).toEqual(await service.members(owner))
  })
})

describe('GET /api/audience as CSV', () => {
  const NAMES = [
    'plain',
    'with "quotes", and\r\nlines',
    '=1+1',
    "'=x",
    "'plain",
    '+1',
    '-1',
    '@sum',
    '\ttab',
    '＝1+1',
    'สวัสดี',
    '',
    null,
  ]

  it('follows RFC 4180, has a header, and escapes cells that a spreadsheet would take for a formula', async () => {
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
})

describe('GET /api/audience as a stream', () => {
  it('includes erased members when updatedSince is given', async () => {
    const owner = await addTenant(database)
    const [stays, goes] = [randomUserId(), randomUserId()]
    for (const userId of [stays, goes]) await service.deliver(owner, [lineEvent('follow', userId)])
    const gone = await service.member(owner, goes)
    await service.call('DELETE', `/api/audience/${gone?.id}`, { headers: owner.headers })
    const ndjson = await stream(owner, 'application/x-ndjson', '?updatedSince=2020-01-01T00:00:00Z')
    const lines = parseLines(ndjson.text)
    expect(lines).toMatchObject([{ userId: stays }, { id: gone?.id, deletedAt: expect.any(String) }])
    const csv = await stream(owner, 'text/csv', '?updatedSince=2020-01-01T00:00:00Z')
    const rows: Array<Record<string, string>> = parse(csv.text, { columns: true })
    expect(rows[1]).toMatchObject({ id: gone?.id, userId: '', deletedAt: lines[1].deletedAt })
  })

  it('applies filters, and rejects limit, cursor and wrong values', async () => {
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
  ])('answers Accept: %s with %s', async (accept, type) => {
    expect((await stream(tenant, accept)).headers.get('content-type')).toContain(type)
  })

  it('returns null when the key has no scope, as a page does', async () => {
    const owner = await addTenant(database)
    await load(database, `update api_key set status = 'revoked' where id = $1`, [owner.keyId])
    expect((await stream(owner, 'text/csv')).text).toBe('null')
  })

  it('is one snapshot, without changes that are committed while it is sent', async () => {
    const response = await openStream(service)
    await load(database, `update audience_member set display_name = 'changed' where channel_oa_id = $1`, [
      largeTenant.accountId,
    ])
    await eventually(streamSessions, (sessions) => sessions === 1)
    response.setEncoding('utf8')
    let text = ''
    for await (const chunk of response) text += chunk
    expect(text.split('\n')).toHaveLength(LARGE + 1)
    expect(text).not.toContain('changed')
  })

  it('stops reading from the database while a client does not read, and frees the session when it disconnects', async () => {
    const accepted = once(service.app.server, 'connection') as Promise<[Socket]>
    const client = sendHead(largeTenant, '1.1')
    const [connection] = await accepted
    await once(client, 'readable')
    // The service has stalled when it writes nothing for 100 ms. If a slow machine only looks stalled, the test still passes.
    for (let written = -1; written !== connection.bytesWritten; await sleep(100)) {
      written = connection.bytesWritten
    }
    await eventually(streamSessions, (sessions) => sessions === 1)
    client.destroy()
    await eventually(streamSessions, (sessions) => sessions === 0)
  })

  it('frees its place when the client disconnects before the first byte', async () => {
    const release = await holdTransaction(database, 'lock table api_key in access exclusive mode')
    const responses: ServerResponse[] = []
    const collect = (_: IncomingMessage, response: ServerResponse) => responses.push(response)
    service.app.server.on('request', collect)
    const clients = Array.from({ length: 6 }, () => sendHead(tenant, '1.1'))
    await eventually(
      async () => responses.length,
      (requests) => requests === 6,
    )
    for (const client of clients) client.destroy()
    await eventually(async () => responses.every(({ destroyed }) => destroyed), Boolean)
    service.app.server.off('request', collect)
    await release()
    await eventually(
      async () => (await stream(tenant, 'text/csv')).status,
      (status) => status === 200,
    )
    await eventually(streamSessions, (sessions) => sessions === 0)
  })

  it('is cut off and logged when it fails midway, so that it cannot look complete', async () => {
    const { seen, noted } = await startObserved(database)
    const response = await openStream(seen)
    await load(
      database,
      `select pg_terminate_backend(pid) from pg_stat_activity
        where datname = current_database() and state <> 'idle' and pid <> pg_backend_pid()`,
    )
    const fault = new Promise((resolve) => response.once('error', resolve).once('end', resolve))
    response.resume()
    expect(await fault).toMatchObject({ code: 'ECONNRESET' })
    expect(response.complete).toBe(false)
    const lines = await eventually(
      async () => noted(),
      (sofar) => sofar.some(({ msg }) => msg === 'request'),
    )
    expect(lines).toContainEqual(expect.objectContaining({ msg: 'a stream was cut off', level: 40 }))
    expect(lines).toContainEqual(expect.objectContaining({ msg: 'request', status: 500 }))
  })

  it('returns 400 over HTTP/1.0, where a client cannot tell the end from an interruption', async () => {
    let text = ''
    for await (const chunk of sendHead(tenant, '1.0')) text += chunk
    expect(text).toContain('400 Bad Request')
    expect(text).toContain('needs HTTP/1.1')
  })

  it('returns 503 with Retry-After when four streams are open', async () => {
    const open = await Promise.all(Array.from({ length: 4 }, () => openStream(service)))
    const fifth = await stream(largeTenant, 'text/csv')
    expect(fifth.status).toBe(503)
    expect(fifth.headers.get('retry-after')).toBe('10')
    for (const response of open) response.destroy()
    await eventually(
      async () => (await stream(largeTenant, 'text/csv', '?userId=U1')).status,
      (status) => status === 200,
    )
  })
})
