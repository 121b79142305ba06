/** GET /api/audience?updatedSince: the delta feed. */
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { lineEvent, randomUserId, textMessage } from '../tools/simulator/events.ts'
import { addTenant, type Tenant } from './support/database.ts'
import { load, loadMembers } from './support/load.ts'
import { holdTransaction } from './support/locks.ts'
import { setUpFile } from './support/service.ts'
import { type Listed, listPage, walk } from './support/walk.ts'

const { database, service } = await setUpFile()

const LONG_AGO = '2020-01-01T00:00:00.000Z'

const feed = (tenant: Tenant, since: string, limit?: number) =>
  walk(service, tenant, `updatedSince=${since}`, limit)

const userIdsOf = (entries: Listed[]) => entries.map(({ userId }) => userId)

async function tenantWithMembers(count: number): Promise<Tenant> {
  const tenant = await addTenant(database)
  await loadMembers(database, tenant, count)
  return tenant
}

const setUpdatedAt = (tenant: Tenant, time: string) =>
  load(database, `update audience_member set updated_at = ${time} where channel_oa_id = $1`, [
    tenant.accountId,
  ])

const putTags = (tenant: Tenant, id: string | undefined, tags: string[]) =>
  service.call('PUT', `/api/audience/${id}`, {
    headers: { ...tenant.headers, 'content-type': 'application/json' },
    body: JSON.stringify({ tags }),
  })

const erase = (tenant: Tenant, id: string | undefined) =>
  service.call('DELETE', `/api/audience/${id}`, { headers: tenant.headers })

describe('a delta feed', () => {
  it('returns changed members and tombstones of erased ones, in the order of the changes', async () => {
    const tenant = await addTenant(database)
    const [a, b, c] = [randomUserId(), randomUserId(), randomUserId()]
    for (const userId of [a, b, c]) await service.deliver(tenant, [lineEvent('follow', userId)])
    const [first, second] = await service.members(tenant)
    await putTags(tenant, first?.id, ['x'])
    await erase(tenant, second?.id)
    const entries = await feed(tenant, LONG_AGO, 1)
    expect(userIdsOf(entries)).toEqual([c, a, undefined])
    expect(entries[2]).toEqual({
      id: second?.id,
      deletedAt: expect.stringMatching(/^\d{4}-\d\d-\d\dT.*\.\d{3}Z$/),
    })
    expect(await feed(tenant, new Date(Date.now() + 3_600_000).toISOString())).toEqual([])
  })

  it('omits members that changed long before, and mere activity', async () => {
    const tenant = await tenantWithMembers(2)
    await setUpdatedAt(tenant, `now() - interval '10 minutes'`)
    await service.deliver(tenant, [textMessage('U1', 'seen again')])
    const since = new Date(Date.now() - 300_000).toISOString()
    expect(await feed(tenant, since)).toEqual([])
    await service.deliver(tenant, [lineEvent('follow', 'U2')])
    expect(userIdsOf(await feed(tenant, since.replace('Z', '+00:00')))).toEqual(['U2'])
  })

  it('returns a change again that a transaction commits after later changes were read', async () => {
    const tenant = await tenantWithMembers(3)
    const commit = await holdTransaction(
      database,
      `update audience_member set display_name = 'late', updated_at = clock_timestamp()
        where channel_oa_id = $1 and user_id = 'U1'`,
      [tenant.accountId],
    )
    await service.deliver(tenant, [lineEvent('follow', 'U2')])
    const before = await feed(tenant, LONG_AGO, 1)
    const last = before.at(-1)
    expect(last?.userId).toBe('U2')
    await commit()
    const after = await feed(tenant, last?.updatedAt ?? '')
    expect(after).toContainEqual(expect.objectContaining({ userId: 'U1', displayName: 'late' }))
  })

  it.each([
    `update audience_member set display_name = 'renamed'`,
    `update audience_member set relationship = 'blocked'`,
    `update audience_member set tags = '{z}'`,
    `update audience_member set tags = '{zz}', version = version + 1`,
    'delete from audience_member',
  ])('returns a member that another program changed with "%s"', async (change) => {
    const tenant = await tenantWithMembers(1)
    await setUpdatedAt(tenant, `now() - interval '1 day'`)
    const since = new Date(Date.now() - 3_600_000).toISOString()
    expect(await feed(tenant, since)).toEqual([])
    await load(database, `${change} where channel_oa_id = $1`, [tenant.accountId])
    expect(await feed(tenant, since)).toHaveLength(1)
  })

  it('ends where it stood when the walk began, so a slow client does not miss later changes', async () => {
    const tenant = await tenantWithMembers(3)
    const first = await listPage(service, tenant, `limit=1&updatedSince=${LONG_AGO}`)
    await service.deliver(tenant, [lineEvent('follow', 'U1')])
    const next = await listPage(service, tenant, `updatedSince=${LONG_AGO}&cursor=${first.json.nextCursor}`)
    expect(userIdsOf(next.json.data)).toEqual(['U2', 'U3'])
    expect(next.json.nextCursor).toBeNull()
  })

  it('walks past members whose updated_at is the epoch', async () => {
    const tenant = await tenantWithMembers(3)
    await setUpdatedAt(tenant, `'epoch'`)
    expect(await feed(tenant, '1960-01-01T00:00:00Z', 1)).toHaveLength(3)
  })

  it('returns 400 when the cursor holds a time that PostgreSQL cannot represent', async () => {
    const tenant = await tenantWithMembers(2)
    const since = `updatedSince=${LONG_AGO}`
    const { nextCursor } = (await listPage(service, tenant, `limit=1&${since}`)).json
    for (const offset of [17, 25]) {
      for (const time of [2n ** 63n - 1n, -(2n ** 63n)]) {
        const forged = Buffer.from(nextCursor, 'base64url')
        forged.writeBigInt64BE(time, offset)
        const query = `${since}&cursor=${forged.toString('base64url')}`
        expect((await listPage(service, tenant, query)).status, `${offset} ${time}`).toBe(400)
      }
    }
  })
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
  if (kind === 'erase') await erase(tenant, member.id)
  if (kind === 'tag') await putTags(tenant, member.id, [tag])
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

describe('a copy that follows a delta feed', () => {
  it('equals the audience after any changes (property)', async () => {
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
      { numRuns: 20 },
    )
  })
})
