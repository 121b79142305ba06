/** Values at the limits of their types, as other programs may load them. */
import { describe, expect, it } from 'vitest'
import { migrate } from '../src/postgres/schema/migrate.ts'
import { listFleet } from '../src/watch/fleet.ts'
import { confirmStatuses } from '../src/watch/store-statuses.ts'
import { lineEvent, textMessage } from '../tools/simulator/events.ts'
import { addTenant } from './support/database.ts'
import { load, tenantWithMembers } from './support/load.ts'
import { eventually } from './support/process.ts'
import { setUpService } from './support/service.ts'

const { database, service } = await setUpService()

const MAX = '9223372036854775807'

async function tenantWith(columns: Record<string, string>) {
  const tenant = await tenantWithMembers(database, 1, columns)
  return { tenant, id: (await service.members(tenant))[0]?.id }
}

describe('a member that another program loaded', () => {
  it('is changed although its version is the greatest number, and If-Match still detects each change', async () => {
    const { tenant, id } = await tenantWith({ version: MAX })
    const first = await service.put(tenant, id, { tags: ['a'] })
    expect(first.status).toBe(200)
    const ifFirst = { 'if-match': first.headers.get('etag') ?? '' }
    const second = await service.put(tenant, id, { tags: ['b'] }, ifFirst)
    expect(second.status).toBe(200)
    expect(second.headers.get('etag')).not.toBe(first.headers.get('etag'))
    expect((await service.put(tenant, id, { tags: ['c'] }, ifFirst)).status).toBe(412)
    for (const set of [`version = ${MAX}`, `tags = '{d}'`])
      await load(database, `update audience_member set ${set} where channel_oa_id = $1`, [tenant.accountId])
    expect((await service.members(tenant))[0]).toMatchObject({ tags: ['d'] })
  })

  it.each([
    ['event_count', MAX],
    ['change', MAX],
    ['first_seen_at', `'-infinity'::timestamptz`],
    ['last_seen_at', `'294276-12-31T00:00:00Z'::timestamptz`],
    ['relationship_at', `'infinity'::timestamptz`],
    ['profile_due_at', `'infinity'::timestamptz`],
    ['attributes', `'[1, "x"]'::jsonb`],
    ['tags', 'array[null, $$a$$, null]::text[]'],
    ['tags', `'{{a},{b}}'::text[]`],
  ])('with %s = %s is listed, changed, counted and erased', async (column, value) => {
    const { tenant, id } = await tenantWith({ [column]: value })
    const events = [lineEvent('follow', 'U1'), textMessage('U1', 'x')]
    expect((await service.deliver(tenant, events)).status).toBe(200)
    for (const accept of ['application/json', 'text/csv', 'application/x-ndjson']) {
      for (const query of ['', '?updatedSince=2020-01-01T00:00:00Z']) {
        // A walk leaves a change whose time is in the future to the next walk while an older transaction runs.
        const listed = await eventually(
          () => service.call('GET', `/api/audience${query}`, { headers: { ...tenant.headers, accept } }),
          ({ status, text }) => status !== 200 || text.includes('U1'),
        )
        expect([accept, query, listed.status]).toEqual([accept, query, 200])
      }
    }
    const changed = await service.put(tenant, id, { externalId: 'x', tags: ['t'], attributes: { a: 1 } })
    expect([changed.status, changed.json]).toMatchObject([200, { externalId: 'x', tags: ['t'] }])
    expect((await service.deliver(tenant, [lineEvent('unfollow', 'U1')])).status).toBe(200)
    expect(
      await load(database, 'select from event where channel_oa_id = $1 and failure is not null', [
        tenant.accountId,
      ]),
    ).toEqual([])
    await load(database, `update audience_member set display_name = 'n' where channel_oa_id = $1`, [
      tenant.accountId,
    ])
    expect(await migrate(database)).toEqual([])
    expect((await service.erase(tenant, id)).status).toBe(204)
  })
})

it('counts tracked activity of a user id whose count is the greatest number', async () => {
  const tenant = await tenantWithMembers(database, 1, { event_count: '2' })
  await load(database, `insert into tracked_activity values ($1, 'U1', ${MAX}, '-infinity', 'infinity')`, [
    tenant.accountId,
  ])
  expect((await service.track(tenant, [{ type: 'page', userId: 'U1' }])).status).toBe(200)
  expect((await service.members(tenant))[0]).toMatchObject({ userId: 'U1' })
})

it.each(['infinity', '-infinity', '294276-12-31T00:00:00Z'])(
  'shows the fleet if an account has the time %s',
  async (time) => {
    const tenant = await addTenant(database)
    await load(database, 'update official_account set foreign_destination_at = $1 where id = $2', [
      time,
      tenant.accountId,
    ])
    await confirmStatuses(database)
    const fleet = await listFleet(database, null)
    expect(fleet.map(({ id }) => id)).toContain(tenant.accountId)
  },
)
