/** A stored secret that no key reads: only the work of its account fails, with a reason, and is retried. */
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { beforeEach, expect, it, onTestFinished } from 'vitest'
import { ProfileFiller } from '../../src/audience/profiles.ts'
import { Sender } from '../../src/endpoints/sender.ts'
import { startFollowersImport, startOnboarding } from '../../src/jobs/onboard-accounts.ts'
import { takeTurn } from '../../src/jobs/turn.ts'
import { LineApi } from '../../src/line-api/client.ts'
import { commandActor } from '../../src/operators/actor.ts'
import { checkDueAccounts } from '../../src/watch/account-monitor.ts'
import { addPeople } from '../../tools/simulator/deliveries.ts'
import { lineEvent, randomUserId } from '../../tools/simulator/events.ts'
import { runCommand } from '../support/command.ts'
import { startSignedIn } from '../support/console.ts'
import { addTenant, type Tenant } from '../support/database.ts'
import { startReceiver } from '../support/endpoints.ts'
import { insertRow, load } from '../support/load.ts'
import { addChannel, addNotification, startOutbox } from '../support/notifications.ts'
import { startPlatform, verifierOn } from '../support/platform.ts'
import { eventually, temporaryDirectory } from '../support/process.ts'
import { createEncrypted } from '../support/secret-keys.ts'
import { startApp } from '../support/service.ts'

const REASON = 'not sent: no key of SECRETS_KEYS reads a stored secret'

const { plain, database, env } = await createEncrypted()
const platform = await startPlatform()
const service = await startApp(database)
const verifier = verifierOn(platform)
const { operator } = await startSignedIn(database, { lineApiUrl: platform.url })

let broken: Tenant
let healthy: Tenant

const deliver = (tenant: Tenant, userId = randomUserId()) =>
  service.deliver(tenant, [lineEvent('follow', userId)])

/** As a program that copies a value from one row to another. */
const copySecret = (from: Tenant, to: Tenant) =>
  load(
    plain,
    `update official_account set channel_secret = (select channel_secret from official_account where id = $1) where id = $2`,
    [from.accountId, to.accountId],
  )

beforeEach(async () => {
  await load(plain, 'truncate official_account, endpoint, notification_channel, job cascade')
  const { channelAccessToken } = platform.account
  broken = await addTenant(database, { channelAccessToken, chatSecret: 'a chat secret' })
  healthy = await addTenant(database, { channelAccessToken })
  expect((await deliver(broken)).status).toBe(200)
})

it('an account with an unreadable secret is refused with 503 until an operator stores the secret again, and others are not', async () => {
  await copySecret(healthy, broken)
  const refusals = [
    await deliver(broken),
    await service.chat(broken, { event: 'conversation_updated' }),
    await service.call('POST', '/api/line-oa/verify', { headers: broken.headers }),
  ]
  for (const { status, json } of refusals)
    expect([status, json.message]).toEqual([503, expect.stringContaining('SECRETS_KEYS')])
  expect((await deliver(healthy)).status).toBe(200)
  expect((await service.members(broken)).length).toBe(1)
  expect((await operator.get(`/api/accounts/${broken.accountId}`)).status).toBe(200)
  const { channelSecret } = broken
  const stored = await operator.post(`/api/accounts/${broken.accountId}/update`, { channelSecret })
  expect([stored.status, stored.text]).toEqual([expect.toBeOneOf([200, 204]), expect.any(String)])
  expect((await deliver(broken)).status).toBe(200)
})

it('an account with an unreadable secret is not checked with LINE, which the result explains, and others are checked', async () => {
  await copySecret(healthy, broken)
  await load(plain, 'update account_check set due_at = now()')
  await checkDueAccounts(database, verifier)
  const checks = await load(plain, 'select channel_oa_id as id, fault from account_check order by 1')
  const fault = expect.stringContaining('no key of SECRETS_KEYS reads official_account.channel_secret')
  expect(checks).toEqual([
    { id: broken.accountId, fault },
    { id: healthy.accountId, fault: null },
  ])
})

it('an account with an unreadable secret gets no profiles for a while, and others do', async () => {
  const [userId = ''] = addPeople(platform, 1)
  await deliver(healthy, userId)
  await deliver(broken, userId)
  await copySecret(healthy, broken)
  await load(plain, 'update audience_member set profile_due_at = now()')
  const filler = new ProfileFiller(database, new LineApi(platform.url))
  while ((await filler.pass()) > 0);
  await load(plain, 'update audience_member set profile_due_at = now() where display_name is null')
  expect(await filler.pass()).toBe(0)
  expect((await service.member(healthy, userId))?.displayName).not.toBe(null)
  expect((await service.member(broken, userId))?.displayName).toBe(null)
})

it('an account with an unreadable secret ends its own jobs with a reason, and is one problem of the jobs of several accounts', async () => {
  await copySecret(healthy, broken)
  const accounts = [broken, healthy].map((tenant) => ({ ...tenant, id: tenant.accountId, name: '' }))
  await plain.transaction(async (transaction) => {
    for (const account of accounts) await startFollowersImport(transaction, commandActor(), account)
    await startOnboarding(transaction, commandActor(), accounts, false)
  })
  const turn = () => takeTurn(database, { platform: verifier }).catch((error) => error.name)
  while ((await turn()) !== false);
  const jobs = await load<{ tally: { problems?: unknown[] } }>(
    plain,
    'select kind, channel_oa_id as account, status, reason, tally from job order by id',
  )
  expect(jobs).toMatchObject([
    { account: broken.accountId, status: 'failed', reason: 'secret_unreadable' },
    { account: healthy.accountId, status: 'done' },
    { kind: 'accounts.onboard', status: 'done' },
  ])
  expect(jobs[2]?.tally.problems).toContainEqual({
    accountId: String(broken.accountId),
    problem: expect.stringContaining('no key of SECRETS_KEYS'),
  })
})

it.each(['line', 'members'])(
  'an endpoint with an unreadable secret of the format %s is retried later with a reason, and then receives everything',
  async (format) => {
    const receiver = await startReceiver()
    const secret = 'whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE='
    const add = ({ accountId }: Tenant) =>
      insertRow(plain, 'endpoint', {
        ...{ channel_oa_id: accountId, url: receiver.url, format, secret, allow_private_network: true },
      })
    const [id, other] = [await add(broken), await add(healthy)]
    await deliver(broken)
    await copySecret(healthy, broken)
    await load(plain, `update endpoint set secret = 'enc:v1:lost:AAAA' where id = $1`, [id])
    // Without a handover, the lease of the flush ends after 30 s.
    await load(plain, `update endpoint_delivery set leased_until = '-infinity', due_at = now()`)
    const sender = new Sender(database, () => false)
    sender.start()
    onTestFinished(() => sender.stop())
    const attemptsOf = () =>
      load<{ attempts: number; answer: string; isLater: boolean }>(
        plain,
        `select attempts, answer, due_at > now() + interval '2 s' as "isLater" from endpoint_delivery where endpoint_id = $1`,
        [id],
      )
    const [tried] = await eventually(attemptsOf, ([row]) => row?.answer === REASON)
    expect(tried).toMatchObject({ answer: REASON, isLater: true })
    expect(await load(plain, 'select reason from endpoint_attempt where endpoint_id = $1', [id])).toEqual([
      { reason: REASON },
    ])
    await deliver(healthy)
    await load(
      plain,
      `update endpoint_delivery set leased_until = '-infinity', due_at = now() where endpoint_id = $1`,
      [other],
    )
    await expect.poll(() => receiver.received.length).toBeGreaterThan(0)
    expect((await attemptsOf())[0]?.attempts).toBe(tried?.attempts)
    const before = receiver.received.length
    await operator.post(`/api/accounts/${broken.accountId}/update`, { channelSecret: broken.channelSecret })
    await load(plain, 'update endpoint set secret = $2 where id = $1', [id, secret])
    await load(plain, 'update endpoint_delivery set due_at = now()')
    await expect.poll(() => receiver.received.length).toBeGreaterThan(before)
    await expect.poll(attemptsOf).toEqual([])
  },
)

it('a notification channel with an unreadable target is retried later with a reason, is shown without its target, and can get a new one', async () => {
  const receiver = await startReceiver()
  const add = (target: string) => addChannel(plain, { target })
  const [lost, other] = [await add('enc:v1:lost:AAAA'), await add(receiver.url)]
  for (const id of [lost, other]) await addNotification(plain, id, [], { kind: 'test', reason: null })
  startOutbox(database)
  const stateOf = (id: bigint) =>
    load<{ answer: string | null; isSent: boolean; isLater: boolean }>(
      plain,
      `select answer, sent_at is not null as "isSent", due_at > now() + interval '2 s' as "isLater"
         from notification where notification_channel_id = $1`,
      [id],
    )
  await expect.poll(() => stateOf(other)).toMatchObject([{ isSent: true }])
  const retriedLater = { answer: REASON, isSent: false, isLater: true }
  await expect.poll(() => stateOf(lost)).toEqual([retriedLater])
  const { json } = await operator.get('/api/notifications')
  expect(JSON.stringify(json)).not.toContain('enc:v1')
  const updated = await runCommand(['notifications', 'update', String(lost), '--target', receiver.url], env)
  expect(updated.stderr).toBe('')
  await load(plain, 'update notification set due_at = now()')
  await expect.poll(() => stateOf(lost)).toMatchObject([{ isSent: true }])
})

const FAKE = 'enc:v1:2026a:AAAA'
const refusal = 'must not begin with enc:v1: as encrypted values do. Enter the secret itself.'

it.each(['channelSecret', 'channelAccessToken', 'chatSecret'])(
  'a text that looks encrypted is refused as %s by the console',
  async (field) => {
    const detail = { details: [{ path: field, message: refusal }] }
    const updated = await operator.post(`/api/accounts/${broken.accountId}/update`, { [field]: FAKE })
    expect([updated.status, updated.json]).toEqual([400, expect.objectContaining(detail)])
    const organization = String(broken.organizationId)
    const added = await operator.post('/api/accounts', { organization, name: 'x', [field]: FAKE })
    expect([added.status, added.json]).toEqual([400, expect.objectContaining(detail)])
  },
)

it('a text that looks encrypted is refused by every command', async () => {
  const file = join(temporaryDirectory(), 'accounts.csv')
  writeFileSync(file, `organization,channel_id,name,chat_secret\n${broken.organizationId},123,Shop,${FAKE}\n`)
  const account = String(broken.accountId)
  const named = ['--organization', String(broken.organizationId), '--name', 'x']
  const commands = [
    ['accounts', 'update', account, '--channel-secret', FAKE],
    ['accounts', 'add', ...named, '--chat-secret', FAKE],
    ['accounts', 'apply', file, '--no-webhook'],
    ['setup', '--organization-name', 'x', '--name', 'x', '--channel-id', '1', '--channel-secret', FAKE],
  ]
  for (const command of commands) {
    const { status, stderr } = await runCommand(command, env)
    expect({ status, stderr }).toEqual({ status: 1, stderr: expect.stringContaining(refusal) })
    expect(stderr).not.toContain('AAAA')
  }
  const slack = ['notifications', 'add', '--format', 'slack', '--target', FAKE]
  expect((await runCommand(slack, env)).status).toBe(1)
  expect(
    await load(plain, `select from official_account where chat_secret like 'enc:v1:2026a:AAAA'`),
  ).toEqual([])
})
