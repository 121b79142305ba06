/** A client only reaches members of its own account. postgres/tenant-statements.test.ts says so of each statement. */
import fc from 'fast-check'
import { expect, it } from 'vitest'
import { lineEvent } from '../../tools/simulator/events.ts'
import { addCredentials, addTenant, type Tenant } from '../support/database.ts'
import { runs } from '../support/runs.ts'
import { setUpService } from '../support/service.ts'

const { database, service } = await setUpService()

it('the database rejects a member whose account belongs to another organization', async () => {
  const [one, two] = [await addTenant(database), await addTenant(database)]
  const crossed = database.query(
    `insert into audience_member (channel_oa_id, organization_id, user_id) values ($1, $2, 'U1')`,
    [one.accountId, two.organizationId],
  )
  await expect(crossed).rejects.toThrow(/audience_member_account/)
})

/** Adds two members who are only the tenant's and one who is a member of all tenants. Their fields carry the tenant's mark. */
async function addMarkedMembers(tenant: Tenant, mark: string) {
  const userIds = [`U${mark}a`, `U${mark}b`, 'Ushared']
  await service.deliver(
    tenant,
    userIds.map((userId) => lineEvent('follow', userId)),
  )
  for (const { id, userId } of await service.members(tenant)) {
    await service.put(tenant, id, { externalId: `${mark}-${userId}`, tags: [mark, 'common'] })
  }
  return service.members(tenant)
}

const first = await addTenant(database)
/** Three accounts of two organizations. */
const tenants = [
  first,
  await addTenant(database, { organizationId: first.organizationId }),
  await addTenant(database),
]
const members = await Promise.all(tenants.map((tenant, no) => addMarkedMembers(tenant, `mark${no}`)))
const cursors = await Promise.all(
  tenants.map(
    async ({ headers }): Promise<string> =>
      (await service.call('GET', '/api/audience?limit=1', { headers })).json.nextCursor,
  ),
)
const foreignIds = (no: number | null) =>
  members.flatMap((own, at) => (at === no ? [] : own.map(({ id }) => id)))

/** Every client with every key. A key is valid with its own client alone, so crossed pairs have no tenant. */
const credentials = tenants.flatMap((client, c) =>
  tenants.map((key, k) => ({
    no: c === k ? c : null,
    headers: { ...client.headers, 'x-api-key': key.headers['x-api-key'] },
  })),
)
const tenantNo = fc.nat({ max: 2 })
const parameter = fc.oneof(
  fc.tuple(fc.constant('userId'), fc.constantFrom('Umark0a', 'Umark1b', 'Umark2a', 'Ushared')),
  fc.tuple(
    fc.constant('externalId'),
    tenantNo.map((no) => `mark${no}-Ushared`),
  ),
  fc.tuple(fc.constant('tag'), fc.constantFrom('common', 'mark0', 'mark1', 'mark2')),
  fc.tuple(fc.constant('relationship'), fc.constant('following')),
  fc.tuple(fc.constant('updatedSince'), fc.constant('2020-01-01T00:00:00Z')),
  fc.tuple(
    fc.constant('cursor'),
    tenantNo.map((no) => cursors[no] as string),
  ),
  fc.tuple(fc.constant('limit'), fc.constantFrom('1', '200')),
)
const requests = fc.record({
  caller: fc.constantFrom(...credentials),
  method: fc.constantFrom('GET', 'PUT', 'POST', 'DELETE'),
  query: fc.array(parameter, { maxLength: 3 }),
  accept: fc.constantFrom('application/json', 'text/csv', 'application/x-ndjson'),
  target: fc.record({ no: tenantNo, member: fc.nat({ max: 2 }) }),
  body: fc.constantFrom('{"tags":["common"]}', '{"externalId":"anything"}', '{}'),
})
/** No client erases its own members. */
const request = requests.filter(
  ({ method, caller, target }) => method !== 'DELETE' || caller.no !== target.no,
)
type Request = typeof request extends fc.Arbitrary<infer T> ? T : never

function send({ caller, method, query, accept, target, body }: Request) {
  if (method === 'GET') {
    const headers = { ...caller.headers, accept }
    return service.call('GET', `/api/audience?${new URLSearchParams(query)}`, { headers })
  }
  const id = members[target.no]?.[target.member]?.id
  const path = method === 'POST' ? '/api/line-oa/verify' : `/api/audience/${id}`
  return service.call(method, path, {
    headers: { ...caller.headers, 'content-type': 'application/json' },
    body,
  })
}

it("the answer to any request contains nothing of another tenant's members, which nobody else changes or erases (property)", async () => {
  await fc.assert(
    fc.asyncProperty(request, async (sent) => {
      const { caller, method, target } = sent
      const { text, status } = await send(sent)
      for (const no of [0, 1, 2].filter((other) => other !== caller.no)) {
        expect(text, `status ${status}`).not.toMatch(new RegExp(`mark${no}`))
      }
      const foreign = foreignIds(caller.no)
      for (const [, id] of text.matchAll(/"id":"(\d+)"/g)) expect(foreign).not.toContain(id)
      const refusals = { GET: [], POST: [], PUT: [404, 500], DELETE: [404, 400] }[method]
      if (refusals.length > 0 && target.no !== caller.no) expect(refusals).toContain(status)
    }),
    { numRuns: runs(300) },
  )
  for (const [no, tenant] of tenants.entries()) {
    const ids = (await service.members(tenant)).map(({ id }) => id)
    expect(ids).toEqual(members[no]?.map(({ id }) => id))
  }
})

it('a key that names its account with another organization, or no account, reaches no member and verifies nothing', async () => {
  const owner = await addTenant(database)
  const { organizationId } = await addTenant(database)
  const { headers } = await addCredentials(database, owner.accountId, organizationId)
  const [member] = await addMarkedMembers(owner, 'crossed')
  for (const condition of [{}, { 'if-match': '"1"' }]) {
    const sent = { ...headers, ...condition, 'content-type': 'application/json' }
    const path = `/api/audience/${member?.id}`
    const updated = await service.call('PUT', path, { headers: sent, body: '{"tags":["stolen"]}' })
    expect([updated.status, updated.text]).toEqual([404, expect.not.stringContaining('crossed')])
    expect((await service.call('DELETE', path, { headers: sent, body: '{}' })).status).toBe(404)
  }
  const withoutAccount = await addCredentials(database, 999_999n, organizationId)
  for (const key of [headers, withoutAccount.headers]) {
    const list = await service.call('GET', '/api/audience', { headers: key })
    expect(list.json).toEqual({ data: [], nextCursor: null })
    expect((await service.call('POST', '/api/line-oa/verify', { headers: key })).status).toBe(404)
  }
  expect(await service.members(owner)).toContainEqual(member)
})
