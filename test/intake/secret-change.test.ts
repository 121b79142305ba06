/** Deliveries that the stored channel secret does not sign: what a process keeps of them, and what becomes of it when the secret changes. */
import { expect, it } from 'vitest'
import { randomUserId } from '../../tools/simulator/events.ts'
import { readContents } from '../support/contents.ts'
import { createTestDatabase, type Tenant } from '../support/database.ts'
import { startReceiver, startSending } from '../support/endpoints.ts'
import { load, readEverything } from '../support/load.ts'
import { message, NEW_SECRET, startRefusing } from '../support/refused.ts'

const { database } = await createTestDatabase()
let clockOffsetMs = 0
const { service, refuse, addTenants, changeSecret, stores, takenOf } = await startRefusing(
  database,
  () => Date.now() + clockOffsetMs,
)

/** All rows but the counts of deliveries. */
const readStored = async () => ({ ...(await readContents(database)), delivery_hour: null })

const newTenant = async () => (await addTenants(1))[0] as Tenant

it('a delivery for the own bot that the stored secret does not sign is on no disk until a new secret proves it, and is then stored as if it had arrived then, although the clock has jumped', async () => {
  const tenant = await newTenant()
  const userId = randomUserId()
  const before = await readStored()
  await refuse(tenant, [message(userId)])
  expect(await readStored()).toEqual(before)
  clockOffsetMs = 2 * 86_400_000
  await changeSecret([tenant])
  await stores(tenant, [userId])
  clockOffsetMs = 0
  const [row] = await load<{ payload: string }>(
    database,
    'select payload from event where channel_oa_id = $1',
    [tenant.accountId],
  )
  const stored = JSON.parse(row?.payload ?? '')
  expect(stored).not.toHaveProperty('replyToken')
  await expect.poll(() => takenOf(tenant)).toEqual([1])
  // LINE may send it again nevertheless.
  const again = { ...stored, deliveryContext: { isRedelivery: true } }
  const { json } = await service.deliver({ ...tenant, channelSecret: NEW_SECRET }, [again])
  expect(json).toEqual({ accepted: 0, duplicates: 1 })
})

it('a delivery for the own bot that the stored secret does not sign is forwarded as a delivery whose reply token is over', async () => {
  const { database, service, tenant, addEndpoint } = await startSending()
  const { url, received } = await startReceiver()
  await addEndpoint(url, { replies: true })
  await refuse(tenant, [message()], { to: service })
  await load(database, 'update official_account set channel_secret = $1', [NEW_SECRET])
  await expect.poll(() => received.length).toBe(1)
  const [forwarded] = JSON.parse(received[0]?.body ?? '{}').events
  expect(forwarded).toMatchObject({ type: 'message', mode: 'active' })
  expect(forwarded).not.toHaveProperty('replyToken')
})

it('a delivery for the own bot that the stored secret does not sign does not bring back a person who is erased meanwhile, and delays no erasure', async () => {
  const tenant = await newTenant()
  const { userId } = await service.addFollower(tenant)
  const other = randomUserId()
  await refuse(tenant, [userId, other].map(message))
  await service.eraseUser(tenant, userId)
  await changeSecret([tenant])
  await stores(tenant, [other])
  expect(await readEverything(database)).not.toContain(userId)
})
