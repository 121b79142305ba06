/** `oa-audience simulate`: what users test with, because LINE forbids load tests through its own platform. */
import { once } from 'node:events'
import { connect } from 'node:net'
import { expect, it } from 'vitest'
import { simulatePlatform } from '../tools/simulator/platform.ts'
import { urlOf } from './support/database.ts'
import { runCommandAsync } from './support/process.ts'
import { setUpTest } from './support/service.ts'

it('sends signed deliveries of every kind, repeated and out of order, and each event counts once', async () => {
  const { database, connection, service, tenant } = await setUpTest()
  const { stdout, stderr, status } = await runCommandAsync(
    [
      ...['simulate', '--port', '0', '--account', String(tenant.accountId), '--people', '20', '--json'],
      ...['--deliver-to', `${service.url}/api/line/${tenant.accountId}`],
      ...['--rate', '400', '--count', '800', '--repeats', '0.5', '--shuffle', '1'],
    ],
    { DATABASE_URL: urlOf(connection) },
  )
  expect(stderr).toBe('')
  expect(status).toBe(0)
  const tally = JSON.parse(stdout)
  expect(tally).toMatchObject({ deliveries: 800, answers: { 200: 800 } })
  expect(tally.repeatedDeliveries).toBeGreaterThan(100)
  const [stored] = await database.query<{ events: number; kinds: number; failures: number }>(
    `select count(*)::int as events, count(distinct kind)::int as kinds, count(failure)::int as failures from event`,
  )
  expect(stored).toEqual({ events: tally.events, kinds: 20, failures: 0 })
  await database.close()
})

it('outlives odd requests, and callers who hang up', async () => {
  const platform = await simulatePlatform()
  const { port } = new URL(platform.url)
  for (const request of [
    'GET // HTTP/1.1\r\n\r\n',
    'PUT /simulate/misbehaviour HTTP/1.1\r\nContent-Length: 9\r\n\r\n',
  ]) {
    const socket = connect(Number(port), '127.0.0.1', () =>
      socket.write(request, () => socket.resetAndDestroy()),
    )
    await once(socket, 'close')
  }
  const said = await fetch(`${platform.url}/simulate/misbehaviour`, { method: 'PUT', body: 'constructor' })
  expect(said.status).toBe(400)
  expect(await said.text()).toMatch(/^one of cut, error, /)
  expect((await fetch(`${platform.url}/v2/bot/info`)).status).toBe(401)
  await platform.close()
})

it('says what is wrong with its options in one line', async () => {
  for (const [args, complaint] of [
    [['--misbehave', 'constructor'], 'Allowed choices are'],
    [['--count', '5'], '--count needs --deliver-to'],
    [['--deliver-to', 'nonsense'], 'http:// or https:// address'],
    [['--rate', '0'], 'whole number from 1'],
    [['--repeats', '2'], 'number from 0 to 1'],
  ] as const) {
    const { status, stderr } = await runCommandAsync(['simulate', '--port', '0', ...args])
    expect(status).toBe(1)
    expect(stderr).toContain(complaint)
  }
})
