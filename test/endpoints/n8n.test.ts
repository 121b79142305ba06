/** The workflows of examples/n8n, with what this service sends and answers. */
import { readdirSync } from 'node:fs'
import { expect, it } from 'vitest'
import { lineEvent, randomUserId, textMessage } from '../../tools/simulator/events.ts'
import { type Received, startReceiver, startSending } from '../support/endpoints.ts'
import { serveForTest } from '../support/http-server.ts'
import { loadMembers } from '../support/load.ts'
import { readWorkflow, runWorkflow, webhookItem } from '../support/n8n.ts'
import { setUpService } from '../support/service.ts'

it('n8n can import every workflow, and none has a secret', () => {
  const files = readdirSync(new URL('../../examples/n8n', import.meta.url))
  expect(files.toSorted()).toEqual(['receive-line-events.json', 'tag-members.json'])
  for (const file of files) expect(JSON.stringify(readWorkflow(file))).not.toMatch(/credentials|[0-9a-f]{32}/)
})

it('a workflow of n8n accepts deliveries that are signed, and has an item for each event', async () => {
  const { service, tenant, addEndpoint } = await startSending()
  const workflow = readWorkflow('receive-line-events.json')
  const entered = { 'Sign the bytes': { secret: tenant.channelSecret } }
  const outcomes: Array<Awaited<ReturnType<typeof runWorkflow>>> = []
  const url = await serveForTest(async (request, response) => {
    const body = Buffer.concat(await request.toArray())
    const outcome = await runWorkflow(workflow, webhookItem(request.headers, body), { entered })
    response.writeHead(outcome.status ?? 500).end()
    outcomes.push(outcome)
  })
  await addEndpoint(`${url}/webhook/oa-audience`, { replies: true })
  const events = [lineEvent('follow', randomUserId()), textMessage(randomUserId(), 'สวัสดี ☕\u2028"\\')]
  await service.deliver(tenant, events)
  await expect.poll(() => outcomes).toHaveLength(1)
  expect(outcomes[0]?.status).toBe(200)
  expect(outcomes[0]?.returned['One item for each event']).toEqual(events.map((json) => ({ json })))
})

it('a workflow of n8n refuses a body that is changed, signed with another secret, or not signed', async () => {
  const { service, tenant, addEndpoint } = await startSending()
  const receiver = await startReceiver()
  await addEndpoint(receiver.url)
  await service.deliver(tenant, [textMessage(randomUserId(), 'hello')])
  await expect.poll(() => receiver.received).toHaveLength(1)
  const { headers, body } = receiver.received[0] as Received
  const workflow = readWorkflow('receive-line-events.json')
  const { 'x-line-signature': _, ...unsigned } = headers
  for (const [given, sent, secret, status] of [
    [headers, body, tenant.channelSecret, 200],
    [headers, `${body} `, tenant.channelSecret, 403],
    [headers, body, 'another secret', 403],
    [unsigned, body, tenant.channelSecret, 403],
  ] as const) {
    const entered = { 'Sign the bytes': { secret } }
    const outcome = await runWorkflow(workflow, webhookItem(given, Buffer.from(sent)), { entered })
    expect(outcome.status).toBe(status)
    expect('One item for each event' in outcome.returned).toBe(status === 200)
  }
})

it('a workflow of n8n tags the followers once, and keeps their other tags', async () => {
  const { database, service, tenant } = await setUpService()
  await loadMembers(database, tenant, 3, {
    relationship: `case when i < 3 then 'following' else 'blocked' end`,
  })
  await service.put(tenant, (await service.member(tenant, 'U1'))?.id, { tags: ['vip'] })
  const given = { credential: tenant.headers, url: service.url }
  const workflow = readWorkflow('tag-members.json')
  const changed = (await runWorkflow(workflow, { json: {} }, given)).returned['Add the tag']
  expect(changed?.map(({ json }) => json.tags).toSorted()).toEqual([['n8n'], ['vip', 'n8n']])
  expect((await service.member(tenant, 'U3'))?.tags).toEqual([])
  const again = await runWorkflow(workflow, { json: {} }, given)
  expect('Add the tag' in again.returned).toBe(false)
  await database.query(`update api_key set status = 'revoked' where id = $1`, [tenant.keyId])
  await expect(runWorkflow(workflow, { json: {} }, given)).rejects.toThrow('The API key is not active')
})
