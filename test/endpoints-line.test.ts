/** CONTRACT: outgoing webhooks of the format `line`. */
import { createServer, type IncomingHttpHeaders } from 'node:http'
import type { AddressInfo } from 'node:net'
import { expect, it, onTestFinished } from 'vitest'
import { Sender } from '../src/endpoints/sender.ts'
import { signLine } from '../src/intake/line/signature.ts'
import { Secret } from '../src/secret.ts'
import { lineEvent, randomUserId, textMessage } from '../tools/simulator/events.ts'
import { eventually } from './support/process.ts'
import { setUpTest, startApp } from './support/service.ts'

interface Received {
  headers: IncomingHttpHeaders
  body: string
}

async function startReceiver(answer: () => number = () => 200) {
  const received: Received[] = []
  const server = createServer((request, response) => {
    let body = ''
    request.on('data', (chunk) => {
      body += chunk
    })
    request.on('end', () => {
      received.push({ headers: request.headers, body })
      response.writeHead(answer()).end('ok')
    })
  }).listen(0, '127.0.0.1')
  await new Promise((resolve) => server.once('listening', resolve))
  onTestFinished(() => void server.close())
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/webhook`, received }
}

it('forwards a delivery as LINE sent it, signed with the channel secret', async () => {
  const { database, tenant } = await setUpTest()
  const sender = new Sender(database, () => false)
  const service = await startApp(database, { handOver: sender.handOver })
  sender.start()
  const { url, received } = await startReceiver()
  await database.query(
    `insert into endpoint (channel_oa_id, url, replies, allow_private_network) values ($1, $2, true, true)`,
    [tenant.accountId, url],
  )
  const event = textMessage(randomUserId(), 'hello')
  expect((await service.deliver(tenant, [event])).status).toBe(200)
  await eventually(
    async () => received,
    (all) => all.length === 1,
  )
  const [{ headers, body }] = received as [Received]
  expect(JSON.parse(body)).toEqual({ destination: tenant.botUserId, events: [event] })
  expect(headers['x-line-signature']).toBe(signLine(body, new Secret(tenant.channelSecret)))
  await eventually(
    () => database.query('select from endpoint_delivery'),
    (rows) => rows.length === 0,
  )
  await sender.stop()
  await database.close()
})

it('retries until the endpoint accepts, and marks retries', async () => {
  const { database, tenant } = await setUpTest()
  const sender = new Sender(database, () => false)
  const service = await startApp(database, { handOver: sender.handOver })
  sender.start()
  let status = 500
  const { url, received } = await startReceiver(() => status)
  await database.query(
    `insert into endpoint (channel_oa_id, url, allow_private_network) values ($1, $2, true)`,
    [tenant.accountId, url],
  )
  await service.deliver(tenant, [lineEvent('follow', randomUserId())])
  await eventually(
    () => database.query('select status from endpoint_delivery where status = 500'),
    (rows) => rows.length === 1,
  )
  status = 200
  await database.query('update endpoint_delivery set due_at = now()')
  await eventually(
    () => database.query('select from endpoint_delivery'),
    (rows) => rows.length === 0,
  )
  const [first, second] = received.map(({ body }) => JSON.parse(body).events[0])
  expect(first).toMatchObject({ mode: 'standby', deliveryContext: { isRedelivery: false } })
  expect(first).not.toHaveProperty('replyToken')
  expect(second).toMatchObject({ mode: 'standby', deliveryContext: { isRedelivery: true } })
  await sender.stop()
  await database.close()
})
