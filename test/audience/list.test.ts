/** GET /api/audience: the pages of an audience. */
import { expect, it } from 'vitest'
import { lineEvent, randomUserId, textMessage } from '../../tools/simulator/events.ts'
import { addTenant, type Tenant } from '../support/database.ts'
import { load, tenantWithMembers } from '../support/load.ts'
import { setUpService } from '../support/service.ts'

const { database, service } = await setUpService()

const list = (tenant: Tenant, query = '') =>
  service.call('GET', `/api/audience${query}`, { headers: tenant.headers })

const ISO_TIME = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/

it('GET /api/audience returns all fields of a member, with the id as text and times in ISO 8601', async () => {
  const tenant = await addTenant(database)
  const userId = randomUserId()
  const at = Date.UTC(2024, 0, 2, 3, 4, 5, 6)
  await service.deliver(tenant, [
    lineEvent('follow', userId, { timestamp: at }),
    textMessage(userId, 'x', { timestamp: at + 1 }),
  ])
  const member = {
    id: expect.stringMatching(/^\d+$/),
    userId,
    displayName: null,
    pictureUrl: null,
    language: null,
    relationship: 'following',
    followedAt: '2024-01-02T03:04:05.006Z',
    blockedAt: null,
    firstSeenAt: '2024-01-02T03:04:05.006Z',
    lastSeenAt: '2024-01-02T03:04:05.007Z',
    eventCount: 2,
    conversation: null,
    source: null,
    externalId: null,
    tags: [],
    attributes: {},
    version: 1,
    createdAt: expect.stringMatching(ISO_TIME),
    updatedAt: expect.stringMatching(ISO_TIME),
  }
  expect((await list(tenant)).json).toEqual({ data: [member], nextCursor: null })
})

it('GET /api/audience returns the member with the smallest id, and none can have an id before it', async () => {
  const smallest = await tenantWithMembers(database, 1, { id: `'-9223372036854775807'::bigint` })
  expect((await list(smallest)).json.data).toMatchObject([{ id: '-9223372036854775807' }])
  await expect(tenantWithMembers(database, 1, { id: `'-9223372036854775808'::bigint` })).rejects.toThrow(
    'audience_member_id',
  )
})

it('GET /api/audience returns tags as a list and attributes as an object, whatever another program wrote', async () => {
  const tenant = await addTenant(database)
  await load(
    database,
    `insert into audience_member (channel_oa_id, organization_id, user_id, tags, attributes)
     values ($1, $2, 'U0', '{a,NULL,b}', '{"n": 1}'), ($1, $2, 'U1', '{{a,b},{c,d}}', '[1]'),
            ($1, $2, 'U2', '{NULL}', '"text"'), ($1, $2, 'U3', '{}', 'null')`,
    [tenant.accountId, tenant.organizationId],
  )
  expect((await list(tenant)).json.data).toMatchObject([
    { tags: ['a', 'b'], attributes: { n: 1 } },
    { tags: ['a', 'b', 'c', 'd'], attributes: {} },
    { tags: [], attributes: {} },
    { tags: [], attributes: {} },
  ])
  const csv = await service.call('GET', '/api/audience', {
    headers: { ...tenant.headers, accept: 'text/csv' },
  })
  expect(csv.text).toContain(`,"[""a"",""b""]","{""n"": 1}",`)
  expect(csv.text).toContain(`,"[]","{}",`)
})

it('GET /api/audience returns 50 members a page by default, and from 1 to 200 on request', async () => {
  const tenant = await tenantWithMembers(database, 201)
  expect((await list(tenant)).json.data).toHaveLength(50)
  expect((await list(tenant, '?limit=1')).json.data).toHaveLength(1)
  expect((await list(tenant, '?limit=200')).json.data).toHaveLength(200)
})
