/** What the status of an account takes as proof that deliveries of LINE arrive: its last webhook test, and deliveries with the present secret. */
import { describe, expect, it } from 'vitest'
import { findAccountOn } from '../src/accounts/account.ts'
import { verifyAccount } from '../src/accounts/verify.ts'
import { lineEvent } from '../tools/simulator/events.ts'
import type { Tenant } from './support/database.ts'
import { verifierOn } from './support/platform.ts'
import { startApp } from './support/service.ts'
import { statusOf } from './support/status.ts'
import { setUpVerification } from './support/verification.ts'

const { database, platform, addVerifiable, verify } = await setUpVerification()

const follow = [lineEvent('follow', 'U1')]

/** On a service that is closed afterwards, which writes the counts of deliveries. */
async function deliver(tenant: Tenant, channelSecret = tenant.channelSecret) {
  const own = await startApp(database)
  const { status } = await own.deliver({ ...tenant, channelSecret }, follow)
  await own.app.close()
  return status
}

/** As every hour, without a test. */
async function verifyUnasked({ accountId }: Tenant) {
  const account = await findAccountOn(database, accountId)
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

describe('a webhook test that LINE reports as failed', () => {
  it('is explained by its reason: a refused signature by the secret', async () => {
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

  it('does not blame the secret for the 403 of another service', async () => {
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

  it('is explained by reachability if LINE cannot connect', async () => {
    const tenant = await addVerifiable()
    await deliver(tenant)
    platform.settings.webhook = { endpoint: `http://127.0.0.1:9/api/line/${tenant.accountId}`, active: true }
    await verify(tenant, { testWebhook: true })
    expect((await statusOf(database, tenant)).explained[0]).toMatchObject({
      reason: 'webhook_test_failed',
      message: expect.stringMatching(/^The platform cannot connect to the webhook URL/),
      fix: expect.stringMatching(/PUBLIC_URL .* Run oa-audience accounts verify \d+ --test-webhook$/),
    })
  })

  it('stays failed after verifications without a test, and after a change of other fields', async () => {
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

  it('is over when LINE delivers', async () => {
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

  it('is over when a test passes', async () => {
    const tenant = await addVerifiable()
    await deliver(tenant)
    const { webhook } = platform.settings
    platform.settings.webhook = { endpoint: `http://127.0.0.1:9/api/line/${tenant.accountId}`, active: true }
    await verify(tenant, { testWebhook: true })
    platform.settings.webhook = webhook
    await verify(tenant, { testWebhook: true })
    expect((await statusOf(database, tenant)).reasons).toEqual([])
  })

  it('because of the secret is over when the secret is replaced, which no delivery has proven yet', async () => {
    const tenant = await addWithWrongSecret()
    await verify(tenant, { testWebhook: true })
    await set(tenant, `channel_secret = '${tenant.channelSecret}'`)
    expect(await statusOf(database, tenant)).toMatchObject({ status: 'quiet', reasons: ['never_delivered'] })
  })
})

describe('a changed channel secret', () => {
  it('is not proven by deliveries before the change', async () => {
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

  it('is wrong if the first delivery after it is refused, and proven if it is accepted', async () => {
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

  it('is not one that was only encrypted', async () => {
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
})
