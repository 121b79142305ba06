/** What operators change about endpoints in the console. */
import { expect, it } from 'vitest'
import { runCommand } from '../support/command.ts'
import { addSignedIn, startSignedIn } from '../support/console.ts'
import { addTenant, createTestDatabase } from '../support/database.ts'
import { endOf, finishJobs } from '../support/jobs.ts'

const { database, env } = await createTestDatabase()
const { url, operator } = await startSignedIn(database)
const tenant = await addTenant(database)
const account = String(tenant.accountId)

async function add(fields: Record<string, unknown> = {}): Promise<{ id: string; secret: string | null }> {
  const settings = { account, url: 'https://tool.example/hook', format: 'line', ...fields }
  const { status, json } = await operator.post('/api/endpoints', settings)
  expect(status).toBe(200)
  return json
}

const read = async (id: string) => (await operator.get(`/api/endpoints/${id}`)).json.endpoint

it('adds endpoints, and shows a secret once', async () => {
  const line = await add()
  expect(line.secret).toBeNull()
  expect(await read(line.id)).toMatchObject({ accountId: account, name: '', events: null, replies: false })
  const members = await add({ format: 'members', name: 'CRM', events: ['member.erased'] })
  expect(members.secret).toMatch(/^whsec_/)
  const answers = [await operator.get('/api/endpoints'), await operator.get(`/api/endpoints/${members.id}`)]
  for (const { text } of answers) expect(text).not.toContain('whsec_')
})

it.each<[string, Record<string, unknown>, string, RegExp]>([
  ['its own URL', { url: 'https://oa.example.com/audience/api/line/1' }, 'url', /loop/],
  ['a private address', { url: 'https://10.0.0.1/' }, 'url', /not public/],
  [
    'an unknown event',
    { events: ['nothing'], format: 'members' },
    'events',
    /contains nothing, which the format members does not have/,
  ],
  ['no URL', { url: undefined }, 'url', /is missing/],
  ['reply tokens for members', { replies: true, format: 'members' }, 'replies', /format line/],
])('refuses %s with the field', async (_, fields, path, message) => {
  const settings = { account, url: 'https://tool.example/hook', format: 'line', ...fields }
  const { status, json } = await operator.post('/api/endpoints', settings)
  expect(status).toBe(400)
  expect(json.details).toContainEqual({ path, message: expect.stringMatching(message) })
})

it('lets only operators of all organizations allow the private network, or move such an endpoint', async () => {
  const { organizationId } = tenant
  const manager = await addSignedIn({ url, database }, { role: 'manager', organizationIds: [organizationId] })
  const settings = { account, url: 'https://tool.example/hook', format: 'line' }
  const refused = [await manager.post('/api/endpoints', { ...settings, allowPrivateNetwork: true })]
  const own = (await manager.post('/api/endpoints', settings)).json.id
  refused.push(await manager.post(`/api/endpoints/${own}/update`, { allowPrivateNetwork: true }))
  const { id } = await add({ url: 'http://10.0.0.1/hook', allowPrivateNetwork: true })
  refused.push(await manager.post(`/api/endpoints/${id}/update`, { url: 'http://10.0.0.2/hook' }))
  for (const { status, json } of refused) {
    expect(status).toBe(400)
    expect(json.details[0].message).toMatch(/only operators of all organizations/)
  }
  expect([await read(own), await read(id)]).toMatchObject([
    { allowPrivateNetwork: false },
    { url: 'http://10.0.0.1/hook', allowPrivateNetwork: true },
  ])
})

it('removes an endpoint at once, one with a large backlog in a job, and records either before it deletes', async () => {
  const [{ id }, other, small] = [await add(), await add(), await add()]
  const remove = (endpoint: { id: string }) => operator.post(`/api/endpoints/${endpoint.id}/remove`)
  expect((await remove(small)).status).toBe(204)
  expect((await remove(small)).status).toBe(404)
  await database.query(
    `insert into endpoint_delivery (channel_oa_id, endpoint_id, event_keys, failed_at)
     select $1, p.id, '{}', case when i % 2 = 0 then now() end
       from unnest($2::bigint[]) as p (id), generate_series(1, 11000) i where i < 6000 or p.id = ($2::bigint[])[1]`,
    [account, [id, other.id]],
  )
  const { status, json } = await remove({ id })
  expect([status, json.job.kind, (await remove({ id })).json.job.id]).toEqual([
    202,
    'endpoint.remove',
    json.job.id,
  ])
  expect((await read(id)).status).toBe('paused')
  const recorded = await database.query(
    `select distinct object_id from activity where action = 'endpoint.removed' and object_id = any ($1)`,
    [[id, small.id]],
  )
  expect(recorded).toHaveLength(2)
  await finishJobs(database)
  expect(await endOf(operator, json.job)).toMatchObject({ status: 'done', tally: {} })
  expect((await remove({ id })).status).toBe(404)
  const count = 'select endpoint_id::text as id, count(*)::int as count from endpoint_delivery group by 1'
  expect(await database.query(count)).toEqual([{ id: other.id, count: 5_999 }])
  const { stdout } = await runCommand(['endpoints', 'remove', other.id, '--json'], env)
  expect(JSON.parse(stdout)).toEqual({ id: other.id, status: 'removed' })
  expect(await database.query(count)).toEqual([])
})
