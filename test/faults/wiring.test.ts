/** The table of docs/verify.md: each fault is injected on an account of its own, and named with its fix by what the table says. */
import { readFileSync } from 'node:fs'
import { describe, expect, it } from 'vitest'
import { refreshDueFigures } from '../../src/watch/account-figures.ts'
import { checkDueAccounts } from '../../src/watch/account-monitor.ts'
import { lineEvent, randomUserId } from '../../tools/simulator/events.ts'
import { randomAccount } from '../../tools/simulator/state.ts'
import { platformDay } from '../../tools/simulator/statistics.ts'
import { addTenant } from '../support/database.ts'
import { serveForTest } from '../support/http-server.ts'
import { verifierOn } from '../support/platform.ts'
import { statusOf } from '../support/status.ts'
import { setUpVerification } from '../support/verification.ts'

const { database, platform, service, verify, addVerifiable } = await setUpVerification()
const bystander = await addVerifiable()
/** A verification writes the counts of deliveries, which are otherwise written every few seconds. */
const writeCounts = () => verify(bystander)
const verifier = verifierOn(platform)
const follow = () => [lineEvent('follow', randomUserId())]
const DAY_MS = 86_400_000

/** A healthy account: 30 days old, with a delivery of a moment ago. */
async function wire() {
  const account = randomAccount('Corner Coffee')
  const state = platform.addAccount(account)
  const { channelId, channelSecret, channelAccessToken, botUserId } = account
  const tenant = await addTenant(database, { channelId, channelSecret, channelAccessToken, botUserId })
  const { accountId } = tenant
  state.settings.webhook = { endpoint: `${service.url}/api/line/${accountId}`, active: true }
  const set = (columns: string) =>
    database.query(`update official_account set ${columns} where id = $1`, [accountId])
  await set(`created_at = now() - interval '30 days'`)
  await service.deliver(tenant, follow())
  await writeCounts()
  /** What arrived so far, an hour ago. */
  const age = () =>
    database.query(
      `update delivery_hour set last_at = last_at - interval '1 hour', hour = hour - interval '1 hour' where channel_oa_id = $1`,
      [accountId],
    )
  return { account, tenant, set, age, statistics: state.statistics, settings: state.settings }
}
type Wired = Awaited<ReturnType<typeof wire>>

/** A server to which LINE's test goes instead of the service. */
const answering = async ({ settings }: Wired, status: number | null) => {
  settings.testOrigin = await serveForTest((request, response) => {
    request.resume()
    if (status !== null) response.writeHead(status, { location: service.url }).end()
  })
}
const wrongSecret = async ({ set, tenant, age }: Wired) => {
  await age()
  await set(`channel_secret = 'zzz'`)
  expect((await service.deliver(tenant, follow())).status).toBe(403)
}
const otherDestination = async ({ tenant }: Wired) => {
  await service.deliver({ ...tenant, botUserId: randomUserId() }, follow())
}
const module = (type: string) => ({ type: 'module', mode: 'active', timestamp: Date.now(), module: { type } })

/** By the first column of the table. */
const INJECT: Record<string, (wired: Wired) => unknown> = {
  'no channel secret is stored': ({ set }) => set('channel_secret = null'),
  'neither an access token nor channel id and secret is stored': ({ set }) =>
    set('channel_access_token = null, channel_id = null'),
  'the access token has a line break or another character that no token has': ({ set }) =>
    set(`channel_access_token = E'one\\ntwo'`),
  'the access token was revoked, or is none': ({ set }) => set(`channel_access_token = 'revoked'`),
  'the access token expires within seven days': ({ settings }) => {
    settings.tokenLifetimeSeconds = 3 * 86_400
  },
  'channel id and channel secret do not belong together': ({ set }) =>
    set(`channel_access_token = null, channel_secret = 'zzz'`),
  'LINE issues no token for the channel': ({ set }) => {
    platform.misbehave((_, response) => response.writeHead(403).end('{"message":"Forbidden"}'), /token/)
    return set('channel_access_token = null')
  },
  'the token belongs to another bot': ({ set }) => set(`bot_user_id = '${randomUserId()}'`),
  'the basic id is that of another account': ({ set }) => set(`basic_id = '@another'`),
  'no webhook URL is set': ({ settings }) => {
    settings.webhook = null
  },
  'the webhook URL is that of another service, or of another account here': ({ settings }) => {
    settings.webhook = { endpoint: 'https://chat.example.com/webhooks/line', active: true }
  },
  '"Use webhook" is off': ({ settings }) => {
    if (settings.webhook) settings.webhook.active = false
  },
  'the name does not resolve, the port is closed, or a firewall drops LINE': ({ settings }) => {
    settings.testOrigin = 'http://127.0.0.1:9'
  },
  'the certificate has expired, lacks its chain, or is for another name': async (wired) => {
    await answering(wired, 200)
    wired.settings.testOrigin = wired.settings.testOrigin?.replace('http:', 'https:') ?? null
  },
  'the webhook URL redirects, which LINE does not follow': (wired) => answering(wired, 301),
  'the webhook URL ends in a path that is none': (wired) => answering(wired, 404),
  'the service or a proxy answers too slowly': (wired) => answering(wired, null),
  'a proxy answers 200 itself': async (wired) => {
    await wired.age()
    await answering(wired, 200)
  },
  "the stored secret is not the channel's, or was reissued": wrongSecret,
  'the channel signs with the Switcher Secret of Chat Plus': wrongSecret,
  'the bot user id is wrong, or another channel has this webhook URL': otherDestination,
  'the account of a bot behind a module channel is missing': otherDestination,
  'the module channel was detached': ({ tenant }) => service.deliver(tenant, [module('detached')]),
  'two accounts have one bot': ({ tenant: { organizationId, botUserId, channelSecret } }) =>
    addTenant(database, { organizationId, botUserId: botUserId as string, channelSecret }),
  'webhook redelivery is off': async ({ tenant, set }) => {
    await verify(tenant, { proveRedelivery: true })
    expect((await service.deliver(tenant, follow())).status).toBe(503)
    await set(`redelivery_armed_at = redelivery_armed_at - interval '11 minutes',
               redelivery_refused_at = redelivery_refused_at - interval '11 minutes'`)
  },
  'LINE has suspended the account': ({ tenant }) =>
    service.deliver(tenant, [lineEvent('botSuspended', null)]),
  'LINE counted followers that were not delivered': async ({ tenant, statistics }) => {
    const yesterday = Date.now() - DAY_MS
    for (const [daysBefore, followers] of [
      [2, 5_000],
      [1, 5_000],
      [0, 5_100],
    ] as const)
      statistics.set(platformDay(yesterday - daysBefore * DAY_MS), { followers, blocks: 700 })
    const times = Array.from({ length: 40 }, () => ({ timestamp: yesterday, follow: { isUnblocked: false } }))
    await service.deliver(
      tenant,
      times.map((given) => lineEvent('follow', randomUserId(), given)),
    )
  },
  'LINE has never delivered, or stopped': ({ tenant: { accountId } }) =>
    database.query('delete from delivery_hour where channel_oa_id = $1', [accountId]),
  'a page uses another login channel or MINI App channel': async ({ tenant, set }) => {
    await set(`login_channel_ids = '{2000000001}'`)
    const idToken = await platform.login.idToken({ userId: randomUserId(), loginChannelId: '2000000002' })
    await service.track(tenant, [{ type: 'page', context: { idToken } }])
  },
  'the chat secret differs': async ({ tenant, set }) => {
    await set(`chat_secret = 'theirs'`)
    expect(
      (await service.chat({ ...tenant, chatSecret: 'ours' }, { event: 'conversation_created', id: 1 }))
        .status,
    ).toBe(403)
  },
  'the messages of the plan are used up, or 80 % of them': ({ settings }) => {
    settings.quota = { limit: 200, used: 200 }
  },
  'LINE does not respond for six hours': ({ tenant: { accountId }, set, settings }) => {
    settings.misbehaviour = (request) => request.socket.destroy()
    return set(`verified_at = now() - interval '7 hours'`).then(() =>
      database.query(
        `update account_check set checked_at = now() - interval '7 hours' where channel_oa_id = $1`,
        [accountId],
      ),
    )
  },
}

const rows = readFileSync(new URL('../../docs/verify.md', import.meta.url), 'utf8')
  .split('\n')
  .filter((line) => line.startsWith('| ') && !line.startsWith('| fault '))
  .map((line) => {
    const [, fault = '', checks = '', reasons = ''] = line.split('|').map((cell) => cell.trim())
    const codesIn = (cell: string) => [...cell.matchAll(/`([a-z_]+)`/g)].map(([, code]) => code as string)
    return { fault, checks: codesIn(checks), reasons: codesIn(reasons) }
  })

const reasonsOf = async ({ tenant }: Wired) =>
  (await statusOf(database, tenant)).explained.map(({ reason, fix }) => ({ reason, fix }))

/** What the service does within the hour by itself. */
async function passAnHour({ tenant: { accountId } }: Wired) {
  await writeCounts()
  await database.query(
    `update account_check set due_at = case channel_oa_id when $1 then now() else 'infinity' end,
            count_due_at = case channel_oa_id when $1 then now() else 'infinity' end`,
    [accountId],
  )
  while ((await checkDueAccounts(database, verifier)) > 0);
  // The first pass counts the days that the second one compares.
  for (let pass = 1; pass <= 2; pass += 1) {
    await database.query('update account_check set count_due_at = now() where channel_oa_id = $1', [
      accountId,
    ])
    while ((await refreshDueFigures(database)) > 0);
  }
}

it('has at least 24 rows, and a way to inject each', () => {
  expect(rows.length).toBeGreaterThanOrEqual(24)
  expect(Object.keys(INJECT)).toEqual(rows.map(({ fault }) => fault))
})

it('finds nothing wrong with an account that is wired correctly', async () => {
  const wired = await wire()
  await passAnHour(wired)
  expect((await verify(wired.tenant, { testWebhook: true })).json).toMatchObject({ verified: true })
  expect(await reasonsOf(wired)).toEqual([])
})

describe.each(rows)('$fault', ({ fault, checks, reasons }) => {
  it('is named with its fix', async () => {
    const wired = await wire()
    await INJECT[fault]?.(wired)
    const testsWebhook =
      checks.some((code) => code.startsWith('test_')) || reasons.includes('answered_elsewhere')
    if (!testsWebhook) {
      await passAnHour(wired)
      const found = await reasonsOf(wired)
      if (reasons.length > 0)
        expect(found).toContainEqual({
          reason: expect.toSatisfy((reason: string) => reasons.includes(reason)),
          fix: expect.stringMatching(/\S/),
        })
    }
    if (fault.startsWith('LINE does not respond')) return
    const { status, json } = await verify(wired.tenant, { testWebhook: testsWebhook })
    expect(status).toBe(200)
    const failed = json.checks
      .filter(({ ok }: { ok: boolean | null }) => ok === false)
      .map(({ reason }: { reason: string }) => reason)
    if (checks.length > 0)
      expect(failed).toContainEqual(expect.toSatisfy((code: string) => checks.includes(code)))
    // Until then, the arrival of the test may not be counted yet.
    if (reasons.includes('answered_elsewhere'))
      await wired.set(`webhook_tested_at = webhook_tested_at - interval '1 minute'`)
    if (testsWebhook)
      expect(await reasonsOf(wired)).toContainEqual({
        reason: expect.toSatisfy((reason: string) => reasons.includes(reason)),
        fix: expect.stringMatching(/\S/),
      })
  })
})
