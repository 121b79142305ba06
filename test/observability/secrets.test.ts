/** No secret and no personal text appears in any log line, error or metric. No user id is logged at info or above. */
import { expect, it, onTestFinished } from 'vitest'
import { freePort } from '../../tools/prove/service.ts'
import { lineEvent, textMessage } from '../../tools/simulator/events.ts'
import { simulatePlatform } from '../../tools/simulator/platform.ts'
import { addTenant, createTestDatabase, urlOf } from '../support/database.ts'
import { becomesWell, eventually, runProgramAsync, spawnService } from '../support/process.ts'
import { signedDelivery } from '../support/service.ts'

const USER_ID = 'Uperson-of-secrets-test'
const TEXT = 'the text that nobody else may read'
const ENDPOINT_SECRET = `whsec_${Buffer.from('the secret of an endpoint: 32 b.').toString('base64')}`
const ENDPOINT_PATH = '/receive/unguessable-path-of-a-tool'

const CHAT_PATH = '/services/T0/unguessable-path-of-a-chat'
const CHANNEL_SECRET = `whsec_${Buffer.from('the secret of a notification webhook.').toString('base64')}`
const HEARTBEAT_PATH = '/ping/unguessable-path-of-a-watchdog'
const SMTP_PASSWORD = 'password-of-the-mail-server'

type Stage = Awaited<ReturnType<typeof setUp>>

async function setUp() {
  const { database, connection } = await createTestDatabase()
  const platform = await simulatePlatform()
  onTestFinished(() => platform.close())
  const { channelId, channelAccessToken, loginChannelId } = platform.account
  const idToken = await platform.login.idToken({ userId: USER_ID, loginChannelId })
  const tenant = await addTenant(database, {
    channelId,
    channelAccessToken,
    loginChannelIds: [loginChannelId],
    chatSecret: 'chat-secret-of-test',
  })
  await database.query(
    `insert into endpoint (channel_oa_id, url, format, secret, allow_private_network)
     select $1, $2, format, $3, true from unnest(array['line', 'members']) format`,
    [tenant.accountId, platform.url + ENDPOINT_PATH, ENDPOINT_SECRET],
  )
  await database.query(
    `insert into notification_channel (format, target, secret, allow_private_network)
     values ('slack', $1, null, true), ('slack', $2, null, true), ('webhook', $4, $3, true), ('email', 'night@example.com', null, false)`,
    [platform.url + CHAT_PATH, `http://127.0.0.1:9${CHAT_PATH}`, CHANNEL_SECRET, `${platform.url}/hook`],
  )
  await database.query(
    `insert into notification (notification_channel_id, kind) select id, 'platform_down' from notification_channel`,
  )
  const metricsPort = await freePort()
  const env = {
    DATABASE_URL: urlOf(connection),
    LOG_LEVEL: 'trace',
    LINE_API_URL: platform.url,
    METRICS_PORT: String(metricsPort),
    HEARTBEAT_URL: `http://127.0.0.1:9${HEARTBEAT_PATH}`,
    SMTP_URL: `smtp://ann:${SMTP_PASSWORD}@127.0.0.1:9?from=alerts@example.com`,
  }
  const service = await spawnService(env)
  await becomesWell(service.url)
  const refusals: string[] = []
  const call = async (
    method: string,
    path: string,
    headers: Record<string, string> = {},
    body?: string | object,
  ) => {
    const text = typeof body === 'object' ? JSON.stringify(body) : body
    const init = { method, headers, ...(text === undefined ? {} : { body: text }) }
    const response = await fetch(service.url + path, init)
    const answer = await response.text()
    if (!response.ok) refusals.push(answer)
    return answer
  }
  /** Everything that the service logged, refused and measured. */
  const published = async () => {
    const metrics = await (await fetch(`http://127.0.0.1:${metricsPort}/metrics`)).text()
    await call('GET', '/last-request')
    // Log lines are written in batches.
    const log = await eventually(
      async () => service.output(),
      (output) => /"route":"unknown"/.test(output),
    )
    return [log, metrics, ...refusals].join('\n')
  }
  return { database, platform, tenant, env, idToken, call, published }
}

async function sendDeliveries({ tenant, idToken, call }: Stage): Promise<void> {
  const { path, init } = signedDelivery(tenant, [
    textMessage(USER_ID, TEXT),
    { ...textMessage(USER_ID, TEXT), timestamp: 'never' },
    lineEvent('follow', '\u0000'),
  ])
  const headers = init.headers as Record<string, string>
  const body = init.body as string
  await call('POST', path, headers, body)
  await call('POST', path, { 'x-line-signature': 'forged' }, body)
  await call('POST', path, headers, `${body} `)
  await call('POST', `/api/mbox/callback/${tenant.oaHash}`, {}, { event: 'message_created', content: TEXT })
  await call('POST', `/api/mbox/callback/${tenant.oaHash}x`, {}, '{}')
  const page = { type: 'page', userId: USER_ID, properties: { said: TEXT } }
  await call('POST', '/api/tracking', {}, { writeKey: tenant.trackingKey, ...page })
  await call('POST', '/api/tracking', {}, { writeKey: `${tenant.trackingKey}x`, ...page })
  const proven = { writeKey: tenant.trackingKey, ...page }
  await call('POST', '/api/tracking', {}, { ...proven, context: { idToken } })
  await call('POST', '/api/tracking', { 'x-line-id-token': idToken }, proven)
  await call('POST', '/api/tracking', { 'x-line-id-token': `${idToken}x` }, proven)
  await call('POST', '/api/tracking', { 'x-line-id-token': idToken }, { ...proven, writeKey: 'unknown' })
}

async function callProtectedRoutes({ tenant: { headers }, platform, call }: Stage): Promise<string> {
  const listed = await call('GET', `/api/audience?userId=${USER_ID}`, headers)
  const id = JSON.parse(listed).data[0].id as string
  const text = encodeURIComponent(TEXT)
  await call('GET', `/api/audience?colour=${text}&limit=0&q=${text}`, headers)
  await call('GET', '/api/audience', { ...headers, 'x-client-secret': `${headers['x-client-secret']}x` })
  await call('GET', '/api/audience', { ...headers, 'x-api-key': `${headers['x-api-key']}x` })
  const json = { ...headers, 'content-type': 'application/json' }
  await call('PUT', `/api/audience/${id}`, json, { externalId: TEXT, tags: 'x' })
  await call('POST', '/api/line-oa/verify', headers)
  platform.misbehave((_, response) => response.writeHead(500).end(platform.account.channelAccessToken))
  await call('POST', '/api/line-oa/verify', headers)
  return id
}

/** The messages of database errors quote rows. */
async function breakDatabase({ database, tenant, call }: Stage, id: string): Promise<void> {
  const deliver = async () => {
    const { path, init } = signedDelivery(tenant, [textMessage(USER_ID, TEXT)])
    await call('POST', path, init.headers as Record<string, string>, init.body as string)
  }
  const json = { ...tenant.headers, 'content-type': 'application/json' }
  await database.query('alter table audience_member rename column tags to labels')
  await call('GET', '/api/audience', tenant.headers)
  await call('PUT', `/api/audience/${id}`, json, { tags: ['x'] })
  await deliver()
  await database.query('alter table audience_member rename column labels to tags')
  await database.query(
    `alter table event add constraint "none" check (payload not like '%${TEXT}%') not valid`,
  )
  await deliver()
  await call('DELETE', `/api/audience/${id}`, tenant.headers)
}

function secretsOf({ tenant, platform, idToken }: Stage): Record<string, string> {
  return {
    channelSecret: tenant.channelSecret,
    channelAccessToken: platform.account.channelAccessToken,
    chatSecret: tenant.chatSecret ?? '',
    clientSecret: tenant.headers['x-client-secret'],
    clientId: tenant.headers['x-client-id'],
    apiKey: tenant.headers['x-api-key'],
    oaHash: tenant.oaHash,
    trackingKey: tenant.trackingKey,
    idToken,
    text: TEXT,
    encodedText: encodeURIComponent(TEXT),
    endpointSecret: ENDPOINT_SECRET,
    endpointPath: ENDPOINT_PATH,
    chatPath: CHAT_PATH,
    notificationSecret: CHANNEL_SECRET,
    heartbeatPath: HEARTBEAT_PATH,
    smtpPassword: SMTP_PASSWORD,
  }
}

it('good, bad and failing requests publish no secret at level trace, and no user id at info or above', async () => {
  const stage = await setUp()
  await sendDeliveries(stage)
  await expect
    .poll(() => stage.platform.receipts.map(({ format }) => format))
    .toSatisfy((formats) => formats.includes('line') && formats.includes('members'))
  await breakDatabase(stage, await callProtectedRoutes(stage))
  const responses = await eventually(
    () =>
      stage.database.query<{ answer: string }>('select answer from notification where answer is not null'),
    (rows) => rows.length === 4,
  )
  const commands = await Promise.all(
    [
      ['doctor'],
      ['notifications', 'list'],
      ['notifications', 'show', '1'],
      ['notifications', 'test', '2', '--json'],
    ].map((args) => runProgramAsync(args, stage.env)),
  )
  const recorded = await stage.database.query('select to_jsonb(a)::text as row from activity a')
  const published = [await stage.published(), JSON.stringify([responses, commands, recorded])].join('\n')
  expect(published).toContain('notifications 2')
  expect(published).toContain('notifications.tested')
  expect(published).toContain('"route":"/api/mbox/callback/:oaHash"')
  for (const [name, secret] of Object.entries(secretsOf(stage)))
    expect(published.includes(secret), name).toBe(false)
  // Of the log lines, those at level trace or debug may name people.
  const others = published.split('\n').filter((line) => !/^{"level":[12]0,/.test(line))
  expect(others.join('\n')).not.toContain(USER_ID)
})
