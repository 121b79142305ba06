/** No secret and no personal text in any log line, error or metric, at any level; no user id at info or above. */

import { expect, it } from 'vitest'
import { freePort } from '../tools/prove/service.ts'
import { lineEvent, textMessage } from '../tools/simulator/events.ts'
import { simulatePlatform } from '../tools/simulator/platform.ts'
import { addTenant, createTestDatabase, urlOf } from './support/database.ts'
import { becomesWell, spawnService } from './support/process.ts'
import { signedDelivery } from './support/service.ts'

it.each(['trace', 'info'])('the whole traffic at level %s tells nothing', async (level) => {
  const { database, connection } = await createTestDatabase()
  const platform = await simulatePlatform()
  const { channelId, channelAccessToken } = platform.account
  const tenant = await addTenant(database, {
    channelId,
    channelAccessToken,
    chatSecret: 'chat-secret-of-test',
  })
  const metricsPort = await freePort()
  const service = await spawnService({
    DATABASE_URL: urlOf(connection),
    LOG_LEVEL: level,
    LINE_API_URL: platform.url,
    METRICS_PORT: String(metricsPort),
  })
  await becomesWell(service.url)
  const userId = 'Uperson-of-secrets-test'
  const said = 'the text that nobody else may read'
  const answers: string[] = []
  const call = async (method: string, path: string, headers: Record<string, string> = {}, body?: string) => {
    const response = await fetch(service.url + path, {
      method,
      headers,
      ...(body === undefined ? {} : { body }),
    })
    const text = await response.text()
    if (!response.ok) answers.push(text)
    return text
  }
  const good = signedDelivery(tenant, [
    textMessage(userId, said),
    { ...textMessage(userId, said), timestamp: 'never' },
    lineEvent('follow', '\u0000'),
  ])
  await call('POST', good.path, good.init.headers as Record<string, string>, good.init.body as string)
  await call('POST', good.path, { 'x-line-signature': 'forged' }, good.init.body as string)
  await call('POST', good.path, { ...(good.init.headers as Record<string, string>) }, `${good.init.body} `)
  await call(
    'POST',
    `/api/mbox/callback/${tenant.oaHash}`,
    {},
    JSON.stringify({ event: 'message_created', content: said }),
  )
  await call('POST', `/api/mbox/callback/${tenant.oaHash}x`, {}, '{}')
  await call(
    'POST',
    '/api/tracking',
    {},
    JSON.stringify({ writeKey: tenant.trackingKey, type: 'page', userId, properties: { said } }),
  )
  await call(
    'POST',
    '/api/tracking',
    {},
    JSON.stringify({ writeKey: `${tenant.trackingKey}x`, type: 'page', userId }),
  )
  const listed = await call('GET', `/api/audience?userId=${userId}`, tenant.headers)
  const id = JSON.parse(listed).data[0].id as string
  await call(
    'GET',
    `/api/audience?colour=${encodeURIComponent(said)}&limit=0&q=${encodeURIComponent(said)}`,
    tenant.headers,
  )
  await call('GET', '/api/audience', {
    ...tenant.headers,
    'x-client-secret': `${tenant.headers['x-client-secret']}x`,
  })
  await call('GET', '/api/audience', { ...tenant.headers, 'x-api-key': `${tenant.headers['x-api-key']}x` })
  await call(
    'PUT',
    `/api/audience/${id}`,
    { ...tenant.headers, 'content-type': 'application/json' },
    JSON.stringify({ externalId: said, tags: 'x' }),
  )
  await call('POST', '/api/line-oa/verify', tenant.headers)
  platform.misbehave((_, response) => response.writeHead(500).end(channelAccessToken))
  await call('POST', '/api/line-oa/verify', tenant.headers)
  // The database fails in the middle of everything: its messages would quote rows.
  await database.query('alter table audience_member rename column tags to labels')
  await call('GET', '/api/audience', tenant.headers)
  await call(
    'PUT',
    `/api/audience/${id}`,
    { ...tenant.headers, 'content-type': 'application/json' },
    '{"tags":["x"]}',
  )
  const again = signedDelivery(tenant, [textMessage(userId, said)])
  await call('POST', again.path, again.init.headers as Record<string, string>, again.init.body as string)
  await database.query(`alter table audience_member rename column labels to tags`)
  await database.query(
    `alter table event add constraint "none" check (payload not like '%${said}%') not valid`,
  )
  const refused = signedDelivery(tenant, [textMessage(userId, said)])
  await call(
    'POST',
    refused.path,
    refused.init.headers as Record<string, string>,
    refused.init.body as string,
  )
  await call('DELETE', `/api/audience/${id}`, tenant.headers)
  const metrics = await (await fetch(`http://127.0.0.1:${metricsPort}/metrics`)).text()
  await new Promise((resolve) => setTimeout(resolve, 300))

  expect(service.output()).toContain('"route":"/api/mbox/callback/:oaHash"')
  const told = [service.output(), metrics, ...answers].join('\n')
  const secrets = {
    channelSecret: tenant.channelSecret,
    channelAccessToken,
    chatSecret: tenant.chatSecret,
    clientSecret: tenant.headers['x-client-secret'],
    clientId: tenant.headers['x-client-id'],
    apiKey: tenant.headers['x-api-key'],
    oaHash: tenant.oaHash,
    trackingKey: tenant.trackingKey,
    said,
    encoded: encodeURIComponent(said),
  }
  for (const [name, secret] of Object.entries(secrets)) expect(told.includes(secret ?? '?'), name).toBe(false)
  if (level === 'info') expect(told).not.toContain(userId)
  await platform.close()
  await database.close()
})
