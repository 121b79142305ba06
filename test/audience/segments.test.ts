/** Segments: GET /api/audience?segment, the commands, the console, and their limits. */
import { expect, it } from 'vitest'
import { runCommand } from '../support/command.ts'
import { signedIn, startConsole } from '../support/console.ts'
import { addTenant, type Tenant } from '../support/database.ts'
import { finishJobs } from '../support/jobs.ts'
import { load, tenantWithMembers } from '../support/load.ts'
import { setUpService } from '../support/service.ts'
import { listPage, walk } from '../support/walk.ts'

const { database, env, service } = await setUpService()
const { url } = await startConsole(database)

const run = (...args: string[]) => runCommand(['segments', ...args], env)
const add = async (to: Tenant, name: string, condition: object) => {
  const of = ['--account', String(to.accountId), '--name', name]
  const { stdout, stderr } = await run('add', ...of, '--condition', JSON.stringify(condition), '--json')
  expect(stderr).toBe('')
  return JSON.parse(stdout).id as string
}

/** U1 to U40: every second one is a vip, every fifth one has blocked the account. */
const tenantWithPeople = () =>
  tenantWithMembers(database, 40, {
    tags: `case when i % 2 = 0 then '{vip,new}' else '{new}' end::text[]`,
    relationship: `case when i % 5 = 0 then 'blocked' else 'following' end`,
    display_name: `'Ann ' || i`,
  })

const numbersOf = (members: Array<{ userId: string }>) => members.map(({ userId }) => Number(userId.slice(1)))
const upTo40 = (matches: (no: number) => boolean) =>
  Array.from({ length: 40 }, (_, i) => i + 1).filter((no) => matches(no))

const FOLLOWING_VIPS = { tagsAny: ['vip', 'gold'], relationship: 'following' }

it('GET /api/audience?segment returns the members for whom the condition holds, on pages of any size and with other filters', async () => {
  const tenant = await tenantWithPeople()
  await add(tenant, 'VIP ✓', FOLLOWING_VIPS)
  await add(tenant, 'tagged', { tagsAll: ['vip'], tagsNone: ['gold'] })
  const name = encodeURIComponent('VIP ✓')
  const vips = upTo40((no) => no % 2 === 0 && no % 5 !== 0)
  for (const limit of [1, 3, 200])
    expect(numbersOf(await walk(service, tenant, `segment=${name}`, limit))).toEqual(vips)
  const cases: Array<[string, number[]]> = [
    ['segment=tagged', upTo40((no) => no % 2 === 0)],
    ['segment=tagged&tag=new&relationship=blocked', upTo40((no) => no % 10 === 0)],
    [`segment=${name}&tag=new`, vips],
    [`segment=${name}&tag=gold`, []],
    [`segment=${name}&relationship=blocked`, []],
    [`segment=${name}&q=Ann 1`, vips.filter((no) => String(no).startsWith('1'))],
    [`segment=${name}&userId=U4`, [4]],
    [`segment=${name}&userId=U5`, []],
  ]
  for (const [query, expected] of cases)
    expect([query, numbersOf(await walk(service, tenant, query))]).toEqual([query, expected])
})

it('GET /api/audience?segment streams the members, and follows their changes', async () => {
  const tenant = await tenantWithPeople()
  await add(tenant, 'vips', FOLLOWING_VIPS)
  const vips = upTo40((no) => no % 2 === 0 && no % 5 !== 0)
  const stream = (accept: string) =>
    service.call('GET', '/api/audience?segment=vips', { headers: { ...tenant.headers, accept } })
  const lines = (await stream('application/x-ndjson')).text.trimEnd().split('\n')
  expect(numbersOf(lines.map((line) => JSON.parse(line)))).toEqual(vips)
  expect((await stream('text/csv')).text.trimEnd().split('\r\n')).toHaveLength(vips.length + 1)
  const feed = 'segment=vips&updatedSince=2020-01-01T00:00:00Z'
  expect(numbersOf(await walk(service, tenant, feed)).toSorted((a, b) => a - b)).toEqual(vips)
  await load(
    database,
    `update audience_member set tags = '{gold}' where channel_oa_id = $1 and user_id = 'U1'`,
    [tenant.accountId],
  )
  expect(numbersOf(await walk(service, tenant, feed)).at(-1)).toBe(1)
})

it('GET /api/audience?segment refuses an unknown name, also that of a segment of another account', async () => {
  const [tenant, other] = [await tenantWithPeople(), await tenantWithPeople()]
  await add(other, 'theirs', {})
  await add(tenant, 'same', { tagsAll: ['vip'] })
  await add(other, 'same', { relationship: 'blocked' })
  const details = [{ path: 'segment', message: 'is not the name of a segment of this account' }]
  for (const accept of ['application/json', 'text/csv']) {
    const headers = { ...tenant.headers, accept }
    const answer = await service.call('GET', '/api/audience?segment=theirs', { headers })
    expect([answer.status, answer.json.details]).toEqual([400, details])
  }
  expect(numbersOf(await walk(service, tenant, 'segment=same'))).toEqual(upTo40((no) => no % 2 === 0))
  expect(numbersOf(await walk(service, other, 'segment=same'))).toEqual(upTo40((no) => no % 5 === 0))
})

it('GET /api/audience?segment refuses a cursor after a change of the segment, and accepts it again after the change is undone', async () => {
  const tenant = await tenantWithPeople()
  const id = await add(tenant, 'vips', FOLLOWING_VIPS)
  const { nextCursor } = (await listPage(service, tenant, 'segment=vips&limit=2')).json
  const next = () => listPage(service, tenant, `segment=vips&limit=2&cursor=${nextCursor}`)
  expect((await next()).status).toBe(200)
  await run('update', id, '--condition', '{"tagsAny":["vip"]}')
  expect((await next()).json).toMatchObject({ statusCode: 400, details: [{ path: 'cursor' }] })
  await run('update', id, '--condition', JSON.stringify(FOLLOWING_VIPS))
  expect((await next()).status).toBe(200)
})

it('oa-audience segments lists, shows with the exact count, changes and removes a segment', async () => {
  const tenant = await tenantWithPeople()
  const id = await add(tenant, 'vips', { tagsAll: ['vip'], followedBefore: '2026-01-01T09:00:00+09:00' })
  const list = async () =>
    JSON.parse((await run('list', '--account', String(tenant.accountId), '--json')).stdout)
  expect(await list()).toMatchObject([
    { id, name: 'vips', condition: { tagsAll: ['vip'], followedBefore: '2026-01-01T00:00:00.000Z' } },
  ])
  await run('update', id, '--name', 'friends', '--condition', '{"relationship":"following"}')
  const shown = JSON.parse((await run('show', id, '--json')).stdout)
  expect(shown).toMatchObject({ name: 'friends', condition: { relationship: 'following' }, count: 32 })
  expect(Date.now() - Date.parse(shown.countedAt)).toBeLessThan(60_000)
  expect((await run('show', id)).stdout).toContain('{"relationship":"following"}')
  await run('remove', id)
  expect(await list()).toEqual([])
  expect((await run('show', id)).stderr).toContain(`segment ${id} does not exist`)
})

it('oa-audience segments names the refused field of a condition, a name that is taken, and text that is not JSON', async () => {
  const tenant = await addTenant(database)
  await add(tenant, 'taken', {})
  const refused = async (name: string, condition: string) =>
    (await run('add', '--account', String(tenant.accountId), '--name', name, '--condition', condition)).stderr
  expect(await refused('x', '{"tagsAll":[]}')).toBe('oa-audience: --condition tagsAll must not be empty\n')
  expect(await refused('x', '{"q":"Ann"}')).toBe('oa-audience: --condition q is not a known field\n')
  expect(await refused('x', 'vip')).toMatch(/^oa-audience: "vip" is not valid JSON/)
  expect(await refused('taken', '{}')).toMatch(/already has a segment with this name/)
})

it('oa-audience segments exports the user ids of LINE of a segment, one per line', async () => {
  const tenant = await tenantWithMembers(database, 4, {
    tags: `case when i > 1 then '{vip}' else '{}' end::text[]`,
  })
  await load(
    database,
    `update audience_member set user_id = 'U' || lpad(substr(user_id, 2), 32, '0') where channel_oa_id = $1 and user_id <> 'U4'`,
    [tenant.accountId],
  )
  await add(tenant, 'vips', { tagsAll: ['vip'] })
  const args = ['--account', String(tenant.accountId), '--format', 'line-ids', '--segment', 'vips']
  const { stdout } = await runCommand(['audience', 'export', ...args], env)
  expect(stdout).toBe(`U${'0'.repeat(31)}2\nU${'0'.repeat(31)}3\n`)
})

it('the database refuses the 101st segment of an account', async () => {
  const { accountId } = await addTenant(database)
  const insert = `insert into segment (channel_oa_id, name, condition)
                  select $1, 'S' || i, '{}' from generate_series($2::int, $3::int) i`
  await load(database, insert, [accountId, 1, 100])
  await expect(load(database, insert, [accountId, 101, 101])).rejects.toThrow('100 segments already')
})

it('the console counts, lists, tags and exports the members of a segment', async () => {
  const tenant = await tenantWithPeople()
  const operator = await signedIn(url)
  const account = String(tenant.accountId)
  const added = await operator.post('/api/segments', { account, name: 'vips', condition: FOLLOWING_VIPS })
  expect(added.status).toBe(200)
  expect((await operator.get(`/api/segments?account=${account}`)).json.segments).toMatchObject([
    { id: added.json.id, name: 'vips', condition: FOLLOWING_VIPS },
  ])
  const of = `/api/accounts/${account}`
  expect((await operator.get(`${of}/count-members?segment=vips`)).json.count).toBe(16)
  expect((await operator.get(`${of}/members?segment=vips`)).json.data).toHaveLength(16)
  expect((await operator.get(`${of}/members?segment=unknown`)).status).toBe(400)
  const condition = encodeURIComponent('{"tagsAll":["vip"]}')
  expect((await operator.get(`${of}/members?condition=${condition}`)).json.data).toHaveLength(20)
  for (const refused of [`condition=${condition}&segment=vips`, 'condition=%7B"tags":1%7D', 'condition=x'])
    expect((await operator.get(`${of}/members?${refused}`)).status).toBe(400)
  const tagging = { filters: { segment: 'vips' }, addTags: ['chosen'], removeTags: [], expectedCount: 16 }
  expect((await operator.post(`${of}/tag-members`, tagging)).status).toBe(202)
  expect((await operator.post(`${of}/tag-members`, { ...tagging, expectedCount: 17 })).status).toBe(409)
  const exported = await operator.get(`${of}/audience/export?segment=vips&format=line-ids`)
  expect([exported.status, exported.headers.get('content-type')]).toEqual([200, 'text/plain; charset=utf-8'])
})

it('the console erases the members of a segment, if their number is the confirmed one', async () => {
  const tenant = await tenantWithPeople()
  await add(tenant, 'vips', FOLLOWING_VIPS)
  const operator = await signedIn(url)
  const path = `/api/accounts/${tenant.accountId}/erase-members`
  const filters = { segment: 'vips' }
  expect((await operator.post(path, { filters, expectedCount: 15 })).status).toBe(409)
  const { status, json } = await operator.post(path, { filters, expectedCount: 16 })
  expect(status).toBe(202)
  await finishJobs(database)
  const { job } = (await operator.get(`/api/jobs/${json.job.id}`)).json
  expect(job).toMatchObject({ kind: 'members.erase_matching', status: 'done', done: '16', total: '16' })
  const left = upTo40((no) => no % 2 === 1 || no % 5 === 0)
  expect(numbersOf(await walk(service, tenant, ''))).toEqual(left)
  const erased = `select count(*)::int as count from erased_person where channel_oa_id = $1`
  expect(await load(database, erased, [tenant.accountId])).toEqual([{ count: 16 }])
})
