/** Test deliveries: what an operator sends to an endpoint to try it. */
import { Webhook } from 'standardwebhooks'
import { expect, it } from 'vitest'
import { Secret } from '../../src/config/secret.ts'
import { EndpointTester } from '../../src/endpoints/test-delivery.ts'
import { signLine } from '../../src/line-api/line-signature.ts'
import { runCommand } from '../support/command.ts'
import { addTenant, createTestDatabase } from '../support/database.ts'
import { type Receiver, startReceiver } from '../support/endpoints.ts'
import { gate } from '../support/gate.ts'
import { insertRow } from '../support/load.ts'

const { database, env } = await createTestDatabase()
const tenant = await addTenant(database)
const newTester = () => new EndpointTester((url) => url.hostname === 'oa.example.com')

const add = (url: string, columns: Record<string, unknown> = {}) =>
  insertRow(database, 'endpoint', {
    ...{ channel_oa_id: tenant.accountId, url, allow_private_network: true },
    ...columns,
  })

const only = ({ received: [first] }: Receiver) => first as Receiver['received'][number]

it('sends a paused endpoint of the format line an empty list of events, signed, and changes nothing of it', async () => {
  const receiver = await startReceiver()
  receiver.answer = { status: 500, body: 'the channel secret is wrong' }
  const id = await add(`${receiver.url}?token=hidden`, { status: 'paused' })
  const result = await newTester().test(database, id)
  const { body, headers, path } = only(receiver)
  expect(path).toBe('/webhook?token=hidden')
  expect(body).toBe(`{"destination":"${tenant.botUserId}","events":[]}`)
  expect(headers['x-line-signature']).toBe(signLine(body, new Secret(tenant.channelSecret)))
  expect(result).toMatchObject({
    request: { url: `${receiver.url}?…`, headers: { 'user-agent': 'LineBotWebhook/2.0' }, body },
    response: { status: 500, body: 'the channel secret is wrong', isCut: false },
  })
  expect(await database.query('select status from endpoint where id = $1', [id])).toEqual([
    { status: 'paused' },
  ])
  for (const table of ['endpoint_answer', 'endpoint_attempt', 'endpoint_delivery'])
    expect(await database.query(`select from ${table} where endpoint_id = $1`, [id])).toEqual([])
})

it('sends an endpoint of the format members a message that a library of Standard Webhooks verifies', async () => {
  const receiver = await startReceiver()
  const id = await add(receiver.url, { format: 'members', events: ['member.erased'] })
  const [row] = await database.query<{ secret: string }>('select secret from endpoint where id = $1', [id])
  const result = await newTester().test(database, id)
  expect(result?.response).toMatchObject({ status: 200, body: 'ok' })
  const { body, headers } = only(receiver)
  const message = new Webhook(row?.secret ?? '').verify(body, headers as Record<string, string>)
  expect(message).toEqual({
    type: 'endpoint.test',
    timestamp: expect.any(String),
    data: { endpointId: String(id) },
  })
  expect(JSON.stringify(result)).not.toContain(row?.secret)
})

it('shows the beginning of a long response without cookies and characters that forge lines', async () => {
  const receiver = await startReceiver()
  const headers = { 'set-cookie': 'session=hidden', 'x-long': 'x'.repeat(5_000) }
  receiver.answer = { status: 400, headers, body: `\u001b[2Jred\u202e\r\nnext${'y'.repeat(10_000)}` }
  const { response } = (await newTester().test(database, await add(receiver.url))) ?? {}
  expect(response).toMatchObject({ status: 400, isCut: true })
  expect(response?.body).toMatch(/^\ufffd\[2Jred\ufffd\nnexty+$/)
  expect(response?.body.length).toBeLessThan(4_100)
  expect(JSON.stringify(response)).not.toContain('hidden')
  expect(JSON.stringify(response).length).toBeLessThan(6_000)
})

it.each([
  ['a closed port', 'http://127.0.0.1:9/', true, 'no response: ECONNREFUSED'],
  ['a private address', 'https://127.0.0.1/', false, 'the address 127.0.0.1 is not public'],
  ['a name of a private address', 'https://localhost/', false, 'resolves to an address that is not public'],
  ['its own URL', 'https://oa.example.com/api/line/1', false, "this service's own: a loop"],
])('reports why there is no response from %s', async (_, url, allow_private_network, reason) => {
  const result = await newTester().test(database, await add(url, { allow_private_network }))
  expect(result?.response).toMatchObject({ status: null, headers: [], body: '' })
  expect(result?.response.reason).toContain(reason)
})

it('says that the channel secret is missing', async () => {
  const bare = await addTenant(database)
  await database.query('update official_account set channel_secret = null where id = $1', [bare.accountId])
  const id = await add('https://a.example', { channel_oa_id: bare.accountId })
  await expect(newTester().test(database, id)).rejects.toMatchObject({
    code: 'invalid_input',
    message: expect.stringContaining(`account ${bare.accountId} has no channel secret`),
  })
})

it('tests an endpoint once in two seconds, and a few at a time', async () => {
  const receiver = await startReceiver()
  const tester = newTester()
  const response = gate()
  receiver.answer = { status: 200, until: response.passed }
  const ids = await Promise.all(Array.from({ length: 9 }, () => add(receiver.url)))
  const tests = ids.slice(0, 8).map((id) => tester.test(database, id))
  await expect.poll(() => receiver.received.length).toBe(8)
  await expect(tester.test(database, ids[0] as bigint)).rejects.toMatchObject({
    code: 'rate_limited',
    retryAfterSeconds: 2,
  })
  await expect(tester.test(database, ids[8] as bigint)).rejects.toMatchObject({ code: 'busy' })
  response.open()
  expect((await Promise.all(tests)).map((result) => result.response.status)).toEqual(Array(8).fill(200))
  await expect(tester.test(database, ids[0] as bigint)).rejects.toMatchObject({ code: 'rate_limited' })
  expect((await tester.test(database, ids[8] as bigint)).response.status).toBe(200)
  await expect(tester.test(database, 404n)).rejects.toMatchObject({ code: 'unknown_item' })
})

it('is printed by endpoints test, which fails unless the receiver accepts', async () => {
  const receiver = await startReceiver()
  const id = await add(receiver.url, { format: 'members' })
  const run = (...args: string[]) => runCommand(['endpoints', 'test', String(id), ...args], env)
  const accepted = await run()
  expect(accepted).toMatchObject({ status: 0, stderr: '' })
  expect(accepted.stdout).toMatch(
    /^POST http:\/\/127\.0\.0\.1:\d+\/webhook\n.*webhook-signature: v1,.*\n\n\{"type":"endpoint\.test".*\}\n\n200 \(\d+ ms\)\n.*\n\nok\n$/s,
  )
  receiver.answer = { status: 401 }
  const refused = await run('--json')
  expect(refused.status).toBe(1)
  expect(JSON.parse(refused.stdout).response).toMatchObject({ status: 401, body: 'ok' })
})
