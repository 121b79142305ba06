/** GET /api/audience?updatedSince after a backup was restored. */
import { expect, it } from 'vitest'
import { lineEvent, randomUserId } from '../../tools/simulator/events.ts'
import type { Tenant } from '../support/database.ts'
import { load } from '../support/load.ts'
import { setUpService } from '../support/service.ts'
import { listPage, walk } from '../support/walk.ts'

const NDJSON = { accept: 'application/x-ndjson' }

/** As if a backup of that age, in seconds, had just been restored. Returns the time of the backup. */
async function setUpRestored(ageSeconds: number) {
  const { database, service, tenant } = await setUpService()
  const follow = (userId = randomUserId()) => service.deliver(tenant, [lineEvent('follow', userId)])
  const restore = async () => {
    const [row] = await load<{ backup_at: string }>(
      database,
      `with moment as materialized (select now() - $1::int * interval '1 second' as at, change_limit() as change)
       select at::text as backup_at, record_restore(at, change) from moment`,
      [ageSeconds],
    )
    return Date.parse(row?.backup_at ?? '')
  }
  const statusSince = async (to: Tenant, ms: number) =>
    (await listPage(service, to, `updatedSince=${new Date(ms).toISOString()}`)).status
  return { database, service, tenant, follow, restore, statusSince }
}

it('refuses a time between the backup and its restore with 410, in pages and in streams', async () => {
  const { service, tenant, follow, restore, statusSince } = await setUpRestored(3_600)
  await follow()
  const before = Date.now()
  const backupMs = await restore()
  expect(await statusSince(tenant, backupMs - 61_000)).toBe(200)
  expect(await statusSince(tenant, backupMs - 59_000)).toBe(410)
  expect(await statusSince(tenant, before - 10_000)).toBe(410)
  expect(await statusSince(tenant, Date.now() + 5_000)).toBe(200)
  const path = `/api/audience?updatedSince=${new Date(backupMs).toISOString()}`
  const stream = await service.call('GET', path, { headers: { ...tenant.headers, ...NDJSON } })
  expect([stream.status, stream.json.message]).toEqual([
    410,
    'The database was restored from a backup, and changes that you have read are lost. ' +
      'Read the whole audience again without updatedSince, then continue with the time of that walk.',
  ])
})

it('refuses the cursor of a walk that began between the backup and its restore', async () => {
  const { service, tenant, follow, restore, statusSince } = await setUpRestored(3_600)
  const beganMs = Date.now()
  for (let count = 0; count < 3; count += 1) await follow()
  const first = await listPage(service, tenant, 'limit=1&updatedSince=2020-01-01T00:00:00Z')
  const { nextCursor } = first.json
  const whole = (await listPage(service, tenant, 'limit=1')).json.nextCursor
  await restore()
  const next = await listPage(
    service,
    tenant,
    `limit=1&updatedSince=2020-01-01T00:00:00Z&cursor=${nextCursor}`,
  )
  expect(next.status).toBe(410)
  expect((await listPage(service, tenant, `limit=1&cursor=${whole}`)).status).toBe(200)
  // The newest time of the whole walk would be that of the restore, although its first page is from before.
  expect(await statusSince(tenant, beganMs)).toBe(410)
})

it('accepts the time of a client that has read the whole audience again, even if nothing changed after the backup', async () => {
  const { service, tenant, follow, restore, statusSince } = await setUpRestored(0)
  const userId = randomUserId()
  await follow(userId)
  await restore()
  const [member] = await walk(service, tenant, '')
  expect(await statusSince(tenant, Date.parse(member?.updatedAt ?? ''))).toBe(200)
  await follow()
  expect(await walk(service, tenant, `updatedSince=${member?.updatedAt}`)).toHaveLength(2)
})

it('gives changes after a restore higher numbers than any that the lost server can have assigned', async () => {
  const { database, follow, restore } = await setUpRestored(3_600)
  await follow()
  const numbers = () =>
    load<{ change: bigint; limit: bigint }>(
      database,
      'select max(change) as change, change_limit() as limit from audience_member',
    )
  const [before] = await numbers()
  await restore()
  await follow()
  const [after] = await numbers()
  expect(Number((after?.change ?? 0n) - (before?.limit ?? 0n))).toBeGreaterThan(3 * 3_600 * 1_000_000)
  await restore()
  await follow()
  const [again] = await numbers()
  expect(again?.change).toBeGreaterThan((after?.change ?? 0n) + 3_600_000_000n)
})
