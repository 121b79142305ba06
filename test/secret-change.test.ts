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

/** A service tries every 5 s, and at its start. */
const takeIn = () => startApp(database)

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

describe('a delivery for the own bot that the stored secret does not sign', () => {
  it('is refused and kept, and taken in once the new secret is stored, without its reply token', async () => {
    const tenant = await addTenant(database)
    const userId = randomUserId()
    const event = lineEvent('message', userId, { replyToken: 'r'.repeat(32) })
    expect((await deliverNew(tenant, [event])).status).toBe(REFUSED)
    expect(await service.members(tenant)).toEqual([])
    expect(await keptOf(tenant)).toHaveLength(1)
    await changeSecret(tenant)
    await expect.poll(() => service.members(tenant)).toMatchObject([{ userId, eventCount: 1 }])
    await expect.poll(() => keptOf(tenant)).toEqual([])
    const [stored] = await payloadsOf(tenant)
    const { replyToken: _, ...rest } = event as Record<string, unknown>
    expect(JSON.parse(stored?.payload ?? '')).toEqual(rest)
    const [row] = await load(
      database,
      `select action, changes from activity where channel_oa_id = $1 and action = 'account.deliveries_taken'`,
      [tenant.accountId],
    )
    expect(row).toEqual({ action: 'account.deliveries_taken', changes: { deliveries: 1 } })
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
    const tenant = await addTenant(database)
    await service.deliver({ ...tenant, channelSecret: 'forged' }, [lineEvent('message', randomUserId())])
    const userId = randomUserId()
    await deliverNew(tenant, [lineEvent('message', userId)])
    await changeSecret(tenant)
    await takeIn()
    await expect.poll(() => service.members(tenant)).toMatchObject([{ userId }])
    await expect.poll(() => keptOf(tenant)).toHaveLength(1)
    expect(await payloadsOf(tenant)).toHaveLength(1)
  })

  it('is deleted when a day is over', async () => {
    const tenant = await addTenant(database)
    await deliverNew(tenant, [lineEvent('message', randomUserId())])
    await database.query(
      `update kept_delivery set received_at = now() - interval '25 hours' where channel_oa_id = $1`,
      [tenant.accountId],
    )
    // The first pass of an instance deletes what is too old.
    await takeIn()
    await expect.poll(() => keptOf(tenant)).toEqual([])
  })

  it('is forwarded as a delivery whose reply token is over', async () => {
    const { database, sender, service, tenant, addEndpoint } = await startSending()
    const { url, received } = await startReceiver()
    await addEndpoint(url, { replies: true })
    const event = lineEvent('message', randomUserId(), { replyToken: 'r'.repeat(32) })
    await service.deliver({ ...tenant, channelSecret: NEW_SECRET }, [event])
    await database.query('update official_account set channel_secret = $2 where id = $1', [
      tenant.accountId,
      NEW_SECRET,
    ])
    await startApp(database, { handOver: sender.handOver })
    await expect.poll(() => received.length).toBe(1)
    const [forwarded] = JSON.parse(received[0]?.body ?? '{}').events
    expect(forwarded).toMatchObject({ type: 'message', mode: 'active' })
    expect(forwarded).not.toHaveProperty('replyToken')
  })
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
    const keys = SecretKeys.parse(`a:${randomBytes(32).toString('base64')}`)
    const { database, connection } = await createTestDatabase()
    const withKeys = openDatabase(connection, undefined, keys)
    const encrypting = await startApp(withKeys)
    const tenant = await addTenant(database)
    const userId = randomUserId()
    const event = lineEvent('message', userId)
    await encrypting.deliver({ ...tenant, channelSecret: NEW_SECRET }, [event])
    const [kept] = await load<{ body: string; signature: string }>(
      database,
      'select body, signature from kept_delivery',
      [],
    )
    expect(kept?.body).toMatch(/^enc:v1:a:/)
    await database.query('update official_account set channel_secret = $2 where id = $1', [
      tenant.accountId,
      NEW_SECRET,
    ])
    await startApp(withKeys)
    await expect.poll(() => encrypting.members(tenant)).toMatchObject([{ userId }])
    expect(kept?.signature).toBe(
      signLine(JSON.stringify({ destination: tenant.botUserId, events: [event] }), new Secret(NEW_SECRET)),
    )
  })
})
