/** `oa-audience simulate`: for load tests, which LINE forbids against its own platform. */
import { Webhook } from 'standardwebhooks'
import { expect, it, vi } from 'vitest'
import { Secret } from '../../src/config/secret.ts'
import { signLine } from '../../src/line-api/line-signature.ts'
import { describeReceipt } from '../../tools/simulator/receiver.ts'
import { startPlatform } from '../support/platform.ts'
import { runProgramAsync } from '../support/process.ts'
import { setUpService } from '../support/service.ts'

// A command takes half a second to start, and ten on a busy machine.
vi.setConfig({ testTimeout: 120_000 })

it('sends signed deliveries of all kinds with duplicates, and each event is stored once', async () => {
  const { database, service, tenant, env } = await setUpService()
  const { stdout, stderr, status } = await runProgramAsync(
    [
      ...['simulate', '--port', '0', '--account', String(tenant.accountId), '--people', '20', '--json'],
      ...['--deliver-to', `${service.url}/api/line/${tenant.accountId}`],
      ...['--rate', '50', '--count', '200', '--max-events', '20', '--repeats', '0.5', '--shuffle', '1'],
    ],
    env,
  )
  expect(stderr).toBe('')
  expect(status).toBe(0)
  const tally = JSON.parse(stdout)
  expect(tally).toMatchObject({ deliveries: 200, answers: { 200: 200 } })
  expect(tally.repeatedDeliveries).toBeGreaterThan(25)
  const [stored] = await database.query<{ events: number; kinds: number; failures: number }>(
    `select count(*)::int as events, count(distinct kind)::int as kinds, count(failure)::int as failures from event`,
  )
  expect(stored).toEqual({ events: tally.events, kinds: 20, failures: 0 })
})

const secret = `whsec_${Buffer.alloc(32, 1).toString('base64')}`
const body = JSON.stringify({ destination: 'U1', events: [{ type: 'follow', mode: 'standby' }] })
const member = '{"type":"member.erased","data":{"id":"7"}}'
const post = (address: string, headers: Record<string, string>, content = body) =>
  fetch(address, { method: 'POST', headers, body: content })
const standardHeaders = (timestampMs: number) => ({
  'webhook-id': 'msg_1',
  'webhook-timestamp': String(Math.floor(timestampMs / 1000)),
  'webhook-signature': new Webhook(secret).sign('msg_1', new Date(timestampMs), member),
})

it('the receiver of outgoing webhooks verifies signatures of LINE and of Standard Webhooks, and refuses wrong ones', async () => {
  const { url, account, receipts, receiver } = await startPlatform()
  const signature = { 'x-line-signature': signLine(body, new Secret(account.channelSecret)) }
  expect((await post(`${url}/receive`, signature)).status).toBe(200)
  expect((await post(`${url}/receive`, signature, `${body} `)).status).toBe(403)
  receiver.endpointSecret = secret
  expect((await post(`${url}/receive/crm`, standardHeaders(Date.now()), member)).status).toBe(200)
  expect((await post(`${url}/receive/crm`, standardHeaders(Date.now() - 600_000), member)).status).toBe(403)
  expect((await post(`${url}/receive`, {})).status).toBe(403)
  expect(receipts.map(describeReceipt)).toEqual([
    '/receive  line  signature valid  follow (standby)',
    '/receive  line  signature WRONG  follow (standby)',
    '/receive/crm  members  signature valid  member.erased 7',
    '/receive/crm  members  signature WRONG  member.erased 7',
    '/receive  unknown  signature WRONG  follow (standby)',
  ])
})
