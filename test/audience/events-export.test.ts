/** Exports of an account's events: complete, in order, and without what was erased. */
import { readFileSync, statSync } from 'node:fs'
import { join } from 'node:path'
import { gunzipSync } from 'node:zlib'
import { expect, it } from 'vitest'
import { findExportEnd } from '../../src/audience/export/export-events.ts'
import { unnamed } from '../../src/postgres/statement.ts'
import { lineEvent, messageId, randomUserId, textMessage } from '../../tools/simulator/events.ts'
import { runCommand } from '../support/command.ts'
import { signedIn, startSignedIn } from '../support/console.ts'
import { addTenant, type Tenant } from '../support/database.ts'
import { load } from '../support/load.ts'
import { temporaryDirectory } from '../support/process.ts'
import { setUpService } from '../support/service.ts'

const { database, service, env } = await setUpService()
const { url, operator } = await startSignedIn(database)

const directory = temporaryDirectory()

interface Line {
  id: string
  source: string
  kind: string
  receivedAt: string
  userId: string | null
  // biome-ignore lint/suspicious/noExplicitAny: tests read any payload
  payload: any
}

const linesOf = (text: string): Line[] =>
  text
    .split('\n')
    .filter(Boolean)
    .map((line) => JSON.parse(line))

/** An export ends a minute ago, so the events of a test are made older. */
async function makeOlder({ accountId }: Tenant, by = '1 hour'): Promise<void> {
  for (const table of ['event', 'tracking_event'])
    await load(
      database,
      `update ${table} set received_at = received_at - $2::interval where channel_oa_id = $1`,
      [...[accountId, by]],
    )
}

const DAY_AGO = new Date(Date.now() - 86_400_000).toISOString()

const command = ({ accountId }: Tenant, ...args: string[]) =>
  runCommand(['events', 'export', '--account', String(accountId), ...args], env)

async function exported(tenant: Tenant, ...args: string[]): Promise<Line[]> {
  const { status, stdout, stderr } = await command(tenant, '--from', DAY_AGO, ...args)
  if (status !== 0) throw new Error(stderr)
  return linesOf(stdout)
}

/** Adds events that were received at the given seconds of an hour ago. */
async function addEvents({ accountId }: Tenant, seconds: number[], person = 'U1'): Promise<void> {
  await load(
    database,
    `insert into event (channel_oa_id, source, kind, key, occurred_at, received_at, user_id, payload)
     select $1, 'line', 'message', gen_random_uuid(), now(), date_trunc('hour', now()) - interval '1 hour' + s * interval '1 second',
            $3::text || s, concat('{"s":', s, '}')
       from unnest($2::int[]) with ordinality as t (s, i) order by i`,
    [accountId, seconds, person],
  )
}

it('an export of events contains every event of the account once, in the order of receipt, as it was received', async () => {
  const tenant = await addTenant(database)
  const other = await addTenant(database)
  const userId = randomUserId()
  const strange = String.raw`{"type":"message", "mode":"active","timestamp":1764000000000,
      "webhookEventId":"01KAQ0000000000000000000ZZ","source":{"type":"user","userId":"${userId}"},"text":"\u0000 \ud800 ก \u2028"}`
  await service.deliverRaw(tenant, `{"destination":"${tenant.botUserId}","events":[${strange}]}`)
  await service.deliver(tenant, [lineEvent('follow', userId), textMessage(userId, 'hello')])
  const conversation = { id: 1, status: 'open', channel: 'Channel::Line' }
  await service.chat(tenant, { event: 'conversation_created', ...conversation })
  await service.track(tenant, [{ type: 'page', userId, messageId: 'T1' }])
  await service.deliver(tenant, [lineEvent('botSuspended', null)])
  await service.deliver(other, [lineEvent('follow', userId)])
  await makeOlder(tenant)
  await makeOlder(other)

  const lines = await exported(tenant)
  expect(lines.map(({ source, kind }) => `${source} ${kind}`)).toEqual([
    ...['line message', 'line follow', 'line message', 'mbox conversation_created'],
    ...['tracking page', 'line botSuspended'],
  ])
  expect(lines[0]?.payload).toEqual(JSON.parse(strange))
  expect(lines.map((line) => line.userId)).toEqual([userId, userId, userId, null, userId, null])
  expect(lines[2]?.payload.message.text).toBe('hello')
  const stored = await load<{ id: bigint; at: string }>(
    database,
    `select id, to_char(received_at, 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as at from stored_event
      where channel_oa_id = $1 order by stored_event.received_at, id`,
    [tenant.accountId],
  )
  expect(lines.map(({ id, receivedAt }) => [id, receivedAt])).toEqual(
    stored.map(({ id, at }) => [String(id), at]),
  )
})

it('an export of events contains events from the beginning of its range until before its end, in any zone', async () => {
  const tenant = await addTenant(database)
  await load(
    database,
    `insert into event (channel_oa_id, source, kind, key, occurred_at, received_at, payload)
     select $1, 'line', 'message', gen_random_uuid(), now(), t::timestamptz, null
       from unnest(array['2026-01-31T23:59:59.999999Z', '2026-02-01T00:00:00Z', '2026-02-01T17:00:00Z', '2026-02-02T00:00:00Z']) t`,
    [tenant.accountId],
  )
  const received = async (...range: string[]) => {
    const { stdout } = await command(tenant, ...range)
    return linesOf(stdout).map(({ receivedAt }) => receivedAt)
  }
  const [, first, second] = await received('--from', '2026-01-31')
  expect(await received('--from', '2026-02-01', '--to', '2026-02-02')).toEqual([first, second])
  expect(await received('--from', '2026-02-02T00:00+07:00', '--to', '2026-02-02T00:00:00.000Z')).toEqual([
    second,
  ])
  expect(await received('--from', '2026-02-01', '--to', '2026-02-01')).toEqual([])
})

it.each([
  [['--from', 'yesterday'], '--from must be a time'],
  [['--from', '2026-01-02', '--to', '2026-01-01'], '--to must not be before the beginning'],
])('an export of events refuses %j', async (args, message) => {
  const tenant = await addTenant(database)
  const { status, stderr } = await command(tenant, ...args)
  expect([status, stderr]).toEqual([1, expect.stringContaining(message)])
})

it('an export of events contains no content and no user id of erased people, and no unsent message', async () => {
  const tenant = await addTenant(database)
  const [erased, kept] = [randomUserId(), randomUserId()]
  const unsent = messageId()
  await service.deliver(tenant, [
    textMessage(erased, 'erased text'),
    lineEvent('memberJoined', kept, {
      source: { type: 'group', groupId: 'C1', userId: kept },
      joined: { members: [{ type: 'user', userId: erased }] },
    }),
    { ...lineEvent('message', kept), message: { type: 'text', id: unsent, text: 'unsent text' } },
    lineEvent('unsend', kept, { unsend: { messageId: unsent } }),
  ])
  await service.track(tenant, [{ type: 'page', userId: erased, messageId: 'T1' }])
  await service.eraseUser(tenant, erased)
  await makeOlder(tenant)
  const lines = await exported(tenant)
  expect(JSON.stringify(lines)).not.toMatch(new RegExp(`${erased}|erased text|unsent text`))
  expect(lines.map(({ kind, userId, payload }) => [kind, userId, payload !== null])).toEqual([
    ['message', null, false],
    ['memberJoined', kept, false],
    ['message', kept, false],
    ['unsend', kept, true],
  ])
})

it('the end of an export is before every transaction that may still store an event', async () => {
  const now = async () =>
    (await load<{ us: bigint }>(database, `select (extract(epoch from now()) * 1000000)::bigint as us`))[0]
      ?.us ?? 0n
  const tenant = await addTenant(database)
  await database.session(async (session) => {
    await session.query(unnamed('begin'))
    await session.query(
      unnamed(`insert into event (channel_oa_id, source, kind, key, occurred_at)
               values (${tenant.accountId}, 'line', 'message', gen_random_uuid(), now())`),
    )
    const [begun] = await session.query<{ us: bigint }>(
      unnamed('select (extract(epoch from now()) * 1000000)::bigint as us'),
    )
    expect(await findExportEnd(database, 0)).toBeLessThanOrEqual(begun?.us as bigint)
    await session.query(unnamed('commit'))
    const committedUs = await now()
    expect(await findExportEnd(database, 0)).toBeGreaterThanOrEqual((committedUs / 1000n) * 1000n)
  })
  expect(await findExportEnd(database)).toBeLessThanOrEqual((await now()) - 59_000_000n)
})

it('an export that begins at the end of the one before it continues it, and replaces its file', async () => {
  const tenant = await addTenant(database)
  await addEvents(tenant, [1, 1, 2, 3])
  const whole = await exported(tenant)
  for (const name of ['events.ndjson', 'events.ndjson.gz']) {
    const file = join(directory, name)
    const read = () =>
      linesOf(String(name.endsWith('.gz') ? gunzipSync(readFileSync(file)) : readFileSync(file)))
    const end = ['--to', String(whole[2]?.receivedAt)]
    const first = await command(tenant, '--from', DAY_AGO, ...end, '--output', file, '--json')
    const { events, to } = JSON.parse(first.stdout)
    expect({ events, to }).toEqual({ events: 2, to: whole[2]?.receivedAt })
    expect(statSync(file).mode & 0o777).toBe(0o600)
    expect(read()).toEqual(whole.slice(0, 2))
    await command(tenant, '--from', to, '--output', file)
    expect(read()).toEqual(whole.slice(2))
  }
})

it("the console's export of events contains the same lines, and needs a valid range", async () => {
  const tenant = await addTenant(database)
  await addEvents(
    tenant,
    Array.from({ length: 2_100 }, (_, i) => i % 60),
  )
  const path = `/api/accounts/${tenant.accountId}/events/export`
  const whole = await operator.get(`${path}?from=${DAY_AGO}`)
  expect([whole.status, whole.headers.get('content-disposition')]).toEqual([
    ...[200, `attachment; filename="events-${tenant.accountId}.ndjson"`],
  ])
  const lines = linesOf(whole.text)
  expect(lines).toHaveLength(2_100)
  expect(lines).toEqual(await exported(tenant))
  for (const query of ['', '?from=x', '?from=2026-01-01&limit=1'])
    expect((await operator.get(path + query)).status, query).toBe(400)
  expect((await operator.get('/api/accounts/99/events/export?from=2026-01-01')).status).toBe(404)
})

it("the console's export of events is recorded only if it begins, and a refusal is no file", async () => {
  const tenant = await addTenant(database)
  await load(
    database,
    `insert into event (channel_oa_id, source, kind, key, occurred_at, received_at, payload)
     select $1, 'line', 'message', gen_random_uuid(), now(), now() - interval '1 hour',
            concat('{"text":"', repeat('x', 1000000), '"}')
       from generate_series(1, 30)`,
    [tenant.accountId],
  )
  const path = `/api/accounts/${tenant.accountId}/events/export?from=${DAY_AGO}`
  const second = await signedIn(url)
  const open = await fetch(url + path, { headers: { cookie: second.cookie } })
  const refused = await second.get(path)
  expect([refused.status, refused.text]).toEqual([429, expect.stringContaining('Another stream')])
  await open.arrayBuffer()
  expect(refused.headers.get('content-disposition')).toBeNull()
  const rows = await load(database, 'select action from activity where channel_oa_id = $1', [
    tenant.accountId,
  ])
  expect(rows).toEqual([{ action: 'events.exported' }])
})
