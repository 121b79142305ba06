/** What the status of an account and a verification take as proof that deliveries of LINE arrive. */
import { expect, it } from 'vitest'
import { findAccount } from '../../src/accounts/account.ts'
import { verifyAccount } from '../../src/accounts/verify.ts'
import { hashKey } from '../../src/intake/event-fields.ts'
import { lineEvent, randomUserId } from '../../tools/simulator/events.ts'
import type { Tenant } from '../support/database.ts'
import { startReceiver } from '../support/endpoints.ts'
import { verifierOn } from '../support/platform.ts'
import { startApp } from '../support/service.ts'
import { statusOf } from '../support/status.ts'
import { setUpVerification } from '../support/verification.ts'

const { database, platform, service, addVerifiable, verify } = await setUpVerification()

const follow = () => [lineEvent('follow', randomUserId())]

/** On a service that is closed afterwards, which writes the counts of deliveries. */
async function deliver(tenant: Tenant, channelSecret = tenant.channelSecret) {
  const own = await startApp(database)
  const { status } = await own.deliver({ ...tenant, channelSecret }, follow())
  await own.app.close()
  return status
}

/** As every hour, without a test. */
async function verifyUnasked({ accountId }: Tenant) {
  const account = await findAccount(database, accountId)
  if (account === null) throw new Error('no account')
  await verifyAccount({ database, ...verifierOn(platform) }, account, {}, false)
}

const set = ({ accountId }: Tenant, columns: string) =>
  database.query(`update official_account set ${columns} where id = $1`, [accountId])

/** An account that LINE has delivered to, and whose stored secret is now another one than LINE's. */
async function addWithWrongSecret() {
  const tenant = await addVerifiable()
  expect(await deliver(tenant)).toBe(200)
  await set(tenant, `channel_secret = 'zzz'`)
  return tenant
}

it('a webhook test that LINE reports as failed is explained by its reason: a refused signature by the secret', async () => {
  const tenant = await addWithWrongSecret()
  await verify(tenant, { testWebhook: true })
  const { status, explained } = await statusOf(database, tenant)
  expect(status).toBe('broken')
  expect(explained[0]).toMatchObject({
    reason: 'webhook_test_failed',
    facts: { check: { reason: 'test_signature_refused', status: 403 } },
    message:
      'This service refused the signature of the test delivery (status 403): the stored channel secret differs from the channel’s.',
    fix: `Store the channel secret that LINE's console shows. Run oa-audience accounts update ${tenant.accountId} --channel-secret -`,
  })
})

it('a webhook test that LINE reports as failed does not blame the secret for the 403 of another service', async () => {
  const tenant = await addVerifiable()
  await deliver(tenant)
  platform.settings.webhook = { endpoint: 'https://other.example.com/hook', active: true }
  platform.misbehave((_, response) => {
    const test = { success: false, timestamp: new Date().toISOString(), statusCode: 403 }
    response
      .writeHead(200, { 'content-type': 'application/json' })
      .end(JSON.stringify({ ...test, reason: 'ERROR_STATUS_CODE', detail: '403' }))
  }, /webhook\/test/)
  const { json } = await verify(tenant, { testWebhook: true })
  const check = json.checks.find(({ name }: { name: string }) => name === 'webhook_test')
  expect(check).toMatchObject({ reason: 'test_error_status', status: 403 })
  expect(check.message).not.toContain('secret')
})

it('a webhook test that LINE reports as failed stays failed after verifications without a test, and after a change of other fields', async () => {
  const tenant = await addWithWrongSecret()
  await verify(tenant, { testWebhook: true })
  expect((await verify(tenant)).json.verified).toBe(true)
  expect(await statusOf(database, tenant)).toMatchObject({
    status: 'broken',
    reasons: ['webhook_test_failed', 'line_signature_refused', 'never_delivered'],
  })
  await verifyUnasked(tenant)
  await set(tenant, 'verification = null, verified_at = null')
  expect((await statusOf(database, tenant)).reasons[0]).toBe('webhook_test_failed')
})

it('a webhook test that LINE reports as failed is over when LINE delivers', async () => {
  const tenant = await addVerifiable()
  await deliver(tenant)
  platform.settings.webhook = { endpoint: `http://127.0.0.1:9/api/line/${tenant.accountId}`, active: true }
  await verify(tenant, { testWebhook: true })
  expect((await statusOf(database, tenant)).reasons).toEqual(['webhook_test_failed'])
  // An earlier delivery with a wrong signature is not one.
  expect(await deliver(tenant, 'wrong')).toBe(403)
  expect((await statusOf(database, tenant)).reasons).toContain('webhook_test_failed')
  expect(await deliver(tenant)).toBe(200)
  expect(await statusOf(database, tenant)).toMatchObject({ status: 'ok', reasons: [] })
})

it('a webhook test that LINE reports as failed because of the secret is over when the secret is replaced, which no delivery has proven yet', async () => {
  const tenant = await addWithWrongSecret()
  await verify(tenant, { testWebhook: true })
  await set(tenant, `channel_secret = '${tenant.channelSecret}'`)
  expect(await statusOf(database, tenant)).toMatchObject({ status: 'quiet', reasons: ['never_delivered'] })
})

it('a changed channel secret is not proven by deliveries before the change', async () => {
  const tenant = await addWithWrongSecret()
  const { status, reasons, explained } = await statusOf(database, tenant)
  expect({ status, reasons }).toEqual({ status: 'quiet', reasons: ['never_delivered'] })
  expect(explained[0]).toMatchObject({
    message: expect.stringMatching(
      /^LINE has not delivered anything since the channel secret was changed \d+ s ago\.$/,
    ),
    fix: `Verify the account with a test delivery. Run oa-audience accounts verify ${tenant.accountId} --test-webhook`,
  })
})

it('a changed channel secret is wrong if the first delivery after it is refused, and proven if it is accepted', async () => {
  const tenant = await addWithWrongSecret()
  expect(await deliver(tenant)).toBe(403)
  expect(await statusOf(database, tenant)).toMatchObject({
    status: 'broken',
    reasons: ['line_signature_refused', 'never_delivered'],
  })
  await set(tenant, `channel_secret = '${tenant.channelSecret}'`)
  expect((await statusOf(database, tenant)).reasons).toEqual(['never_delivered'])
  expect(await deliver(tenant)).toBe(200)
  expect(await statusOf(database, tenant)).toMatchObject({ status: 'ok', reasons: [] })
})

it('a changed channel secret is not one that was only encrypted', async () => {
  const tenant = await addVerifiable()
  await deliver(tenant)
  await database.transaction(async (transaction) => {
    await transaction.query(`select set_config('oa_audience.encrypts', 'on', true)`)
    await transaction.query(`update official_account set channel_secret = 'x' where id = $1`, [
      tenant.accountId,
    ])
  })
  expect((await statusOf(database, tenant)).reasons).toEqual([])
})

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

const again = (event: object) => ({ ...event, deliveryContext: { isRedelivery: true } })

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
  expect((await verify(tenant)).json.verified).toBe(true)
  await set(tenant, `channel_secret = 'changed'`)
  expect(await checkOf(tenant, 'channel_secret')).toMatchObject({ ok: null, seenAt: null })
})

it('the proof of redelivery refuses the next delivery once, which is stored and applied, and passes when it comes again', async () => {
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

it('the proof of redelivery is not armed again within an hour, nor by a verification that does not ask for it', async () => {
  const tenant = await addVerifiable()
  await verify(tenant)
  expect((await service.deliver(tenant, follow())).status).toBe(200)
  await verify(tenant, { proveRedelivery: true })
  expect((await service.deliver(tenant, follow())).status).toBe(503)
  await verify(tenant, { proveRedelivery: true })
  expect((await service.deliver(tenant, follow())).status).toBe(200)
})

it('the proof of redelivery ends by itself if nothing is delivered for ten minutes', async () => {
  const tenant = await addVerifiable()
  await verify(tenant, { proveRedelivery: true })
  await set(tenant, `redelivery_armed_at = now() - interval '11 minutes'`)
  expect((await service.deliver(tenant, follow())).status).toBe(200)
  expect(await checkOf(tenant, 'redelivery')).toMatchObject({ ok: null })
})

it('the proof of redelivery refuses one of many deliveries that arrive together', async () => {
  const tenant = await addVerifiable()
  await verify(tenant, { proveRedelivery: true })
  const answers = await Promise.all(Array.from({ length: 50 }, () => service.deliver(tenant, follow())))
  expect(answers.filter(({ status }) => status === 503)).toHaveLength(1)
  expect(await service.members(tenant)).toHaveLength(50)
})

it('the other checks say how many deliveries were answered too late, and fail if they are more than 1 %', async () => {
  const tenant = await addVerifiable()
  await service.deliver(tenant, follow())
  expect(await checkOf(tenant, 'response_time')).toMatchObject({ ok: true })
  const storeLate = (late: number) =>
    database.query('update delivery_hour set deliveries = 200, late = $2 where channel_oa_id = $1', [
      ...[tenant.accountId, late],
    ])
  await storeLate(2)
  expect(await checkOf(tenant, 'response_time')).toMatchObject({ ok: true })
  await storeLate(3)
  expect(await checkOf(tenant, 'response_time')).toMatchObject({ ok: false, reason: 'responded_late' })
})

it('the other checks say whether a module channel is attached, in any order of the events', async () => {
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
