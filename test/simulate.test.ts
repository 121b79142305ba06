/** `oa-audience simulate`: for load tests, which LINE forbids against its own platform. */
import { once } from 'node:events'
import { connect } from 'node:net'
import { expect, it, onTestFinished, vi } from 'vitest'
import { simulatePlatform } from '../tools/simulator/platform.ts'
import { urlOf } from './support/database.ts'
import { runCommandAsync } from './support/process.ts'
import { setUpTest } from './support/service.ts'

// A command takes half a second to start, and ten on a busy machine.
vi.setConfig({ testTimeout: 120_000 })

it('sends signed deliveries of all kinds with duplicates, and each event is stored once', async () => {
  const { database, connection, service, tenant } = await setUpTest()
  const { stdout, stderr, status } = await runCommandAsync(
    [
      ...['simulate', '--port', '0', '--account', String(tenant.accountId), '--people', '20', '--json'],
      ...['--deliver-to', `${service.url}/api/line/${tenant.accountId}`],
      ...['--rate', '50', '--count', '200', '--max-events', '20', '--repeats', '0.5', '--shuffle', '1'],
    ],
    { DATABASE_URL: urlOf(connection) },
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
  await database.close()
})

async function startPlatform() {
  const platform = await simulatePlatform()
  onTestFinished(() => platform.close())
  return platform
}

it.each([
  ['an address that cannot be parsed', 'GET // HTTP/1.1\r\n\r\n'],
  ['an incomplete body', 'PUT /simulate/misbehaviour HTTP/1.1\r\nContent-Length: 9\r\n\r\n'],
])('survives a client that sends %s and disconnects', async (_, request) => {
  const platform = await startPlatform()
  const { port } = new URL(platform.url)
  const socket = connect(Number(port), '127.0.0.1', () =>
    socket.write(request, () => socket.resetAndDestroy()),
  )
  await once(socket, 'close')
  expect((await fetch(`${platform.url}/v2/bot/info`)).status).toBe(401)
})

it('refuses an unknown misbehaviour with the list of known ones', async () => {
  const platform = await startPlatform()
  const address = `${platform.url}/simulate/misbehaviour`
  const answer = await fetch(address, { method: 'PUT', body: 'constructor' })
  expect(answer.status).toBe(400)
  expect(await answer.text()).toMatch(/send one of cut, error, /)
})

it.each([
  [['--misbehave', 'constructor'], 'Allowed choices are'],
  [['--count', '5'], '--count needs --deliver-to'],
  [['--deliver-to', 'nonsense'], 'http:// or https:// address'],
  [['--rate', '0'], 'whole number from 1'],
  [['--repeats', '2'], 'number from 0 to 1'],
])('refuses the options %j with the reason', async (args, complaint) => {
  const { status, stderr } = await runCommandAsync(['simulate', '--port', '0', ...args])
  expect(status).toBe(1)
  expect(stderr).toContain(complaint)
})
