/** What a verification says about an account because of what was delivered. */
import { describe, expect, it } from 'vitest'
import { hashKey } from '../src/intake/event-fields.ts'
import { lineEvent, randomUserId } from '../tools/simulator/events.ts'
import type { Tenant } from './support/database.ts'
import { startReceiver } from './support/endpoints.ts'
import { statusOf } from './support/status.ts'
import { setUpVerification } from './support/verification.ts'

const { database, platform, service, addVerifiable, verify } = await setUpVerification()

interface Check {
  name: string
  ok: boolean | null
  message: string
  reason?: string
  seenAt?: string | null
}

async function checkOf(tenant: Tenant, name: string, claims?: object): Promise<Check> {
  const { status, json } = await verify(tenant, claims)
  expect(status).toBe(200)
  return json.checks.find((check: Check) => check.name === name)
}

const follow = () => [lineEvent('follow', randomUserId())]
const again = (event: object) => ({ ...event, deliveryContext: { isRedelivery: true } })
const set = ({ accountId }: Tenant, columns: string) =>
  database.query(`update official_account set ${columns} where id = $1`, [accountId])

it('the check of the channel secret passes after a delivery, fails after refusals with their count, and has no evidence after a change', async () => {
  const tenant = await addVerifiable()
  expect(await checkOf(tenant, 'channel_secret')).toMatchObject({ ok: null, seenAt: null })
  await service.deliver(tenant, follow())
  const passed = await checkOf(tenant, 'channel_secret')
  expect(passed).toMatchObject({ ok: true })
  expect(Date.parse(passed.seenAt ?? '')).toBeGreaterThan(Date.now() - 60_000)
  for (const _ of [1, 2]) await service.deliver({ ...tenant, channelSecret: 'another' }, follow())
  const failed = await checkOf(tenant, 'channel_secret')
  expect(failed).toMatchObject({ ok: false, reason: 'secret_refused' })
  expect(failed.message).toContain('does not match: 2, the newest at')
  expect(failed.message).toContain('2 of them are kept')
  expect((await verify(tenant)).json.verified).toBe(true)
  await set(tenant, `channel_secret = 'changed'`)
  expect(await checkOf(tenant, 'channel_secret')).toMatchObject({ ok: null, seenAt: null })
})

describe('the proof of redelivery', () => {
  it('refuses the next delivery once, which is stored and applied, and passes when it comes again', async () => {
    const tenant = await addVerifiable()
    const receiver = await startReceiver()
    expect(await checkOf(tenant, 'redelivery', { proveRedelivery: true })).toMatchObject({ ok: null })
    // A test of the webhook has no events.
    expect((await service.deliver(tenant, [])).status).toBe(200)
    const events = follow()
    expect((await service.deliver(tenant, events)).status).toBe(503)
    expect(await service.members(tenant)).toHaveLength(1)
    expect((await service.deliver(tenant, follow())).status).toBe(200)
    expect(await checkOf(tenant, 'redelivery')).toMatchObject({ ok: null })
    expect((await service.deliver(tenant, events.map(again))).json).toEqual({ accepted: 0, duplicates: 1 })
    expect(await checkOf(tenant, 'redelivery')).toMatchObject({ ok: true, seenAt: expect.any(String) })
    expect(receiver.received).toEqual([])
  })

  it('fails if the delivery does not come again within ten minutes', async () => {
    const tenant = await addVerifiable()
    await checkOf(tenant, 'redelivery', { proveRedelivery: true })
    expect((await service.deliver(tenant, follow())).status).toBe(503)
    await set(
      tenant,
      `redelivery_armed_at = now() - interval '12 minutes', redelivery_refused_at = now() - interval '11 minutes'`,
    )
    expect(await checkOf(tenant, 'redelivery')).toMatchObject({ ok: false, reason: 'redelivery_off' })
    // LINE may send it later nevertheless.
    await service.deliver(tenant, follow().map(again))
    expect(await checkOf(tenant, 'redelivery')).toMatchObject({ ok: true })
  })

  it('is not armed again within an hour, nor by a verification that does not ask for it', async () => {
    const tenant = await addVerifiable()
    await verify(tenant)
    expect((await service.deliver(tenant, follow())).status).toBe(200)
    await verify(tenant, { proveRedelivery: true })
    expect((await service.deliver(tenant, follow())).status).toBe(503)
    await verify(tenant, { proveRedelivery: true })
    expect((await service.deliver(tenant, follow())).status).toBe(200)
  })

  it('ends by itself if nothing is delivered for ten minutes', async () => {
    const tenant = await addVerifiable()
    await verify(tenant, { proveRedelivery: true })
    await set(tenant, `redelivery_armed_at = now() - interval '11 minutes'`)
    expect((await service.deliver(tenant, follow())).status).toBe(200)
    expect(await checkOf(tenant, 'redelivery')).toMatchObject({ ok: null })
  })

  it('refuses one of many deliveries that arrive together', async () => {
    const tenant = await addVerifiable()
    await verify(tenant, { proveRedelivery: true })
    const answers = await Promise.all(Array.from({ length: 50 }, () => service.deliver(tenant, follow())))
    expect(answers.filter(({ status }) => status === 503)).toHaveLength(1)
    expect(await service.members(tenant)).toHaveLength(50)
  })

  it('passes without having been armed if LINE sends something again', async () => {
    const tenant = await addVerifiable()
    await service.deliver(tenant, follow().map(again))
    expect(await checkOf(tenant, 'redelivery')).toMatchObject({ ok: true })
  })
})

describe('the other checks', () => {
  it('name both bots if a delivery was for another one', async () => {
    const tenant = await addVerifiable()
    await service.deliver(tenant, follow())
    expect(await checkOf(tenant, 'destination')).toMatchObject({ ok: true })
    await service.deliver({ ...tenant, botUserId: 'Uother' }, follow())
    const check = await checkOf(tenant, 'destination')
    expect(check).toMatchObject({ ok: false, reason: 'other_destination', seenAt: expect.any(String) })
    expect(check.message).toContain('Uother')
    expect(check.message).toContain(tenant.botUserId)
  })

  it('say how many deliveries were answered too late', async () => {
    const tenant = await addVerifiable()
    await service.deliver(tenant, follow())
    expect(await checkOf(tenant, 'response_time')).toMatchObject({ ok: true })
    await database.query('update delivery_hour set late = 1 where channel_oa_id = $1', [tenant.accountId])
    expect(await checkOf(tenant, 'response_time')).toMatchObject({ ok: false, reason: 'responded_late' })
  })

  it('say whether a module channel is attached, in any order of the events', async () => {
    const tenant = await addVerifiable()
    const module = (type: string, timestamp: number) => ({
      ...{ type: 'module', mode: 'active', timestamp, module: { type, botId: tenant.botUserId } },
      ...{ webhookEventId: hashKey('test', type, String(timestamp)).toString('hex') },
    })
    await service.deliver(tenant, [module('detached', 2_000)])
    await service.deliver(tenant, [module('attached', 1_000)])
    expect(await checkOf(tenant, 'module')).toMatchObject({ ok: false, reason: 'module_detached' })
    await service.deliver(tenant, [module('attached', 3_000)])
    expect(await checkOf(tenant, 'module')).toMatchObject({ ok: true, seenAt: new Date(3_000).toISOString() })
  })

  it('say whether ID tokens are of a stored login channel', async () => {
    const tenant = await addVerifiable()
    await set(tenant, `login_channel_ids = '{1}'`)
    const track = async (loginChannelId: string) => {
      const idToken = await platform.login.idToken({ userId: randomUserId(), loginChannelId })
      await service.track(tenant, [{ type: 'page', context: { idToken } }])
    }
    await track('1')
    expect(await checkOf(tenant, 'login_channels')).toMatchObject({ ok: true })
    await track('2')
    expect(await checkOf(tenant, 'login_channels')).toMatchObject({
      ok: false,
      reason: 'other_login_channel',
    })
    expect(await checkOf(tenant, 'tracking_key')).toMatchObject({ ok: true })
  })

  it('say whether callbacks of the support chat are refused', async () => {
    const tenant = await addVerifiable({ chatSecret: 'chat' })
    await service.chat(tenant, { event: 'conversation_created', id: 1 })
    expect(await checkOf(tenant, 'chat_secret')).toMatchObject({ ok: true })
    await service.chat({ ...tenant, chatSecret: 'wrong' }, { event: 'conversation_created', id: 2 })
    expect(await checkOf(tenant, 'chat_secret')).toMatchObject({ ok: false, reason: 'chat_secret_refused' })
  })
})

describe('the status of an account', () => {
  const reasonsOf = async (tenant: Tenant) => (await statusOf(database, tenant)).reasons

  it('is broken while its module channel is detached and nothing is delivered', async () => {
    const tenant = await addVerifiable()
    await set(tenant, `module_attached = false, module_at = now() - interval '1 hour'`)
    expect(await reasonsOf(tenant)).toContain('module_detached')
    await service.deliver(tenant, follow())
    await verify(tenant)
    expect(await reasonsOf(tenant)).not.toContain('module_detached')
  })

  it('is broken if a webhook test passed that did not arrive here', async () => {
    const tenant = await addVerifiable()
    await set(tenant, `webhook_tested_at = now() - interval '1 minute'`)
    expect(await reasonsOf(tenant)).toContain('answered_elsewhere')
    await service.deliver(tenant, [])
    await verify(tenant)
    expect(await reasonsOf(tenant)).not.toContain('answered_elsewhere')
  })
})
