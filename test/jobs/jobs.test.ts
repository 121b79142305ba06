/** Long work of operators: bulk changes of tags, their progress, end and limits. */
import { describe, expect, it } from 'vitest'
import { AppError } from '../../src/errors.ts'
import type { Platform } from '../../src/jobs/step.ts'
import { takeTurn } from '../../src/jobs/turn.ts'
import { startSignedIn } from '../support/console.ts'
import { addTenant } from '../support/database.ts'
import {
  endJobsAfterEach,
  endOf,
  endWaitsOfJobs,
  finishJobs,
  startJobRunner,
  takeShortTurn,
} from '../support/jobs.ts'
import { insertRow, load, loadMembers } from '../support/load.ts'
import { eventually } from '../support/process.ts'
import { setUpService } from '../support/service.ts'

const { database, service } = await setUpService()
const { operator } = await startSignedIn(database)

endJobsAfterEach(database)

const HALF = `case when i % 2 = 0 then 'following' else 'blocked' end`

async function addAudience(members: number) {
  const tenant = await addTenant(database)
  await loadMembers(database, tenant, members, { relationship: HALF, display_name: `'Name ' || i` })
  const path = `/api/accounts/${tenant.accountId}`
  const tag = ({
    add = [],
    remove = [],
    ...body
  }: { add?: string[]; remove?: string[] } & Record<string, unknown>) =>
    operator.post(`${path}/tag-members`, { filters: {}, addTags: add, removeTags: remove, ...body })
  return { tenant, path, tag }
}

/** Makes another operator the one who started the job. Returns the operator. */
async function startedBy(job: { id: string }, columns: Record<string, unknown>): Promise<bigint> {
  const id = await insertRow(database, 'operator', { role: 'manager', ...columns })
  await database.query(`update job set actor_kind = 'operator', operator_id = $1 where id = $2`, [id, job.id])
  return id
}

const following = { relationship: 'following' }

it('a bulk change of tags changes all members that match, and is one entry of the activity log', async () => {
  const { tenant, path, tag } = await addAudience(1_500)
  expect((await operator.get(`${path}/count-members?relationship=following`)).json).toEqual({ count: 750 })
  const { status, json } = await tag({ filters: following, add: ['spring'], expectedCount: 750 })
  expect(status).toBe(202)
  expect(json.job).toMatchObject({ kind: 'members.tag', status: 'running', done: '0', total: '750' })
  expect(json.job.parameters).toMatchObject({ matching: following, add: ['spring'], remove: [] })
  expect(json.job).toMatchObject({ actorKind: 'token', actorName: null })
  await finishJobs(database)
  expect((await operator.get(`/api/jobs/${json.job.id}`)).json.job).toMatchObject({
    ...{ status: 'done', done: '750', tally: { changed: 750, unchanged: 0, refused: 0 } },
  })
  expect((await operator.get(`${path}/count-members?tag=spring`)).json).toEqual({ count: 750 })
  expect(await service.member(tenant, 'U2')).toMatchObject({ tags: ['spring'], version: 2 })
  expect(await service.member(tenant, 'U1')).toMatchObject({ tags: [], version: 1 })
  const activity = await database.query(
    `select action, object_kind, object_id, channel_oa_id, changes from activity where channel_oa_id = $1`,
    [tenant.accountId],
  )
  expect(activity).toEqual([
    {
      action: 'members.tagged',
      object_kind: 'account',
      object_id: String(tenant.accountId),
      channel_oa_id: tenant.accountId,
      changes: { filters: following, add: ['spring'], remove: [], members: 750 },
    },
  ])
})

it('a bulk change of tags is refused if the number of matching members differs from the confirmed one', async () => {
  const { tag } = await addAudience(200)
  const tags = { filters: following, add: ['x'] }
  for (const expectedCount of [0, 99, 102, 200]) {
    const { status, json } = await tag({ ...tags, expectedCount })
    expect([status, json.message]).toEqual([409, expect.stringContaining('matches 100 members now')])
  }
  expect((await tag({ add: ['x'], expectedCount: 202 })).status).toBe(202)
})

it('a bulk change of tags refuses tags that a PUT would refuse', async () => {
  const { tag } = await addAudience(1)
  for (const body of [
    { add: ['x'.repeat(65)] },
    { add: ['a'], remove: ['a'] },
    { add: ['a'], filters: { updatedSince: '2026-01-01T00:00:00Z' } },
    { add: ['a'], filters: { tag: 7 } },
  ])
    expect((await tag({ expectedCount: 1, ...body })).status, JSON.stringify(body)).toBe(400)
  expect((await tag({ add: ['a'] })).status).toBe(400)
  expect((await tag({ add: ['a'], expectedCount: -1 })).status).toBe(400)
})

it('a job stops when it is cancelled, and what it has changed stays', async () => {
  const { tenant, path, tag } = await addAudience(1_000)
  const { job } = (await tag({ add: ['half'], expectedCount: 1_000 })).json
  await takeShortTurn(database)
  const { json } = await operator.post(`/api/jobs/${job.id}/cancel`)
  expect(json.job).toMatchObject({ status: 'cancelled', reason: 'cancelled' })
  expect(await takeShortTurn(database)).toBe(false)
  const done = Number(json.job.done)
  expect(done).toBeGreaterThan(0)
  expect(done).toBeLessThan(1_000)
  expect((await operator.get(`${path}/count-members?tag=half`)).json).toEqual({ count: done })
  expect((await operator.post(`/api/jobs/${job.id}/cancel`)).json.job).toEqual(json.job)
  const recorded = await database.query(
    `select object_id from activity where action = 'job.cancelled' and channel_oa_id = $1`,
    [tenant.accountId],
  )
  expect(recorded).toEqual([{ object_id: job.id }])
  expect((await operator.post('/api/jobs/0/cancel')).status).toBe(404)
})

it('a job ends if its operator is disabled, demoted, or no longer sees the organization', async () => {
  for (const [change, reason] of [
    [`status = 'disabled'`, 'operator_disabled'],
    [`role = 'viewer'`, 'operator_demoted'],
    [`organization_ids = '{-1}'`, 'organization_hidden'],
  ]) {
    const { tag, path } = await addAudience(1_000)
    const { job } = (await tag({ add: ['a'], expectedCount: 1_000 })).json
    const id = await startedBy(job, { email: `${reason}@example.com` })
    await takeShortTurn(database)
    await database.query(`update operator set ${change} where id = $1`, [id])
    await takeShortTurn(database)
    const { json } = await operator.get(`/api/jobs/${job.id}`)
    expect(json.job).toMatchObject({ status: 'cancelled', reason })
    expect(Number(json.job.done)).toBeGreaterThan(0)
    expect((await operator.get(`${path}/count-members?tag=a`)).json.count).toBe(Number(json.job.done))
  }
})

it('a job alternates with the jobs of others', async () => {
  const large = await addAudience(1_000)
  const { job } = (await large.tag({ add: ['a'], expectedCount: 1_000 })).json
  await takeShortTurn(database)
  const small = await addAudience(10)
  const second = (await small.tag({ add: ['a'], expectedCount: 10 })).json.job
  await takeShortTurn(database)
  await takeShortTurn(database)
  expect((await operator.get(`/api/jobs/${second.id}`)).json.job.status).toBe('done')
  expect((await operator.get(`/api/jobs/${job.id}`)).json.job.status).toBe('running')
  const running = (await operator.get('/api/jobs/running')).json.running as Array<{ id: string }>
  expect(running.map(({ id }) => id)).toContain(job.id)
  expect(running.map(({ id }) => id)).not.toContain(second.id)
})

it('a job is worked on by two instances without repetition', async () => {
  const { path, tag } = await addAudience(1_500)
  const { job } = (await tag({ add: ['a'], expectedCount: 1_500 })).json
  await Promise.all([finishJobs(database), finishJobs(database)])
  await eventually(
    async () => (await takeTurn(database)) || (await operator.get(`/api/jobs/${job.id}`)).json.job.status,
    (status) => status === 'done',
  )
  expect((await operator.get(`/api/jobs/${job.id}`)).json.job).toMatchObject({
    ...{ done: '1500', tally: { changed: 1_500, unchanged: 0 } },
  })
  expect((await operator.get(`${path}/count-members?tag=a`)).json).toEqual({ count: 1_500 })
})

it('a job of a kind that only a newer release knows is left to that release', async () => {
  const { tenant } = await addAudience(1)
  const id = await insertRow(database, 'job', {
    ...{ kind: 'members.merge', channel_oa_id: tenant.accountId, organization_id: tenant.organizationId },
    ...{ actor_kind: 'command', actor: 'a newer release', parameters: '{}' },
  })
  expect(await takeTurn(database)).toBe(false)
  expect((await operator.get(`/api/jobs/${id}`)).json.job.status).toBe('running')
})

it('a selection by source fails in a turn of 0.3.0, which would change all members', async () => {
  const { tenant, tag } = await addAudience(4)
  await load(
    database,
    `update audience_member set source = 'shop' where channel_oa_id = $1 and user_id = 'U1'`,
    [tenant.accountId],
  )
  const condition = '{"sourceAny":["shop"]}'
  await insertRow(database, 'segment', { channel_oa_id: tenant.accountId, name: 'Shoppers', condition })
  for (const filters of [{ source: 'shop' }, { segment: 'Shoppers' }]) {
    const { id } = (await tag({ filters, add: Object.keys(filters), expectedCount: 1 })).json.job
    const [job] = await load(database, 'select parameters from job where id = $1', [id])
    expect(job?.parameters).not.toHaveProperty('filters')
    expect((await operator.get(`/api/jobs/${id}`)).json.job.parameters).toMatchObject({ matching: filters })
    await finishJobs(database)
  }
  const tagged = await load(
    database,
    `select user_id, tags from audience_member where channel_oa_id = $1 and tags <> '{}'`,
    [tenant.accountId],
  )
  expect(tagged).toEqual([{ user_id: 'U1', tags: ['source', 'segment'] }])
})

it('a replay and a resend have positions that an instance of 0.3.0 continues', async () => {
  const { tenant } = await addAudience(7)
  for (const [format, path, input, start] of [
    ['line', 'replay', { from: '2026-01-01', to: '2026-01-02' }, { sending: 0 }],
    ['members', 'resend', { filters: {} }, { queued: 0, isEnd: false }],
  ] as const) {
    const columns = {
      channel_oa_id: tenant.accountId,
      url: 'https://tool.example.com',
      status: 'paused',
      format,
    }
    const endpoint = await insertRow(database, 'endpoint', columns)
    const { id } = (await operator.post(`/api/endpoints/${endpoint}/${path}`, input)).json.job
    await takeShortTurn(database)
    const positionOf = async () =>
      (await load(database, 'select position from job where id = $1', [id]))[0]?.position
    expect(await positionOf()).toMatchObject({ ...start, nextMs: expect.any(Number) })
    if (path === 'replay') await operator.post(`/api/jobs/${id}/cancel`)
    else {
      await load(database, `update endpoint set status = 'active' where id = $1`, [endpoint])
      await endWaitsOfJobs(database)
      await takeShortTurn(database)
      expect(await positionOf()).toMatchObject({ queued: 5, isEnd: false, nextMs: expect.any(Number) })
    }
  }
})

it('a job does not wait for a job that waits for LINE', async () => {
  let refuse = (_error: Error): void => undefined
  const slow = new Promise<never>((_resolve, reject) => {
    refuse = reject
  })
  const lineApi = new Proxy({}, { get: () => () => slow }) as Platform['lineApi']
  const calls = { lineApi, publicUrl: null, webhookPaths: () => [], now: Date.now }
  const waiting = await addAudience(1)
  await operator.post(`/api/accounts/${waiting.tenant.accountId}/followers`)
  const runner = startJobRunner(database, calls)
  const [{ claim } = { claim: 0n }] = await eventually(
    () => database.query<{ claim: bigint }>(`select claim from job where kind = 'account.import_followers'`),
    ([job]) => job?.claim === 1n,
  )
  expect(claim).toBe(1n)
  const { tag } = await addAudience(5)
  const { json } = await tag({ add: ['a'], expectedCount: 5 })
  runner.wake()
  expect((await endOf(operator, json.job)).status).toBe('done')
  refuse(new AppError('platform_unavailable'))
  await runner.stop()
})

it('a job is refused if the organization already has four', async () => {
  const { tag } = await addAudience(1)
  const other = await addAudience(1)
  for (let count = 0; count < 4; count += 1)
    expect((await tag({ add: ['a'], expectedCount: 1 })).status).toBe(202)
  const { status, json, headers } = await tag({ add: ['a'], expectedCount: 1 })
  expect([status, json.message]).toEqual([429, expect.stringContaining('Too many jobs')])
  expect(headers.get('retry-after')).toBe('60')
  expect((await other.tag({ add: ['a'], expectedCount: 1 })).status).toBe(202)
})

it('a job leaves no personal text behind', async () => {
  const { tenant, tag } = await addAudience(10)
  await tag({ filters: { q: 'Name 7', userId: 'U7' }, add: ['a'], expectedCount: 1 })
  await finishJobs(database)
  for (const table of ['job', 'activity']) {
    const rows = await database.query(`select * from ${table} where channel_oa_id = $1`, [tenant.accountId])
    const text = JSON.stringify(rows, (_, value) => (typeof value === 'bigint' ? String(value) : value))
    expect(text).toContain('"q":"given"')
    expect(text).not.toMatch(/Name 7|U7/)
  }
})

describe('a job whose step fails', () => {
  /** Each change of a member of the account ends with this SQLSTATE. */
  const refuse = async ({ accountId }: { accountId: bigint }, sqlState: string) => {
    await database.query(
      `create or replace function refuse() returns trigger language plpgsql as
         $$ begin raise exception using errcode = tg_argv[0]; end $$`,
    )
    await database.query(
      `create trigger refuse before update on audience_member for each row
         when (new.channel_oa_id = ${accountId}) execute function refuse('${sqlState}')`,
    )
  }

  it.each([
    ['the database has no memory', '53200', [0, 0], ['running', null]],
    ['a statement takes too long', '57014', [1, 100], ['failed', 'statement_refused']],
    ['a page is damaged', 'XX001', [1, 100], ['failed', 'statement_refused']],
    ['another program refuses the change', 'P0001', [100], ['failed', 'unexpected_error']],
  ])('because %s (%s) is repeated as often as that helps', async (_, sqlState, counts, end) => {
    const { tenant, tag } = await addAudience(3)
    const { job } = (await tag({ add: ['a'], expectedCount: 3 })).json
    await refuse(tenant, sqlState)
    const stored = async () => (await operator.get(`/api/jobs/${job.id}`)).json.job
    for (const count of counts) {
      if (count === 100)
        await database.query(`update job set tally = '{"attempts":99}' where id = $1`, [job.id])
      await endWaitsOfJobs(database)
      await takeTurn(database).catch(() => undefined)
      if (count < 100) expect((await stored()).tally).toEqual({ attempts: count })
    }
    const { status, reason } = await stored()
    expect([status, reason]).toEqual(end)
    await database.query('drop trigger refuse on audience_member')
    if (status !== 'running') return
    await endWaitsOfJobs(database)
    await finishJobs(database)
    expect((await stored()).tally).toEqual({ changed: 3, unchanged: 0, refused: 0 })
  })
})

it('an export of members contains all that match, and is recorded before its first byte', async () => {
  const { tenant, path } = await addAudience(2_500)
  await database.query(
    `update audience_member set display_name = '=cmd()' where channel_oa_id = $1 and user_id = 'U2'`,
    [tenant.accountId],
  )
  const csv = await operator.get(`${path}/audience/export?format=csv&relationship=following&q=m`)
  expect([csv.status, csv.headers.get('content-disposition')]).toEqual([
    ...[200, `attachment; filename="members-${tenant.accountId}.csv"`],
  ])
  const lines = csv.text.trim().split('\r\n')
  expect(lines).toHaveLength(1 + 1_250)
  expect(lines[1]).toContain(`"'=cmd()"`)
  const ndjson = await operator.get(`${path}/audience/export?format=ndjson`)
  expect(ndjson.text.trim().split('\n')).toHaveLength(2_500)
  const recorded = await database.query<{ changes: object }>(
    `select changes from activity where channel_oa_id = $1 and action = 'members.exported' order by id`,
    [tenant.accountId],
  )
  expect(recorded.map(({ changes }) => changes)).toEqual([
    { format: 'csv', members: 1_250, filters: { relationship: 'following', q: 'given' } },
    { format: 'ndjson', members: 2_500, filters: {} },
  ])
  for (const query of ['', '?format=xlsx', '?format=csv&limit=1'])
    expect((await operator.get(`${path}/audience/export${query}`)).status).toBe(400)
})
