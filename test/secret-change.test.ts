/** Deliveries that the stored channel secret does not sign: what is kept of them, and what becomes of it when the secret changes. */
import { randomBytes } from 'node:crypto'
import { describe, expect, it } from 'vitest'
import { Secret } from '../src/config/secret.ts'
import { SecretKeys } from '../src/config/secret-keys.ts'
import { signLine } from '../src/line-api/line-signature.ts'
import { lineEvent, randomUserId } from '../tools/simulator/events.ts'
import { addTenant, createTestDatabase, openDatabase, type Tenant } from './support/database.ts'
import { startReceiver, startSending } from './support/endpoints.ts'
import { load } from './support/load.ts'
import { startApp } from './support/service.ts'

const { database } = await createTestDatabase()
const service = await startApp(database)

const NEW_SECRET = 'f'.repeat(32)
const REFUSED = 403

const deliverNew = (tenant: Tenant, events: unknown[]) =>
  service.deliver({ ...tenant, channelSecret: NEW_SECRET }, events)

const changeSecret = ({ accountId }: Tenant, secret = NEW_SECRET) =>
  database.query('update official_account set channel_secret = $2 where id = $1', [accountId, secret])

const keptOf = ({ accountId }: Tenant) =>
  load<{ body: string; signature: string }>(
    database,
    'select body, signature from kept_delivery where channel_oa_id = $1 order by id',
    [accountId],
  )

const payloadsOf = ({ accountId }: Tenant) =>
  load<{ payload: string | null }>(
    database,
    'select payload from event where channel_oa_id = $1 order by id',
    [accountId],
  )

async function newCase() {
  const tenant = await addTenant(database)
  const userId = randomUserId()
  const event = lineEvent('message', userId, { replyToken: 'r'.repeat(32) })
  return { tenant, userId, event }
}

// A service tries what is kept every 5 s, so all of these wait for the same turn.
const refused = await newCase()
expect((await deliverNew(refused.tenant, [refused.event])).status).toBe(REFUSED)
expect(await service.members(refused.tenant)).toEqual([])
expect(await keptOf(refused.tenant)).toHaveLength(1)
await changeSecret(refused.tenant)

const mixed = await newCase()
await service.deliver({ ...mixed.tenant, channelSecret: 'forged' }, [lineEvent('message', randomUserId())])
await deliverNew(mixed.tenant, [mixed.event])
await changeSecret(mixed.tenant)

const old = await newCase()
await deliverNew(old.tenant, [old.event])
await database.query(
  `update kept_delivery set received_at = now() - interval '25 hours' where channel_oa_id = $1`,
  [old.tenant.accountId],
)
// The first turn of an instance deletes what is too old.
await startApp(database)

const keys = SecretKeys.parse(`a:${randomBytes(32).toString('base64')}`)
const own = await createTestDatabase()
const encrypting = await startApp(openDatabase(own.connection, undefined, keys))
const encrypted = { tenant: await addTenant(own.database), event: lineEvent('message', randomUserId()) }
await encrypting.deliver({ ...encrypted.tenant, channelSecret: NEW_SECRET }, [encrypted.event])
const [stored] = await load<{ body: string; signature: string }>(
  own.database,
  'select body, signature from kept_delivery',
)
await own.database.query('update official_account set channel_secret = $1', [NEW_SECRET])

describe('a delivery for the own bot that the stored secret does not sign', () => {
  it('is forwarded as a delivery whose reply token is over', async () => {
    const { database, sender, service, tenant, addEndpoint } = await startSending()
    const { url, received } = await startReceiver()
    await addEndpoint(url, { replies: true })
    const event = lineEvent('message', randomUserId(), { replyToken: 'r'.repeat(32) })
    await service.deliver({ ...tenant, channelSecret: NEW_SECRET }, [event])
    await database.query('update official_account set channel_secret = $1', [NEW_SECRET])
    await startApp(database, { handOver: sender.handOver })
    await expect.poll(() => received.length).toBe(1)
    const [forwarded] = JSON.parse(received[0]?.body ?? '{}').events
    expect(forwarded).toMatchObject({ type: 'message', mode: 'active' })
    expect(forwarded).not.toHaveProperty('replyToken')
  })

  it('is refused and kept, and taken in once the new secret is stored, without its reply token', async () => {
    const { tenant, userId, event } = refused
    await expect.poll(() => service.members(tenant)).toMatchObject([{ userId, eventCount: 1 }])
    await expect.poll(() => keptOf(tenant)).toEqual([])
    const [stored] = await payloadsOf(tenant)
    const { replyToken: _, ...rest } = event as Record<string, unknown>
    expect(JSON.parse(stored?.payload ?? '')).toEqual(rest)
    const [row] = await load(
      database,
      `select changes from activity where channel_oa_id = $1 and action = 'account.deliveries_taken'`,
      [tenant.accountId],
    )
    expect(row).toEqual({ changes: { deliveries: 1 } })
    // LINE may send it again nevertheless.
    expect((await deliverNew(tenant, [event])).json).toEqual({ accepted: 0, duplicates: 1 })
  })

  it('is not kept without a signature, or for another bot', async () => {
    const tenant = await addTenant(database)
    const event = lineEvent('message', randomUserId())
    await service.deliver({ ...tenant, channelSecret: NEW_SECRET, botUserId: 'Uother' }, [event])
    await service.call('POST', `/api/line/${tenant.accountId}`, {
      body: JSON.stringify({ destination: tenant.botUserId, events: [event] }),
    })
    expect(await keptOf(tenant)).toEqual([])
  })

  it('is kept although it names a person whose id cannot be stored', async () => {
    const tenant = await addTenant(database)
    const events = [{ source: { userId: 'U\u0000' } }]
    const body = JSON.stringify({ destination: tenant.botUserId, events }).replace('\\u0000', '\0')
    const headers = { 'x-line-signature': signLine(body, new Secret('forged')) }
    expect((await service.call('POST', `/api/line/${tenant.accountId}`, { headers, body })).status).toBe(
      REFUSED,
    )
    expect(await keptOf(tenant)).toHaveLength(1)
  })

  it('stays kept and without effect if the new secret does not sign it either', async () => {
    await expect.poll(() => service.members(mixed.tenant)).toMatchObject([{ userId: mixed.userId }])
    await expect.poll(() => keptOf(mixed.tenant)).toHaveLength(1)
    expect(await payloadsOf(mixed.tenant)).toHaveLength(1)
  })

  it('is deleted when a day is over', () => expect.poll(() => keptOf(old.tenant)).toEqual([]))
})

describe('what is kept', () => {
  it('is the newest 1,000 deliveries of an account', async () => {
    const tenant = await addTenant(database)
    const send = () => deliverNew(tenant, [lineEvent('message', randomUserId())])
    for (let sent = 0; sent < 1_020; sent += 60) await Promise.all(Array.from({ length: 60 }, send))
    expect(await keptOf(tenant)).toHaveLength(1_000)
  })

  it('leaves with an erasure of a person whom it names, and with the account', async () => {
    const tenant = await addTenant(database)
    const [erased, other] = [randomUserId(), randomUserId()]
    await service.deliver(tenant, [lineEvent('follow', erased)])
    await deliverNew(tenant, [lineEvent('message', erased)])
    await deliverNew(tenant, [lineEvent('message', other)])
    const [member] = await service.members(tenant)
    await service.call('DELETE', `/api/audience/${member?.id}`, { headers: tenant.headers })
    const kept = await keptOf(tenant)
    expect(kept).toHaveLength(1)
    expect(Buffer.from(kept[0]?.body ?? '', 'base64').toString()).toContain(other)
  })

  it('is encrypted with SECRETS_KEYS', async () => {
    const { tenant, event } = encrypted
    await expect.poll(() => encrypting.members(tenant)).toMatchObject([{ eventCount: 1 }])
    expect(stored?.body).toMatch(/^enc:v1:a:/)
    const body = JSON.stringify({ destination: tenant.botUserId, events: [event] })
    expect(stored?.signature).toBe(signLine(body, new Secret(NEW_SECRET)))
  })
})
