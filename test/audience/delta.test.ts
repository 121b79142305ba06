/** GET /api/audience?updatedSince: the delta feed. */
import fc from 'fast-check'
import { expect, it } from 'vitest'
import { addCheckpoint } from '../../src/audience/feed-statement.ts'
import { SCAN_MAX } from '../../src/audience/list-statements.ts'
import { migrate } from '../../src/postgres/schema/migrate.ts'
import { lineEvent, randomUserId, textMessage } from '../../tools/simulator/events.ts'
import { addTenant, type Tenant } from '../support/database.ts'
import { load, loadMembers, tenantWithMembers } from '../support/load.ts'
import { holdTransaction } from '../support/locks.ts'
import { runs } from '../support/runs.ts'
import { setUpService } from '../support/service.ts'
import { type Listed, listPage, pagesOf, walk } from '../support/walk.ts'

const { database, service } = await setUpService()

const LONG_AGO = '2020-01-01T00:00:00.000Z'

const feed = (tenant: Tenant, since: string, limit?: number) =>
  walk(service, tenant, `updatedSince=${since}`, limit)

const userIdsOf = (entries: Listed[]) => entries.map(({ userId }) => userId)

/** Adds a mark with this time, an SQL expression, as if the database's clock had shown it when the changes so far ended. */
const mark = (time: string) =>
  load(database, `insert into change_mark (marked_at, change) select ${time}, change_horizon()`)

/** Waits until all committed changes are below the horizon: transactions of other test files may be in progress. */
async function markAll(time: string): Promise<void> {
  const isPast = 'select change_horizon() > max(change) as is_past from audience_member'
  await expect
    .poll(() => load<{ is_past: boolean }>(database, isPast))
    .toSatisfy(([row]) => row?.is_past === true)
  await mark(time)
}

const setUpdatedAt = (tenant: Tenant, time: string) =>
  load(database, `update audience_member set updated_at = ${time} where channel_oa_id = $1`, [
    tenant.accountId,
  ])

it('a delta feed returns changed members and tombstones of erased ones, in the order of the changes', async () => {
  const tenant = await addTenant(database)
  const [a, b, c] = [randomUserId(), randomUserId(), randomUserId()]
  for (const userId of [a, b, c]) await service.deliver(tenant, [lineEvent('follow', userId)])
  const [first, second] = await service.members(tenant)
  await service.put(tenant, first?.id, { tags: ['x'] })
  await service.erase(tenant, second?.id)
  const entries = await feed(tenant, LONG_AGO, 1)
  expect(userIdsOf(entries)).toEqual([c, a, undefined])
  expect(entries[2]).toEqual({
    id: second?.id,
    deletedAt: expect.stringMatching(/^\d{4}-\d\d-\d\dT.*\.\d{3}Z$/),
  })
})

it('a delta feed omits members that changed long before, and mere activity', async () => {
  const tenant = await tenantWithMembers(database, 2)
  await markAll(`now() - interval '10 minutes'`)
  await service.deliver(tenant, [textMessage('U1', 'seen again')])
  const since = new Date(Date.now() - 300_000).toISOString()
  expect(await feed(tenant, since)).toEqual([])
  await service.deliver(tenant, [lineEvent('follow', 'U2')])
  expect(userIdsOf(await feed(tenant, since.replace('Z', '+00:00')))).toEqual(['U2'])
})

it('a delta feed returns a change that a transaction of many minutes commits after later changes were read', async () => {
  const tenant = await tenantWithMembers(database, 3)
  await mark(`now() - interval '10 minutes'`)
  const commit = await holdTransaction(
    database,
    `update audience_member set display_name = 'late', updated_at = now() - interval '9 minutes'
      where channel_oa_id = $1 and user_id = 'U1'`,
    [tenant.accountId],
  )
  await service.deliver(tenant, [lineEvent('follow', 'U2')])
  await mark(`now() - interval '5 minutes'`)
  const before = await feed(tenant, LONG_AGO, 1)
  expect(before.at(-1)?.userId).toBe('U2')
  await commit()
  const after = await feed(tenant, new Date(Date.now() - 240_000).toISOString())
  expect(after).toContainEqual(expect.objectContaining({ userId: 'U1', displayName: 'late' }))
})

it('a delta feed returns changes made after the clock of the database stepped back by an hour', async () => {
  const tenant = await tenantWithMembers(database, 1)
  await mark(`now() + interval '59 minutes'`)
  await setUpdatedAt(tenant, `now() + interval '60 minutes'`)
  await markAll(`now() + interval '61 minutes'`)
  const [newest] = await feed(tenant, LONG_AGO)
  await service.deliver(tenant, [lineEvent('follow', 'U2')])
  await addCheckpoint(database)
  expect(userIdsOf(await feed(tenant, newest?.updatedAt ?? ''))).toContain('U2')
  await load(database, 'truncate change_mark')
})

it('a delta feed returns everything since a time in the future that the clock never showed', async () => {
  const tenant = await tenantWithMembers(database, 2)
  await markAll(`now() - interval '10 minutes'`)
  expect(await feed(tenant, new Date(Date.now() - 60_000).toISOString())).toEqual([])
  expect(await feed(tenant, '2099-01-01T00:00:00Z')).toHaveLength(2)
})

it('a delta feed returns everything when a dump has brought change numbers of another server', async () => {
  const { database: restored, service: there, tenant } = await setUpService()
  await loadMembers(restored, tenant, 3)
  await load(restored, `delete from audience_member where user_id = 'U3'`)
  await load(restored, `insert into change_mark values (now() - interval '1 hour', 900000000000)`)
  for (const table of ['audience_member', 'erased_member'])
    await load(restored, `update ${table} set change = change + 900000000000`)
  await migrate(restored)
  const all = await walk(there, tenant, `updatedSince=${LONG_AGO}`, 1)
  expect(userIdsOf(all)).toEqual(['U1', 'U2', undefined])
  await there.deliver(tenant, [lineEvent('follow', 'U1')])
  expect(userIdsOf(await walk(there, tenant, `updatedSince=${LONG_AGO}`, 1))).toEqual(['U2', undefined, 'U1'])
  expect(await migrate(restored)).toEqual([])
})

it('a delta feed reports no tombstone of a member that another program deleted and inserted again', async () => {
  const tenant = await tenantWithMembers(database, 3)
  const copy = new Copy()
  await copy.poll(tenant)
  await load(
    database,
    `begin;
     create temporary table reload as select * from audience_member where channel_oa_id = ${tenant.accountId};
     delete from audience_member where channel_oa_id = ${tenant.accountId};
     insert into audience_member (id, channel_oa_id, organization_id, user_id)
     select id, channel_oa_id, organization_id, user_id from reload where user_id <> 'U3';
     commit`,
  )
  await copy.poll(tenant)
  expect([...copy.members.keys()]).toEqual((await service.members(tenant)).map(({ id }) => id))
})

it('a delta feed examines a bounded number of members for a page, and finds a rare match with empty pages before it', async () => {
  const tenant = await tenantWithMembers(database, 2.5 * SCAN_MAX)
  const last = (await load<{ id: bigint }>(database, 'select max(id) as id from audience_member'))[0]?.id
  const tag = `update audience_member set tags = '{rare}' where channel_oa_id = $1 and id = $2`
  await load(database, tag, [tenant.accountId, last])
  const query = `updatedSince=${LONG_AGO}&tag=rare`
  const pages: Listed[][] = []
  for await (const page of pagesOf(service, tenant, query, 5)) pages.push(page)
  expect(pages.map(({ length }) => length)).toEqual([0, 0, 1])
  const ndjson = await service.call('GET', `/api/audience?${query}`, {
    headers: { ...tenant.headers, accept: 'application/x-ndjson' },
  })
  expect(JSON.parse(ndjson.text)).toEqual(pages[2]?.[0])
})

it.each([
  `update audience_member set display_name = 'renamed'`,
  `update audience_member set relationship = 'blocked'`,
  `update audience_member set tags = '{z}'`,
  `update audience_member set tags = '{zz}', version = version + 1`,
  // A program that moves updated_at by itself.
  `update audience_member set followed_at = now(), updated_at = clock_timestamp()`,
  'delete from audience_member',
])('a delta feed returns a member that another program changed with "%s"', async (change) => {
  const tenant = await tenantWithMembers(database, 1)
  await markAll(`now() - interval '1 day'`)
  const since = new Date(Date.now() - 3_600_000).toISOString()
  expect(await feed(tenant, since)).toEqual([])
  await load(database, `${change} where channel_oa_id = $1`, [tenant.accountId])
  expect(await feed(tenant, since)).toHaveLength(1)
})

it('a delta feed ends where it stood when the walk began, so a slow client does not miss later changes', async () => {
  const tenant = await tenantWithMembers(database, 3)
  const first = await listPage(service, tenant, `limit=1&updatedSince=${LONG_AGO}`)
  await service.deliver(tenant, [lineEvent('follow', 'U1')])
  const next = await listPage(service, tenant, `updatedSince=${LONG_AGO}&cursor=${first.json.nextCursor}`)
  expect(userIdsOf(next.json.data)).toEqual(['U2', 'U3'])
  expect(next.json.nextCursor).toBeNull()
})

it('a delta feed returns 400 when the cursor holds a time that PostgreSQL cannot represent', async () => {
  const tenant = await tenantWithMembers(database, 2)
  const since = `updatedSince=${LONG_AGO}`
  const { nextCursor } = (await listPage(service, tenant, `limit=1&${since}`)).json
  for (const time of [2n ** 63n - 1n, -(2n ** 63n)]) {
    const forged = Buffer.from(nextCursor, 'base64url')
    forged.writeBigInt64BE(time, forged.length - 8)
    const query = `${since}&cursor=${forged.toString('base64url')}`
    expect((await listPage(service, tenant, query)).status, `${time}`).toBe(400)
  }
})

const step = fc.record({
  kind: fc.constantFrom('follow', 'unfollow', 'tag', 'erase', 'poll'),
  no: fc.nat({ max: 4 }),
})
type Step = typeof step extends fc.Arbitrary<infer T> ? T : never

async function takeStep(tenant: Tenant, { kind, no }: Step, tag: string): Promise<void> {
  const userId = `U${no}`
  if (kind === 'follow' || kind === 'unfollow') {
    await service.deliver(tenant, [lineEvent(kind, userId)])
    return
  }
  const member = await service.member(tenant, userId)
  if (member === undefined) return
  if (kind === 'erase') await service.erase(tenant, member.id)
  if (kind === 'tag') await service.put(tenant, member.id, { tags: [tag] })
}

/** A client's copy of an audience, kept up to date by the feed alone. */
class Copy {
  readonly members = new Map<string, unknown>()
  #since = LONG_AGO

  async poll(tenant: Tenant): Promise<void> {
    for (const entry of await feed(tenant, this.#since, 3)) {
      if (entry.deletedAt === undefined) this.members.set(entry.id, entry)
      else this.members.delete(entry.id)
      this.#since = entry.updatedAt ?? this.#since
    }
  }
}

it('a copy that follows a delta feed equals the audience after any changes (property)', async () => {
  await fc.assert(
    fc.asyncProperty(fc.array(step, { maxLength: 20 }), async (steps) => {
      const tenant = await addTenant(database)
      const copy = new Copy()
      for (const [i, each] of steps.entries()) {
        if (each.kind === 'poll') await copy.poll(tenant)
        else await takeStep(tenant, each, `t${i}`)
      }
      await copy.poll(tenant)
      const audience = new Map((await service.members(tenant)).map((member) => [member.id, member]))
      expect(copy.members).toEqual(audience)
    }),
    { numRuns: runs(20) },
  )
})
