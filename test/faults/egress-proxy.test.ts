/** EGRESS_PROXY with a tinyproxy: every way out of the service and its commands. */
import { describe, expect, it } from 'vitest'
import { isDown, sendNow } from '../../src/endpoints/post.ts'
import { lineEvent } from '../../tools/simulator/events.ts'
import { routeThrough, startConnectProxy } from '../support/connect-proxy.ts'
import { startReceiver } from '../support/endpoints.ts'
import { insertRow } from '../support/load.ts'
import { addChannel } from '../support/notifications.ts'
import { startPlatform } from '../support/platform.ts'
import { runProgramAsync, setUpProcess } from '../support/process.ts'
import { sendDelivery } from '../support/service.ts'
import { canRunTinyproxy, startTinyproxy } from '../support/tinyproxy.ts'

describe.runIf(canRunTinyproxy('EGRESS_PROXY'))('with tinyproxy', () => {
  it('reaches LINE, endpoints, channels and the watchdog through the proxy, from the service and its commands', async () => {
    const proxy = await startTinyproxy()
    const receivers = {
      endpoint: await startReceiver(),
      channel: await startReceiver(),
      watchdog: await startReceiver(),
    }
    const platform = await startPlatform()
    const variables = {
      EGRESS_PROXY: proxy.url,
      LINE_API_URL: platform.url,
      HEARTBEAT_URL: receivers.watchdog.url,
    }
    const { database, env, service, tenant } = await setUpProcess(variables)
    await database.query(`update official_account set channel_access_token = 'token-of-line'`)
    const connectsTo = (url: string) =>
      proxy.connects().filter((target) => target === new URL(url).host).length
    const endpointId = await insertRow(database, 'endpoint', {
      ...{ channel_oa_id: tenant.accountId, url: receivers.endpoint.url, allow_private_network: true },
    })
    const channelId = await addChannel(database, { name: 'chat', target: receivers.channel.url })

    await expect.poll(() => receivers.watchdog.received.length).toBeGreaterThan(0)
    await sendDelivery(service.url, tenant, [lineEvent('follow', 'U1')])
    await expect.poll(() => receivers.endpoint.received).toHaveLength(1)
    await fetch(`${service.url}/api/line-oa/verify`, { method: 'POST', headers: tenant.headers })
    for (const { url } of [receivers.watchdog, receivers.endpoint]) expect(connectsTo(url)).toBe(1)
    expect(connectsTo(platform.url)).toBeGreaterThan(0)

    for (const [args, url] of [
      [['endpoints', 'test', String(endpointId)], receivers.endpoint.url],
      [['notifications', 'test', String(channelId)], receivers.channel.url],
      [['accounts', 'verify', String(tenant.accountId)], platform.url],
      [['doctor'], platform.url],
    ] as const) {
      const before = connectsTo(url)
      const { stdout, stderr } = await runProgramAsync([...args], env)
      expect(connectsTo(url), `${args.join(' ')}: ${stdout}${stderr}`).toBeGreaterThan(before)
      expect(`${stdout}${stderr}`).not.toContain('user:password')
    }
    expect(service.output()).not.toContain('user:password')
  })

  it('says in doctor that the proxy refuses the password', async () => {
    const proxy = await startTinyproxy()
    const { env } = await setUpProcess({ EGRESS_PROXY: proxy.url.replace('password', 'wrong') })
    const { stdout } = await runProgramAsync(['doctor'], env)
    expect(stdout).toContain('the proxy of EGRESS_PROXY did not open the connection')
    expect(stdout).not.toContain('user:wrong')
  })
})

it('gives up a proxy that does not respond before the limit of a request, and names it', async () => {
  const proxy = await startConnectProxy()
  proxy.answer = () => undefined
  const receiver = { url: 'https://bot.example/', allow_private_network: false }
  const checks = { isOwnUrl: () => false, route: routeThrough(proxy) }
  const response = await sendNow('test', receiver, { headers: {}, body: '' }, checks)
  expect(response).toMatchObject({ reason: 'the proxy of EGRESS_PROXY opened no connection within 8 s' })
  expect(isDown(response)).toBe(true)
})
