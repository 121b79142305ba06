/** `oa-audience endpoints`, and what `doctor`, metrics and maintenance make of endpoints. */
import { expect, it } from 'vitest'
import { verifyAccount } from '../../src/accounts/verify.ts'
import { requireAccount } from '../../src/cli/command.ts'
import { ownAddresses } from '../../src/endpoints/address.ts'
import { examineEndpoints, listBacklogs } from '../../src/endpoints/endpoint-health.ts'
import { findEndpoint } from '../../src/endpoints/endpoints.ts'
import { Sender } from '../../src/endpoints/sender.ts'
import { addEndpoint, type NewEndpoint } from '../../src/endpoints/settings.ts'
import { endpointResponded } from '../../src/observability/facts.ts'
import { Metrics } from '../../src/observability/metrics.ts'
import { findFleetAccount } from '../../src/watch/fleet-facts.ts'
import { runCommand } from '../support/command.ts'
import { addTenant, createTestDatabase, openDatabase, type Tenant } from '../support/database.ts'
import { insertRow } from '../support/load.ts'
import { maintain } from '../support/maintenance.ts'
import { startPlatform, verifierOn } from '../support/platform.ts'
import { eventually } from '../support/process.ts'

const URL_OF_TOOL = 'https://chat.example.com/webhooks/line/2000000001'
const SECRET = /^whsec_[A-Za-z0-9+/]{43}=$/

const { database, ...created } = await createTestDatabase()
const env = { ...created.env, PUBLIC_URL: 'https://oa.example.com/audience' }
const tenant = await addTenant(database)

const run = (...args: string[]) => runCommand(['endpoints', ...args], env)

async function json(...args: string[]) {
  const { stdout, stderr, status } = await run(...args, '--json')
  expect(stderr).toBe('')
  expect(status).toBe(0)
  return JSON.parse(stdout)
}

const OWN = ownAddresses('https://oa.example.com/audience', '127.0.0.1', 3000)

/** As the command does, without half a second for a process. */
async function add(to: Tenant, fields: Partial<NewEndpoint> = {}) {
  const defaults = {
    ...{ name: '', format: 'line' as const, events: null, condition: null },
    ...{ replies: false, priority: 0, allowPrivateNetwork: false },
  }
  const endpoint = { accountId: to.accountId, url: URL_OF_TOOL, ...defaults, ...fields }
  const added = await addEndpoint(database, endpoint, OWN)
  return { id: String(added?.id), secret: added?.secret }
}

/** Stores deliveries as a flush does. */
async function addDeliveries(endpointId: string, count: number, columns: Record<string, string> = {}) {
  const names = ['channel_oa_id', 'endpoint_id', 'event_keys', ...Object.keys(columns)]
  const values = ['p.channel_oa_id', 'p.id', 'array[gen_random_uuid()]', ...Object.values(columns)]
  await database.query(
    `insert into endpoint_delivery (${names}) select ${values} from endpoint p, generate_series(1, $2::int) where p.id = $1`,
    [endpointId, count],
  )
}

const addAnswer = (endpointId: string, status: number | null, answer = '') =>
  database.query(
    `insert into endpoint_answer values ($1, now(), $2, $3)
     on conflict (endpoint_id) do update set status = excluded.status, answer = excluded.answer`,
    [endpointId, status, answer],
  )

it('shows neither query strings nor credentials of URLs', async () => {
  const own = await addTenant(database)
  await add(own, { url: 'https://crm.example.com/hook?token=hidden-1' })
  await database.query(
    `insert into endpoint (channel_oa_id, url) values ($1, 'https://user:hidden-2@crm.example.com/hook#hidden-3')`,
    [own.accountId],
  )
  const { stdout } = await run('list', '--account', String(own.accountId))
  expect(stdout).toContain('https://crm.example.com/hook?…')
  expect(stdout).toContain('https://…@crm.example.com/hook#…')
  expect(JSON.stringify(await json('list', '--account', String(own.accountId)))).not.toContain('hidden')
  expect(stdout).not.toContain('hidden')
})

it('endpoints add prints the id, and a secret for the format members alone', async () => {
  const own = await addTenant(database)
  const account = String(own.accountId)
  const given = ['--account', account, '--url', URL_OF_TOOL]
  expect(await json('add', ...given)).toEqual({ id: expect.stringMatching(/^\d+$/), secret: null })
  const asked = ['--format', 'members', '--events', 'member.created, member.erased']
  const members = await json('add', ...given, ...asked)
  expect(members).toEqual({ id: expect.stringMatching(/^\d+$/), secret: expect.stringMatching(SECRET) })
  const listed = await json('list', '--account', account)
  expect(listed[1]).toMatchObject({ format: 'members', events: ['member.created', 'member.erased'] })
  expect(JSON.stringify(listed)).not.toContain('whsec_')
})

it.each<[string, Partial<NewEndpoint>, RegExp]>([
  ['a condition for members', { format: 'members', condition: {} }, /only endpoints of the format line/],
  ['a condition with an unknown field', { condition: { tag: 'vip' } as object }, /invalid/],
  ['its own URL spelled otherwise', { url: 'https://OA.example.com.:443/Audience/%61pi/Line/1' }, /itself/],
  ['its own port', { url: 'http://localhost:3000/api/line/1', allowPrivateNetwork: true }, /itself/],
])('endpoints add refuses %s', async (_, fields, complaint) => {
  const own = await addTenant(database)
  await add(own, { name: 'Bot', replies: true })
  await expect(add(own, fields)).rejects.toThrow(complaint)
})

it('endpoints add accepts another tool on the host of this service', async () => {
  expect((await add(tenant, { url: 'https://oa.example.com/chat' })).secret).toBeNull()
})

it('an endpoint keeps its backlog while it is paused, and up to 10,000 deliveries are due as soon as it is resumed', async () => {
  const { id } = await add(tenant)
  const tried = { attempts: '1', first_attempt_at: `now() - interval '30 hours'` }
  await addDeliveries(id, 2, { ...tried, due_at: `now() + interval '1 hour'` })
  await addDeliveries(id, 9_999, { ...tried, due_at: `now() - interval '1 hour'` })
  expect(await json('pause', id)).toEqual({ id, status: 'paused' })
  expect(await json('resume', id)).toEqual({ id, status: 'active' })
  const due = await database.query(
    `select from endpoint_delivery where endpoint_id = $1 and due_at <= now() and first_attempt_at is null`,
    [id],
  )
  expect(due).toHaveLength(10_000)
})

it('an endpoint keeps the previous secret until its rotation is finished', async () => {
  const first = await add(tenant, { format: 'members' })
  const { id } = first
  const second = await json('rotate', id)
  expect(second).toEqual({ id, secret: expect.stringMatching(SECRET) })
  const secrets = () => database.query('select secret, previous_secret from endpoint where id = $1', [id])
  expect(await secrets()).toEqual([{ secret: second.secret, previous_secret: first.secret }])
  expect(await run('rotate', id)).toMatchObject({
    status: 1,
    stderr: expect.stringContaining(`rotate ${id} --finish`),
  })
  expect(await json('rotate', id, '--finish')).toEqual({ id, status: 'finished' })
  expect(await secrets()).toEqual([{ secret: second.secret, previous_secret: null }])
})

it.each(['--finish', '--discard'])('an endpoint refuses %s without a rotation', async (option) => {
  const { id } = await add(tenant)
  expect((await run('rotate', id, option)).stderr).toBe(
    `oa-audience: endpoint ${id} is not rotating: it has one secret, or none. Nothing was changed.\n`,
  )
  expect((await run('rotate', id)).stderr).toContain('channel secret')
  expect(await run('rotate', '404404', option)).toMatchObject({
    ...{ status: 1, stderr: expect.stringContaining('does not exist') },
  })
})

it('deliveries are listed with their status and last answer, failed ones first, and failed ones can be retried', async () => {
  const { id } = await add(tenant)
  const tried = { attempts: '9', status: '500', answer: `E'first\\nsecond'`, first_attempt_at: 'now()' }
  await addDeliveries(id, 1, { ...tried, leased_until: `now() + interval '1 minute'` })
  await addDeliveries(id, 1, { ...tried, failed_at: 'now()', created_at: `now() - interval '1 day'` })
  const deliveries = await json('deliveries', id)
  expect(deliveries).toMatchObject([
    {
      ...{ status: 'failed', events: 1, attempts: 9, dueAt: null },
      lastStatus: 500,
      lastAnswer: 'first\nsecond',
    },
    { status: 'sending', dueAt: expect.stringMatching(/Z$/), failedAt: null },
  ])
  expect(await json('deliveries', id, '--status', 'failed')).toMatchObject([{ status: 'failed' }])
  expect(await json('deliveries', id, '--status', 'pending')).toMatchObject([{ status: 'sending' }])
  expect(await json('deliveries', id, '--limit', '1')).toMatchObject([{ status: 'failed' }])
  expect((await run('deliveries', id, '--status', 'failed')).stdout).toMatch(/500 first second\n$/)
  expect(await json('retry', id)).toEqual({ id, retried: 1 })
  expect(await json('retry', id)).toEqual({ id, retried: 0 })
  const rows = await database.query(
    `select attempts, first_attempt_at from endpoint_delivery where endpoint_id = $1 and leased_until <= now()`,
    [id],
  )
  expect(rows).toEqual([{ attempts: 1, first_attempt_at: null }])
})

it('deliveries are counted per endpoint up to 10,000', async () => {
  const own = await addTenant(database)
  const { id } = await add(own)
  await addDeliveries(id, 1, {
    created_at: `now() - interval '3 hours'`,
    due_at: `now() - interval '1 hour'`,
  })
  await addDeliveries(id, 10_001)
  await addDeliveries(id, 2, { failed_at: 'now()' })
  await addAnswer(id, null, 'no response: ECONNREFUSED')
  const [endpoint] = await json('list', '--account', String(own.accountId))
  expect(endpoint).toMatchObject({
    pending: 10_000,
    failed: 2,
    lastAnswer: { at: expect.any(String), status: null, text: 'no response: ECONNREFUSED' },
  })
  expect(Math.round(endpoint.oldestPendingSeconds / 60)).toBe(180)
  const { stdout } = await run('list', '--account', String(own.accountId))
  expect(stdout).toMatch(/ 10000\+ +2 +3 h .*no response: ECONNREFUSED/)
})

it('deliveries that failed are deleted after the retention, when the week of their events is dropped', async () => {
  const { id } = await add(tenant)
  await addDeliveries(id, 1, { failed_at: 'now()', created_at: `now() - interval '98 days'` })
  await addDeliveries(id, 1, { failed_at: 'now()', created_at: `now() - interval '96 days'` })
  await addDeliveries(id, 1, { created_at: `now() - interval '98 days'` })
  const left = async (retentionDays: number) => {
    await maintain(database, { retentionDays })
    const rows = await database.query(
      `select failed_at is not null as failed from endpoint_delivery where endpoint_id = $1 order by id`,
      [id],
    )
    return rows.map(({ failed }) => failed)
  }
  expect(await left(0)).toEqual([true, true, false])
  expect(await left(90)).toEqual([true, false])
})

async function findingOf(id: string) {
  const findings = await examineEndpoints(database)
  return findings.filter(({ check }) => check === `endpoint ${id}`)
}

it('the examination of an endpoint states the last status of an endpoint that fails', async () => {
  const { id } = await add(tenant)
  await addDeliveries(id, 2, { created_at: `now() - interval '1 hour'` })
  await addAnswer(id, 502)
  const [finding] = await findingOf(id)
  expect(finding).toMatchObject({ severity: 'error' })
  expect(finding?.message).toMatch(/fails with "502"; pending deliveries: 2, the oldest for 60 min/)
})

it('the examination of an endpoint warns of event types that do not exist, which only other programs can store', async () => {
  const { id } = await add(tenant)
  await database.query(`update endpoint set events = '{message,messages}' where id = $1`, [id])
  const message = expect.stringContaining(
    `event types that do not exist: messages; run oa-audience endpoints update ${id}`,
  )
  expect(await findingOf(id)).toMatchObject([{ severity: 'warning', message }])
  expect((await json('update', id, '--name', 'renamed')).id).toBe(id)
})

it('the examination of an endpoint warns of a paused endpoint with a backlog and says who paused it', async () => {
  const { id } = await add(tenant)
  await addDeliveries(id, 1)
  await addAnswer(id, 410)
  await json('pause', id)
  const message = expect.stringMatching(/paused after the response "410"; pending deliveries: 1,/)
  expect(await findingOf(id)).toMatchObject([{ severity: 'warning', message }])
})

it('the examination of an endpoint warns of an endpoint that falls behind, and of failed deliveries', async () => {
  const { id } = await add(tenant)
  await addDeliveries(id, 1, { due_at: `now() - interval '20 minutes'` })
  await addDeliveries(id, 3, { failed_at: 'now()' })
  await addAnswer(id, 200)
  expect(await findingOf(id)).toMatchObject([
    { severity: 'warning', message: expect.stringContaining('slower than its deliveries arrive') },
    { severity: 'warning', message: expect.stringContaining(`run oa-audience endpoints retry ${id}`) },
  ])
})

it('is not behind with a delivery that it refused, and whose retry is not due', async () => {
  const { id } = await add(tenant)
  await addDeliveries(id, 1, {
    created_at: `now() - interval '3 hours'`,
    due_at: `now() + interval '1 hour'`,
  })
  await addAnswer(id, 200)
  const message = expect.stringMatching(/pending deliveries: 1, the oldest for 3 h$/)
  const findings = await examineEndpoints(database)
  expect(findings.filter(({ check }) => check === `endpoint ${id}`)).toMatchObject([
    { severity: 'ok', message },
  ])
  expect((await findEndpoint(database, null, BigInt(id))).state).toBe('active')
})

it('counts fewer deliveries of each endpoint if many endpoints have some, and says so', async () => {
  const { database: own } = await createTestDatabase()
  const { accountId } = await addTenant(own)
  const addTen = () =>
    own.query(
      `with p as (insert into endpoint (channel_oa_id, url) select $1, $2 from generate_series(1, 10) returning id)
       insert into endpoint_delivery (channel_oa_id, endpoint_id, failed_at)
       select $1, id, case when id % 2 = 0 then now() end from p`,
      [accountId, URL_OF_TOOL],
    )
  const countedMax = async () => (await listBacklogs(own)).map((endpoint) => endpoint.countedMax)
  expect(await countedMax()).toEqual([])
  await addTen()
  expect(await countedMax()).toEqual(Array(10).fill(5_000))
  await addTen()
  expect(await countedMax()).toEqual(Array(20).fill(2_500))
  await own.query('create or replace function counted_per_endpoint() returns int language sql return 2')
  await own.query(
    `insert into endpoint_delivery (channel_oa_id, endpoint_id, failed_at)
     select channel_oa_id, endpoint_id, failed_at from endpoint_delivery, generate_series(1, 2)`,
  )
  const counts = (await listBacklogs(own)).map(({ pending, failed }) => pending + failed)
  expect(counts).toEqual(Array(20).fill(2))
  const findings = (await examineEndpoints(own)).filter(({ message }) => message.includes(': 2+'))
  expect(findings).toHaveLength(20)
  expect(await findFleetAccount(own, null, accountId)).toMatchObject({
    ...{ endpointsPending: 20, endpointsFailed: 20 },
  })
})

it('backlogs are exported by one instance, and by another after its end', async () => {
  const { connection } = await createTestDatabase()
  const [first, second] = [openDatabase(connection), openDatabase(connection)]
  const [one, other] = [first, second].map((instance) => new Sender(instance, () => false)) as [
    Sender,
    Sender,
  ]
  expect([await one.isElected(), await other.isElected(), await one.isElected()]).toEqual([true, false, true])
  await first.close()
  await expect.poll(() => other.isElected()).toBe(true)
})

it('exports the backlog of each endpoint that has one and the outcome of attempts as metrics', async () => {
  const { database: own } = await createTestDatabase()
  const owner = await addTenant(own)
  const addOwn = () => insertRow(own, 'endpoint', { channel_oa_id: owner.accountId, url: URL_OF_TOOL })
  const [endpoint, idle] = [await addOwn(), await addOwn()]
  await own.query(
    `insert into endpoint_delivery (channel_oa_id, endpoint_id, created_at, failed_at)
     select $1, $2, now() - interval '1 hour', failed_at from unnest(array[null, null, now()]) failed_at`,
    [owner.accountId, endpoint],
  )
  const metrics = new Metrics(['line'])
  metrics.watchEndpoints(() => listBacklogs(own))
  endpointResponded.publish({ outcome: 'accepted', sinceCommitMs: 70 })
  endpointResponded.publish({ outcome: 'no_response', sinceCommitMs: 10_000 })
  const text = await eventually(
    () => metrics.registry.metrics(),
    (exported) => exported.includes('oa_audience_endpoint_pending{'),
  )
  for (const line of [
    `oa_audience_endpoint_pending{endpoint="${endpoint}",status="active"} 2`,
    `oa_audience_endpoint_failed{endpoint="${endpoint}",status="active"} 1`,
    'oa_audience_endpoint_attempts_total{outcome="accepted"} 1',
    'oa_audience_endpoint_attempts_total{outcome="no_response"} 1',
    'oa_audience_endpoint_delivery_seconds_bucket{le="0.1"} 1',
  ])
    expect(text).toContain(line)
  expect(text).not.toContain(`endpoint="${idle}"`)
  expect(text).toMatch(/oa_audience_endpoint_oldest_pending_seconds\{endpoint="\d+",status="active"\} 36\d\d/)
  metrics.close()
})

it('a verification is queued once for each endpoint that wants it, with a new change number each time', async () => {
  const platform = await startPlatform()
  const own = await addTenant(database, { channelAccessToken: platform.account.channelAccessToken })
  await add(own)
  await add(own, { format: 'members', events: ['member.created'] })
  const all = await add(own, { format: 'members' })
  const some = await add(own, { format: 'members', events: ['account.verified'] })
  const verifier = { database, ...verifierOn(platform) }
  const verify = async () => {
    await verifyAccount(verifier, await requireAccount(database, own.accountId), {})
    return database.query<{ endpoint_id: bigint; change: bigint }>(
      `select endpoint_id, change from endpoint_delivery where type = 'account.verified' order by endpoint_id`,
    )
  }
  const first = await verify()
  expect(first.map(({ endpoint_id }) => String(endpoint_id))).toEqual([all.id, some.id])
  const second = await verify()
  expect(second).toHaveLength(2)
  expect(second[0]?.change).toBeGreaterThan(first[0]?.change as bigint)
})
