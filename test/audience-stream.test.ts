/** CONTRACT: GET /api/audience as a stream, and the same at the command line. */

import { mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { request } from 'node:http'
import { connect } from 'node:net'
import { join } from 'node:path'
import { parse } from 'csv-parse/sync'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import type { PostgresDatabase } from '../src/postgres/postgres-database.ts'
import { lineEvent, randomUserId } from '../tools/simulator/events.ts'
import { addTenant, createTestDatabase, type Tenant, urlOf } from './support/database.ts'
import { eventually, runCommandAsync, temporaryDirectory } from './support/process.ts'
import { type Service, startApp, startObserved } from './support/service.ts'

let database: PostgresDatabase
let env: Record<string, string>
let service: Service

beforeAll(async () => {
  const created = await createTestDatabase()
  database = created.database
  env = { DATABASE_URL: urlOf(created.connection) }
  service = await startApp(database)
})
afterAll(async () => {
  service.app.server.closeAllConnections()
  await service.app.close()
  await database.close()
})

const stream = (who: Tenant, accept: string, query = '') =>
  service.call('GET', `/api/audience${query}`, { headers: { ...who.headers, accept } })

async function addMany(who: Tenant, count: number): Promise<void> {
  await database.query(
    `insert into audience_member (channel_oa_id, organization_id, user_id, display_name, attributes)
     select $1, $2, 'U' || i, 'name ' || i, jsonb_build_object('pad', repeat('x', 100)) from generate_series(1, $3) i`,
    [who.accountId, who.organizationId, count],
  )
}

const streamSessions = async () => {
  const [row] = await database.query<{ count: number }>(
    `select count(*)::int as count from pg_stat_activity
      where datname = current_database() and query like '%concat(%' and state <> 'idle' and pid <> pg_backend_pid()`,
  )
  return row?.count ?? 0
}

describe('a stream', () => {
  it('of NDJSON has each member as a page has it, one a line', async () => {
    const who = await addTenant(database)
    await addMany(who, 2500)
    const answer = await stream(who, 'application/x-ndjson')
    expect(answer.status).toBe(200)
    expect(answer.headers.get('content-type')).toBe('application/x-ndjson; charset=utf-8')
    expect(answer.text.endsWith('\n')).toBe(true)
    const lines = answer.text
      .trimEnd()
      .split('\n')
      .map((line) => JSON.parse(line))
    expect(lines).toEqual(await service.members(who))
  })

  it('of CSV is RFC 4180 with a header, and no cell is a formula', async () => {
    const who = await addTenant(database)
    const names = [
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
    await database.query(
      `insert into audience_member (channel_oa_id, organization_id, user_id, display_name, external_id, attributes, tags)
       select $1, $2, 'U' || no, name, '=' || no, '{"a": "x,\\"y\\""}', '{a,"b,c"}'
         from unnest($3::text[]) with ordinality as list (name, no)`,
      [who.accountId, who.organizationId, names],
    )
    const answer = await stream(who, 'text/csv')
    expect(answer.headers.get('content-type')).toBe('text/csv; charset=utf-8')
    expect(answer.text.replaceAll(/"(?:[^"]|"")*"/g, '')).toMatch(/^([^\r\n]*\r\n)+$/)
    const rows: Array<Record<string, string>> = parse(answer.text, {
      columns: true,
      record_delimiter: '\r\n',
    })
    expect(rows.map(({ displayName }) => displayName)).toEqual(
      names.map((name) => (/^['=+\-@＝\t]/.test(name ?? '') ? `'${name}` : (name ?? ''))),
    )
    expect(rows[0]).toMatchObject({
      userId: 'U1',
      externalId: "'=1",
      tags: '["a","b,c"]',
      attributes: '{"a": "x,"y""}'.replace('x,"y"', 'x,\\"y\\"'),
      relationship: 'unknown',
      followedAt: '',
      version: '1',
      deletedAt: '',
    })
  })

  it('takes all filters, names erased members in a delta feed, and refuses limit and cursor', async () => {
    const who = await addTenant(database)
    const [stays, goes] = [randomUserId(), randomUserId()]
    for (const userId of [stays, goes]) await service.deliver(who, [lineEvent('follow', userId)])
    const gone = await service.member(who, goes)
    await service.call('DELETE', `/api/audience/${gone?.id}`, { headers: who.headers })
    const ndjson = await stream(who, 'application/x-ndjson', '?updatedSince=2020-01-01T00:00:00Z')
    const lines = ndjson.text
      .trimEnd()
      .split('\n')
      .map((line) => JSON.parse(line))
    expect(lines).toMatchObject([{ userId: stays }, { id: gone?.id, deletedAt: expect.any(String) }])
    const csv = await stream(who, 'text/csv', '?updatedSince=2020-01-01T00:00:00Z')
    const rows: Array<Record<string, string>> = parse(csv.text, { columns: true })
    expect(rows[1]).toMatchObject({ id: gone?.id, userId: '', deletedAt: lines[1].deletedAt })
    expect((await stream(who, 'text/csv', '?relationship=blocked')).text.split('\r\n')).toHaveLength(2)
    for (const query of ['?limit=5', '?cursor=x', '?relationship=friend']) {
      expect((await stream(who, 'text/csv', query)).status, query).toBe(400)
    }
  })

  it('is chosen by the weights of Accept; a page is what all others get', async () => {
    const who = await addTenant(database)
    await addMany(who, 1)
    for (const [accept, type] of [
      ['text/csv;q=0.5, application/x-ndjson', 'application/x-ndjson'],
      ['application/x-ndjson;q=0.1, text/csv;q=0.9', 'text/csv'],
      ['application/json, text/csv;q=0.9', 'application/json'],
      ['*/*', 'application/json'],
      ['text/csv;q=0', 'application/json'],
      ['text/html', 'application/json'],
    ] as const) {
      expect((await stream(who, accept)).headers.get('content-type'), accept).toContain(type)
    }
  })

  it('of a key without a scope is null, like a page', async () => {
    const who = await addTenant(database)
    await database.query(`update api_key set status = 'revoked' where id = $1`, [who.keyId])
    expect((await stream(who, 'text/csv')).text).toBe('null')
  })

  it('shows one moment: what changes meanwhile is not in it', async () => {
    const who = await addTenant(database)
    await addMany(who, 20_000)
    const text = await new Promise<string>((resolve, reject) => {
      const headers = { ...who.headers, accept: 'application/x-ndjson' }
      request(`${service.url}/api/audience`, { headers, agent: false }, (response) => {
        let received = ''
        response.once('data', () => {
          response.pause()
          void database
            .query(`update audience_member set display_name = 'changed' where channel_oa_id = $1`, [
              who.accountId,
            ])
            .then(() => response.resume())
        })
        response.on('data', (chunk: Buffer) => {
          received += chunk.toString()
        })
        response.once('end', () => resolve(received))
      })
        .once('error', reject)
        .end()
    })
    expect(text.split('\n')).toHaveLength(20_001)
    expect(text).not.toContain('changed')
  })

  it('waits for a slow client, and frees the database the moment the client goes away', async () => {
    const who = await addTenant(database)
    await addMany(who, 60_000)
    const socket = connect(Number(new URL(service.url).port), '127.0.0.1')
    const headers = Object.entries(who.headers).map(([name, value]) => `${name}: ${value}\r\n`)
    socket.write(`GET /api/audience HTTP/1.1\r\nhost: x\r\naccept: text/csv\r\n${headers.join('')}\r\n`)
    await new Promise((resolve) => socket.once('readable', resolve))
    await new Promise((resolve) => setTimeout(resolve, 300))
    expect(await streamSessions()).toBe(1)
    socket.destroy()
    await eventually(streamSessions, (count) => count === 0)
  })

  it('frees its place though the client left before it began', async () => {
    const who = await addTenant(database)
    await addMany(who, 10)
    let release = () => {}
    const locked = database.transaction(async (transaction) => {
      await transaction.query('lock table api_key in access exclusive mode')
      await new Promise<void>((resolve) => {
        release = resolve
      })
    })
    await new Promise((resolve) => setTimeout(resolve, 100))
    for (let i = 0; i < 6; i += 1) {
      const gone = new AbortController()
      fetch(`${service.url}/api/audience`, {
        headers: { ...who.headers, accept: 'text/csv' },
        signal: gone.signal,
      }).catch(() => undefined)
      setTimeout(() => gone.abort(), 100)
    }
    await new Promise((resolve) => setTimeout(resolve, 200))
    release()
    await locked
    await eventually(
      async () => (await stream(who, 'text/csv')).status,
      (status) => status === 200,
    )
    await eventually(streamSessions, (count) => count === 0)
  })

  it('that fails midway is cut off, so that it cannot look complete, and the log says why', async () => {
    const who = await addTenant(database)
    await addMany(who, 60_000)
    const { seen, noted } = await startObserved(database)
    const outcome = await new Promise<{ complete: boolean; error: string }>((resolve, reject) => {
      const headers = { ...who.headers, accept: 'application/x-ndjson' }
      request(`${seen.url}/api/audience`, { headers, agent: false }, (response) => {
        response.once('data', () => {
          response.pause()
          void database
            .query(
              `select pg_terminate_backend(pid) from pg_stat_activity
                where datname = current_database() and state <> 'idle' and pid <> pg_backend_pid()`,
            )
            .then(() => response.resume())
        })
        response.once('error', (error: Error & { code?: string }) =>
          resolve({ complete: response.complete, error: error.code ?? '' }),
        )
        response.once('end', () => resolve({ complete: response.complete, error: '' }))
      })
        .once('error', reject)
        .end()
    })
    expect(outcome).toEqual({ complete: false, error: 'ECONNRESET' })
    const told = await eventually(
      async () => noted(),
      (lines) => lines.some(({ msg }) => msg === 'request'),
    )
    expect(told).toContainEqual(expect.objectContaining({ msg: 'a stream was cut off', level: 40 }))
    expect(told).toContainEqual(expect.objectContaining({ msg: 'request', status: 500 }))
  })

  it('over HTTP/1.0, where an end cannot be told from an interruption, is refused: 400', async () => {
    const who = await addTenant(database)
    const socket = connect(Number(new URL(service.url).port), '127.0.0.1')
    const headers = Object.entries(who.headers).map(([name, value]) => `${name}: ${value}\r\n`)
    socket.write(`GET /api/audience HTTP/1.0\r\naccept: text/csv\r\n${headers.join('')}\r\n`)
    let text = ''
    for await (const chunk of socket) text += chunk
    expect(text).toContain('400 Bad Request')
    expect(text).toContain('needs HTTP/1.1')
  })

  it('is one of four at once; the fifth is told to come back', async () => {
    const who = await addTenant(database)
    await addMany(who, 60_000)
    const open = await Promise.all(
      Array.from({ length: 4 }, async () => {
        const gone = new AbortController()
        const response = await fetch(`${service.url}/api/audience`, {
          headers: { ...who.headers, accept: 'text/csv' },
          signal: gone.signal,
        })
        return { gone, response }
      }),
    )
    const fifth = await stream(who, 'text/csv')
    expect(fifth.status).toBe(503)
    expect(fifth.headers.get('retry-after')).toBe('10')
    for (const { gone } of open) gone.abort()
    await eventually(
      async () => (await stream(who, 'text/csv', '?userId=U1')).status,
      (status) => status === 200,
    )
  })
})

describe('at the command line', () => {
  it('an export holds everybody, and an import of it changes nothing', async () => {
    const who = await addTenant(database)
    await addMany(who, 1200)
    await database.query(
      `update audience_member set external_id = '-' || id, attributes = '{"note": "a \\"b\\""}' where channel_oa_id = $1`,
      [who.accountId],
    )
    const members = await service.members(who)
    const account = String(who.accountId)
    for (const format of ['ndjson', 'csv']) {
      const file = join(temporaryDirectory(), `audience.${format}`)
      const exported = await runCommandAsync(
        ['audience', 'export', '--account', account, '--format', format, '--output', file, '--json'],
        env,
      )
      expect(JSON.parse(exported.stdout)).toEqual({ members: 1200 })
      expect(exported.stderr).toContain('100 %')
      const imported = await runCommandAsync(
        ['audience', 'import', '--account', account, file, '--json'],
        env,
      )
      expect(imported.stderr).not.toContain('line ')
      expect(JSON.parse(imported.stdout)).toEqual({ changed: 1200, refused: 0 })
      expect(await service.members(who)).toEqual(members)
    }
    const piped = await runCommandAsync(['audience', 'export', '--account', account, '--q', 'name 77'], env)
    expect(
      piped.stdout
        .trimEnd()
        .split('\n')
        .map((line) => JSON.parse(line).userId),
    ).toContain('U77')
  })

  it('an export that cannot be written says so', async () => {
    const who = await addTenant(database)
    await addMany(who, 3)
    const to = (output: string) =>
      runCommandAsync(['audience', 'export', '--account', String(who.accountId), '--output', output], env)
    expect(await to('/nowhere/at/all')).toMatchObject({
      status: 1,
      stderr: expect.stringContaining('/nowhere/at/all cannot be written (ENOENT)'),
    })
    if (process.platform === 'linux') {
      expect(await to('/dev/full')).toMatchObject({
        status: 1,
        stderr: expect.stringContaining('cannot be written (ENOSPC)'),
      })
    }
  })

  it('an import follows the order of its lines', async () => {
    const who = await addTenant(database)
    await addMany(who, 2)
    const file = join(temporaryDirectory(), 'moved.ndjson')
    const lines = Array.from({ length: 200 }, (_, i) => {
      const [holder, other] = i % 2 === 0 ? ['U1', 'U2'] : ['U2', 'U1']
      return `{"userId":"${other}","externalId":null}\n{"userId":"${holder}","externalId":"moving","tags":["${i}"]}`
    })
    writeFileSync(file, lines.join('\n'))
    const { stdout } = await runCommandAsync(
      ['audience', 'import', '--account', String(who.accountId), file, '--json'],
      env,
    )
    expect(JSON.parse(stdout)).toEqual({ changed: 400, refused: 0 })
    expect(await service.member(who, 'U2')).toMatchObject({ externalId: 'moving', tags: ['199'] })
  })

  it('an import sets what each line says, and tells which lines it could not use', async () => {
    const who = await addTenant(database)
    await addMany(who, 3)
    const [, second] = await service.members(who)
    const file = join(temporaryDirectory(), 'crm.ndjson')
    writeFileSync(
      file,
      [
        '{"userId":"U1","externalId":"c-1","tags":["vip"],"attributes":{"cups":3}}',
        `{"id":"${second?.id}","tags":null}`,
        '',
        '{"userId":"U404","tags":["x"]}',
        '{"userId":"U3","externalId":"c-1"}',
        '{"userId":"U3","tags":"x"}',
        '{"tags":["x"]}',
        'no json',
        '7',
      ].join('\n'),
    )
    const { stdout, stderr, status } = await runCommandAsync(
      ['audience', 'import', '--account', String(who.accountId), file, '--json'],
      env,
    )
    expect(status).toBe(1)
    expect(JSON.parse(stdout)).toEqual({ changed: 2, refused: 6 })
    for (const line of [4, 5, 6, 7, 8, 9]) expect(stderr).toContain(`line ${line}: `)
    expect(await service.member(who, 'U1')).toMatchObject({
      externalId: 'c-1',
      tags: ['vip'],
      attributes: { cups: 3 },
    })
    expect((await service.member(who, 'U2'))?.tags).toEqual([])
    for (const [name, content, complaint] of [
      ['zero.ndjson', '{"userId":"a\\u0000b","tags":[]}\n{"userId":"U1","tags":["y"]}', 'line 1: '],
      ['quote.csv', 'userId,tags\nU1,"a"b"\n', 'cannot be read'],
    ] as const) {
      const path = join(temporaryDirectory(), name)
      writeFileSync(path, content)
      const spoiled = await runCommandAsync(
        ['audience', 'import', '--account', String(who.accountId), path],
        env,
      )
      expect(spoiled).toMatchObject({ status: 1, stderr: expect.stringContaining(complaint) })
      expect(spoiled.stderr).not.toMatch(/^ +at /m)
    }
    const [, , third] = await service.members(who)
    for (const [name, content, result, complaint] of [
      [
        'other-ids.csv',
        `id,userId,tags\n${third?.id},U1,"[""wrong""]"\n`,
        { changed: 0, refused: 1 },
        'its id is not',
      ],
      [
        'latin.ndjson',
        Buffer.from('{"userId":"U1","tags":["caf\xe9"]}', 'latin1'),
        null,
        'it is not in UTF-8',
      ],
      [
        'late-quote.csv',
        `userId,attributes\n${`U1,"{""note"":""${'x'.repeat(2000)}""}"\n`.repeat(400)}U1,"a"b"\n`,
        { changed: expect.any(Number), refused: 0 },
        /nothing after line \d+ was imported: .*quote/i,
      ],
      [
        'rounded.ndjson',
        '{"id":9007199254740993,"tags":["wrong"]}',
        { changed: 0, refused: 1 },
        'write it as text',
      ],
      ['number.ndjson', `{"id":${third?.id},"tags":["numbered"]}`, { changed: 1, refused: 0 }, ''],
    ] as const) {
      const path = join(temporaryDirectory(), name)
      writeFileSync(path, content)
      const done = await runCommandAsync(
        ['audience', 'import', '--account', String(who.accountId), path, '--json'],
        env,
      )
      expect(done.stderr).toMatch(complaint)
      if (result !== null) expect(JSON.parse(done.stdout)).toEqual(result)
    }
    expect((await service.member(who, 'U3'))?.tags).toEqual(['numbered'])
    const directory = `${temporaryDirectory()}/directory.csv`
    mkdirSync(directory)
    const noFile = await runCommandAsync(
      ['audience', 'import', '--account', String(who.accountId), directory],
      env,
    )
    expect(noFile).toMatchObject({ status: 1, stderr: expect.stringContaining('cannot be read (EISDIR)') })
    const missing = await runCommandAsync(
      ['audience', 'import', '--account', String(who.accountId), '/no'],
      env,
    )
    expect(missing).toMatchObject({
      status: 1,
      stderr: expect.stringContaining('/no cannot be read (ENOENT)'),
    })
    expect(readFileSync(file, 'utf8')).toContain('U404')
  })
})
