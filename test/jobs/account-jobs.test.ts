/** Changes of many accounts at once, as one job with a result for each account. */

import { expect, it } from 'vitest'
import { addOrganization } from '../../src/accounts/provisioning.ts'
import { ROWS_PER_STATEMENT } from '../../src/endpoints/manage.ts'
import { ACCOUNTS_MAX } from '../../src/jobs/job-accounts.ts'
import type { Role } from '../../src/operators/actor.ts'
import { confirmStatuses } from '../../src/watch/store-statuses.ts'
import { runCommand } from '../support/command.ts'
import { addSignedIn, type Operator, startSignedIn } from '../support/console.ts'
import { addTenant, createTestDatabase, type Tenant } from '../support/database.ts'
import { endJobsAfterEach, finishJobs, takeShortTurn } from '../support/jobs.ts'
import { load } from '../support/load.ts'
import { startPlatform, verifierOn } from '../support/platform.ts'

const { database, env } = await createTestDatabase()
const { url, operator } = await startSignedIn(database)

endJobsAfterEach(database)

const DAY_MS = 86_400_000
const until = new Date(Date.now() + DAY_MS).toISOString()
const MUTE = { until, reason: 'a planned change' }
const ENDPOINT = { url: 'https://tool.example/hook?token=hidden' }

const idsOf = (tenants: Tenant[]) => tenants.map(({ accountId }) => String(accountId))

/** Accounts of one organization without a channel secret, so they are broken. */
async function addBroken(count: number): Promise<Tenant[]> {
  const organizationId = await addOrganization(database, 'test')
  const tenants: Tenant[] = []
  while (tenants.length < count)
    tenants.push(await addTenant(database, { organizationId, channelSecret: ' ' }))
  await confirmStatuses(database)
  return tenants
}

const operatorOf = ({ organizationId }: Tenant, role: Role = 'manager') =>
  addSignedIn({ url, database }, { role, organizationIds: [organizationId] })

async function start(change: string, body: object, by: Operator = operator) {
  const { status, json } = await by.post(`/api/jobs/${change}`, body)
  expect([status, json.message]).toEqual([202, undefined])
  return json.job as { id: string; total: string }
}

/** Starts a change, finishes it, and returns its counts, and the outcome and the sentence of each account. */
async function finish(change: string, body: object, by: Operator = operator) {
  const job = await start(change, body, by)
  await finishJobs(database)
  return { ...(await resultsOf(job, by)), id: job.id }
}

async function resultsOf({ id }: { id: string }, by: Operator = operator) {
  const { job } = (await by.get(`/api/jobs/${id}`)).json
  const { results } = (await by.get(`/api/jobs/${id}/results`)).json
  const outcomes: Record<string, [string, string | null]> = {}
  for (const { id: account, outcome, message } of results) outcomes[account] = [outcome, message]
  return { job, outcomes }
}

const activityOf = (tenants: Tenant[]) =>
  database.query(
    `select action, channel_oa_id::text as account from activity where channel_oa_id = any ($1) order by id`,
    [idsOf(tenants)],
  )

const endpointsOf = (tenants: Tenant[]) =>
  database.query(
    'select channel_oa_id::text as account, url from endpoint where channel_oa_id = any ($1) order by 1',
    [idsOf(tenants)],
  )

it('a change of many accounts mutes chosen accounts, and says what became of each', async () => {
  const broken = await addBroken(2)
  const muted = await addBroken(1)
  await finish('mute-accounts', { accounts: idsOf(muted), ...MUTE })
  const healthy = await addTenant(database)
  await database.query(`update account_check set status = 'ok', problems = '[]' where channel_oa_id = $1`, [
    healthy.accountId,
  ])
  const all = [...broken, ...muted, healthy]
  const { job, outcomes, id } = await finish('mute-accounts', { accounts: idsOf(all), ...MUTE })
  const [a, b, c, d] = idsOf(all) as [string, string, string, string]
  expect(job).toMatchObject({
    ...{ kind: 'accounts.change', status: 'done', done: '4', total: '4' },
    tally: { changed: 2, unchanged: 1, refused: 1 },
    parameters: { change: 'mute', until, reason: MUTE.reason },
  })
  expect(outcomes).toEqual({
    [a]: ['changed', null],
    [b]: ['changed', null],
    [c]: ['unchanged', null],
    [d]: ['refused', `account ${d} has no problem that could be muted.`],
  })
  expect(await activityOf(all)).toEqual([c, a, b].map((account) => ({ action: 'account.muted', account })))
  const started = await database.query(
    `select object_id, changes from activity where action = 'job.started' order by id desc limit 1`,
  )
  expect(started).toEqual([
    {
      object_id: id,
      changes: { kind: 'accounts.change', change: 'mute', accounts: 4, until, reason: MUTE.reason },
    },
  ])
  const refused = (await operator.get(`/api/jobs/${id}/results?outcome=refused`)).json.results
  expect(refused).toMatchObject([{ id: d, outcome: 'refused' }])
  const shown = (await runCommand(['jobs', 'show', id], env)).stdout
  expect(shown).toContain(`account ${d} has no problem that could be muted.`)
  const fleet = (await operator.get('/api/fleet')).json.fleet as Array<{ id: string; problem: object }>
  expect(fleet.find((account) => account.id === a)?.problem).toMatchObject({ muted: MUTE })
})

it('a change of many accounts adds an endpoint to each account, unless it has the same or too many', async () => {
  const [a, b, full] = (await addBroken(3)) as [Tenant, Tenant, Tenant]
  await finish('add-endpoints', { accounts: idsOf([a]), ...ENDPOINT })
  await database.query(
    `insert into endpoint (channel_oa_id, url, format) select $1, 'https://other.example/', 'line' from generate_series(1, 20)`,
    [full.accountId],
  )
  const { job, outcomes } = await finish('add-endpoints', { accounts: idsOf([a, b, full]), ...ENDPOINT })
  expect(outcomes).toEqual({
    [String(a.accountId)]: ['unchanged', null],
    [String(b.accountId)]: ['changed', null],
    [String(full.accountId)]: ['refused', expect.stringContaining('already has 20 endpoints')],
  })
  expect(await endpointsOf([a, b])).toEqual(idsOf([a, b]).map((account) => ({ account, url: ENDPOINT.url })))
  expect(await activityOf([b])).toEqual([{ action: 'endpoint.added', account: String(b.accountId) }])
  // Neither the job nor the activity log shows the token of a URL.
  expect(JSON.stringify(job)).not.toContain('hidden')
  const stored = await database.query(
    `select parameters::text as text from job union all select changes::text from activity`,
  )
  expect(JSON.stringify(stored)).not.toContain('hidden')
})

const HOOK = 'https://tool.example/hook'

const change = (tenants: Tenant[], action: string, url?: string, by?: Operator) =>
  finish('change-endpoints', { accounts: idsOf(tenants), endpoint: HOOK, action, url }, by)

it('a change of many accounts pauses, resumes, moves and removes the endpoints of a URL, and no others', async () => {
  const [a, b, other] = (await addBroken(3)) as [Tenant, Tenant, Tenant]
  const all = [a, b, other]
  await finish('add-endpoints', { accounts: idsOf([a, b]), url: HOOK })
  await finish('add-endpoints', { accounts: idsOf(all), url: 'https://other.example/' })
  const outcomesOf = async (action: string, url?: string) => {
    const { outcomes } = await change(all, action, url)
    return idsOf(all).map((id) => outcomes[id]?.[0])
  }
  const statuses = () =>
    database.query<{ status: string }>(
      'select status from endpoint where channel_oa_id = any ($1) order by url, id',
      [idsOf(all)],
    )
  const wanted = (hook: string) => ['active', 'active', 'active', hook, hook].map((status) => ({ status }))

  expect(await outcomesOf('pause')).toEqual(['changed', 'changed', 'unchanged'])
  expect(await statuses()).toEqual(wanted('paused'))
  expect(await outcomesOf('pause')).toEqual(['unchanged', 'unchanged', 'unchanged'])
  expect(await outcomesOf('resume')).toEqual(['changed', 'changed', 'unchanged'])
  expect(await statuses()).toEqual(wanted('active'))
  expect(await outcomesOf('move', 'https://new.example/hook')).toEqual(['changed', 'changed', 'unchanged'])
  expect(await outcomesOf('remove')).toEqual(['unchanged', 'unchanged', 'unchanged'])
  expect((await endpointsOf([a])).map(({ url: each }) => each)).toContain('https://new.example/hook')
  await finish('change-endpoints', {
    ...{ accounts: idsOf(all), action: 'remove', endpoint: 'https://other.example/' },
  })
  expect(await endpointsOf(all)).toEqual(
    idsOf([a, b]).map((account) => ({ account, url: 'https://new.example/hook' })),
  )
  expect((await activityOf([a])).map(({ action }) => action)).toEqual([
    ...['endpoint.added', 'endpoint.added', 'endpoint.paused', 'endpoint.resumed'],
    ...['endpoint.updated', 'endpoint.removed'],
  ])
})

it('a change of many accounts moves no endpoint in the private network for operators of some organizations', async () => {
  const [a] = (await addBroken(1)) as [Tenant]
  await finish('add-endpoints', { accounts: idsOf([a]), url: HOOK, allowPrivateNetwork: true })
  const { outcomes } = await change([a], 'move', 'http://10.0.0.1/', await operatorOf(a))
  expect(outcomes[String(a.accountId)]).toEqual(['refused', expect.stringContaining('private network')])
  expect(await endpointsOf([a])).toMatchObject([{ url: HOOK }])
})

it('a change of many accounts retries and removes backlogs of more rows than a transaction may change', async () => {
  const [a, b] = (await addBroken(2)) as [Tenant, Tenant]
  await finish('add-endpoints', { accounts: idsOf([a, b]), url: HOOK })
  await load(
    database,
    `insert into endpoint_delivery (channel_oa_id, endpoint_id, event_keys, failed_at)
     select channel_oa_id, id, array[gen_random_uuid()], now() from endpoint cross join generate_series(1, $2)
      where channel_oa_id = $1`,
    [a.accountId, 2 * ROWS_PER_STATEMENT],
  )
  const count = async () => {
    const [row] = await database.query<{ failed: number; pending: number }>(
      `select count(*) filter (where failed_at is not null)::int as failed,
              count(*) filter (where failed_at is null)::int as pending
         from endpoint_delivery where channel_oa_id = $1`,
      [a.accountId],
    )
    return row
  }
  const retried = await change([a, b], 'retry')
  expect(retried.outcomes).toEqual({
    [String(a.accountId)]: ['changed', null],
    [String(b.accountId)]: ['unchanged', null],
  })
  expect(await count()).toEqual({ failed: 0, pending: 2 * ROWS_PER_STATEMENT })
  await change([a, b], 'remove')
  expect(await count()).toEqual({ failed: 0, pending: 0 })
  expect(await endpointsOf([a, b])).toEqual([])
  expect((await activityOf([a])).filter(({ action }) => action === 'endpoint.removed')).toHaveLength(1)
})

it('a change of many accounts ends mutes', async () => {
  const [a, b] = (await addBroken(2)) as [Tenant, Tenant]
  await finish('mute-accounts', { accounts: idsOf([a]), ...MUTE })
  const { outcomes } = await finish('unmute-accounts', { accounts: idsOf([a, b]) })
  expect(outcomes).toEqual({
    [String(a.accountId)]: ['changed', null],
    [String(b.accountId)]: ['unchanged', null],
  })
  expect((await activityOf([a])).at(-1)).toMatchObject({ action: 'account.unmuted' })
})

it('a change of many accounts refuses settings that no account could have', async () => {
  const accounts = idsOf(await addBroken(1))
  for (const [change, body, field] of [
    ['add-endpoints', { url: 'http://tool.example/' }, 'url'],
    ['change-endpoints', { endpoint: HOOK, action: 'move' }, 'url'],
    ['change-endpoints', { endpoint: HOOK, action: 'pause', url: HOOK }, 'url'],
    ['change-endpoints', { endpoint: HOOK, action: 'move', url: 'ftp://tool.example/' }, 'url'],
    ['mute-accounts', { ...MUTE, until: new Date(Date.now() + 91 * DAY_MS).toISOString() }, 'until'],
    ['verify-accounts', { accounts: Array(ACCOUNTS_MAX + 1).fill('1') }, 'accounts'],
  ] as const) {
    const { status, json } = await operator.post(`/api/jobs/${change}`, { accounts, ...body })
    expect([change, status, json.details?.[0].path]).toEqual([change, 400, field])
  }
  expect((await operator.post('/api/jobs/add-keys', { accounts, client: '0' })).status).toBe(404)
})

it('a change of many accounts gives a client access, and shows each key once, to the person who started it', async () => {
  const [first, second] = (await addBroken(2)) as [Tenant, Tenant]
  const { id: client } = (await operator.post('/api/clients', { name: 'CRM' })).json
  const colleague = await operatorOf(first, 'owner')
  const accounts = idsOf([first, second])
  const { job, id } = await finish('add-keys', { accounts, client })
  expect(job).toMatchObject({ clientName: 'CRM', tally: { changed: 2, secrets: 2 } })
  expect((await colleague.post(`/api/jobs/${id}/secrets`)).json).toEqual({ secrets: [] })
  const { secrets } = (await operator.post(`/api/jobs/${id}/secrets`)).json
  const keys = await database.query(
    'select channel_oa_id::text as "accountId", id::text, key as secret from api_key where api_client_id = $1 order by channel_oa_id',
    [client],
  )
  expect(secrets).toEqual(keys)
  expect(keys).toHaveLength(2)
  expect((await operator.post(`/api/jobs/${id}/secrets`)).json).toEqual({ secrets: [] })
  expect((await finish('add-keys', { accounts, client })).job.tally).toMatchObject({
    unchanged: 2,
    secrets: 0,
  })
  expect(await activityOf([second])).toMatchObject([{ action: 'key.added' }])
})

it('a change of many accounts verifies each account with LINE', async () => {
  const platform = await startPlatform()
  const { channelSecret, channelAccessToken, botUserId } = platform.account
  const good = await addTenant(database, { channelSecret, channelAccessToken, botUserId })
  const bad = await addTenant(database, { channelSecret, channelAccessToken: 'wrong', botUserId })
  platform.settings.webhook = { endpoint: `https://oa.example/api/line/${good.accountId}`, active: true }
  const job = await start('verify-accounts', { accounts: idsOf([good, bad]) })
  await finishJobs(database, { platform: verifierOn(platform, 'https://oa.example') })
  expect((await resultsOf(job)).outcomes).toEqual({
    [String(good.accountId)]: ['changed', null],
    [String(bad.accountId)]: ['refused', expect.stringContaining('access token')],
  })
  expect(await activityOf([good, bad])).toMatchObject([
    { action: 'account.verified' },
    { action: 'account.verified' },
  ])
})

it('a change of many accounts of all that match is of those that match when it starts', async () => {
  const [named] = (await addBroken(3)) as [Tenant]
  await addBroken(1)
  const { organizationId } = named
  await database.query(`update official_account set name = 'Straße 7%' where id = $1`, [named.accountId])
  const organization = String(organizationId)
  const totalOf = async (filter: object) => (await start('mute-accounts', { ...MUTE, ...filter })).total
  expect(await totalOf({ organization })).toBe('3')
  expect(await totalOf({ organization, status: 'broken', problem: 'no_channel_secret' })).toBe('3')
  expect(await totalOf({ organization, q: 'STRAßE 7%' })).toBe('1')
  expect(await totalOf({ organization, q: String(named.accountId) })).toBe('1')
  const { status, json } = await operator.post('/api/jobs/mute-accounts', {
    ...MUTE,
    organization,
    status: 'ok',
  })
  expect([status, json.message]).toEqual([400, 'No account matches.'])
  const fleet = (await operator.get('/api/fleet')).json.fleet
  expect(await totalOf({})).toBe(String(fleet.length))
})

it('a change of many accounts by an operator of one organization reaches no account of another, by id or by filter', async () => {
  const [own, foreign] = [await addBroken(2), await addBroken(2)]
  const colleague = await operatorOf(own[0] as Tenant)
  const both = idsOf([...own, ...foreign])
  for (const selection of [{ accounts: both }, {}, { status: 'broken' }]) {
    const { outcomes } = await finish('add-endpoints', { ...selection, ...ENDPOINT }, colleague)
    expect(Object.keys(outcomes).toSorted()).toEqual(idsOf(own).toSorted())
  }
  expect(await endpointsOf(foreign)).toEqual([])
  for (const selection of [
    { accounts: idsOf(foreign) },
    { organization: String(foreign[0]?.organizationId) },
  ])
    expect((await colleague.post('/api/jobs/verify-accounts', selection)).status).toBe(400)
  const { id } = await finish('mute-accounts', { accounts: idsOf(foreign), ...MUTE })
  for (const path of [`/api/jobs/${id}/results`, `/api/jobs/${id}`])
    expect((await colleague.get(path)).status).toBe(404)
})

it('a change of many accounts refuses accounts that its operator no longer sees', async () => {
  const [first, second] = [await addBroken(2), await addBroken(2)] as [Tenant[], Tenant[]]
  const both = [...first, ...second]
  const organizationIds = both.map(({ organizationId }) => organizationId)
  const colleague = await addSignedIn({ url, database }, { role: 'manager', organizationIds })
  const job = await start('add-endpoints', { accounts: idsOf(both), ...ENDPOINT }, colleague)
  await takeShortTurn(database)
  await database.query('update operator set organization_ids = $2 where id = $1', [
    ...[colleague.id, [first[0]?.organizationId]],
  ])
  await finishJobs(database)
  const { outcomes } = await resultsOf(job)
  const id = String(second[0]?.accountId)
  expect(outcomes[id]).toEqual(['refused', `account ${id} does not exist.`])
  expect(await endpointsOf(both)).toHaveLength(2)
})

it('a change of many accounts repeats nothing if a process dies between two turns', async () => {
  const tenants = await addBroken(5)
  const job = await start('add-endpoints', { accounts: idsOf(tenants), ...ENDPOINT })
  while (await takeShortTurn(database));
  expect((await resultsOf(job)).job).toMatchObject({
    status: 'done',
    done: '5',
    tally: { changed: 5, unchanged: 0 },
  })
  expect(await endpointsOf(tenants)).toHaveLength(5)
  expect(await activityOf(tenants)).toHaveLength(5)
})
