/** The address of a client behind real proxies, one and two in a row. Each client forges entries of X-Forwarded-For. */
import { once } from 'node:events'
import { get, type IncomingMessage } from 'node:http'
import type { AddressInfo } from 'node:net'
import { text } from 'node:stream/consumers'
import { beforeAll, describe, expect, it } from 'vitest'
import { createClientKey } from '../../src/http/rate-limit.ts'
import { createServer } from '../../src/http/server.ts'
import { freePort } from '../../tools/prove/service.ts'
import { canRunNginx, runNginx } from '../support/nginx.ts'
import { canRunVarnish, startVarnish } from '../support/varnish.ts'

/** Addresses of this machine, so that a proxy and a client differ. */
const PROXY = '127.0.0.3'
const CLIENT = '127.0.0.9'
const VARNISH = '127.0.0.1'
const CLIENT_V6 = '::1'
const FORGED = `203.0.113.9, ${PROXY}, ${VARNISH}:443`

/** What the header of each nginx is. */
const HEADERS = {
  appended: '$proxy_add_x_forwarded_for',
  replaced: '$remote_addr',
  port: '"$http_x_forwarded_for, $remote_addr:$remote_port"',
  bracketed: '"$http_x_forwarded_for, [$remote_addr]:$remote_port"',
  mapped: '"$http_x_forwarded_for, ::ffff:$remote_addr"',
  empty: '"$http_x_forwarded_for,, ,\t$remote_addr , ,"',
} as const

const CHAINS: Array<
  [name: string, outer: keyof typeof HEADERS | 'varnish', inner?: keyof typeof HEADERS | 'varnish']
> = [
  ['nginx', 'appended'],
  ['nginx that replaces the header', 'replaced'],
  ['nginx that appends the port', 'port'],
  ['nginx that appends mapped addresses', 'mapped'],
  ['nginx that appends empty entries', 'empty'],
  ['nginx and nginx', 'appended', 'appended'],
  ['nginx with ports and nginx with ports', 'port', 'port'],
  ['nginx and nginx with mapped addresses', 'appended', 'mapped'],
  ['nginx with empty entries and nginx with ports', 'empty', 'port'],
  ['Varnish', 'varnish'],
  ['Varnish and nginx', 'varnish', 'port'],
  ['nginx with ports and Varnish', 'port', 'varnish'],
]

const canRun = [canRunNginx('chains of proxies'), canRunVarnish('a chain with Varnish')].every(Boolean)
describe.runIf(canRun)('a service behind proxies', async () => {
  const app = createServer({ logLevel: 'silent', trustProxy: [VARNISH, PROXY] })
  const keyOf = createClientKey()
  app.get('/*', async (request) => keyOf(request))
  await app.listen({ host: '127.0.0.1', port: 0 })
  const service = `127.0.0.1:${(app.server.address() as AddressInfo).port}`
  /** Ports by the chain behind them. */
  const ports = new Map<string, number>()
  const v6Port = await freePort()
  const kinds = Object.keys(HEADERS) as Array<keyof typeof HEADERS>
  for (const kind of kinds) ports.set(kind, await freePort())
  for (const [, outer, inner] of CHAINS) if (inner) ports.set(`${outer} ${inner}`, await freePort())

  beforeAll(async () => {
    const varnish = await startVarnish(service)
    ports.set('varnish', Number(new URL(varnish.url).port))
    const server = (listen: string, kind: keyof typeof HEADERS, backend: string) => `server {
      listen ${listen};
      location / {
        proxy_pass http://${backend};
        proxy_bind ${PROXY};
        proxy_set_header X-Forwarded-For ${HEADERS[kind]};
      }
    }`
    const servers = kinds.map((kind) => server(`127.0.0.1:${ports.get(kind)}`, kind, service))
    for (const [, outer, inner] of CHAINS) {
      if (inner === undefined || outer === 'varnish') continue
      servers.push(
        server(`127.0.0.1:${ports.get(`${outer} ${inner}`)}`, outer, `127.0.0.1:${ports.get(inner)}`),
      )
    }
    servers.push(server(`[::1]:${v6Port}`, 'bracketed', service))
    const stop = await runNginx(
      `events {} http { ${servers.join('\n')} }`,
      `http://127.0.0.1:${ports.get('appended')}`,
    )
    const outerVarnish = await startVarnish(`127.0.0.1:${ports.get('port')}`)
    ports.set('varnish port', Number(new URL(outerVarnish.url).port))
    return async () => {
      stop()
      varnish.stop()
      outerVarnish.stop()
      await app.close()
    }
  })

  const ask = async (host: string, port: number | undefined, localAddress: string, headers: string[]) => {
    const request = get({
      host,
      port,
      localAddress,
      path: '/x',
      agent: false,
      headers: { 'x-forwarded-for': headers },
    })
    const [response] = (await once(request, 'response')) as [IncomingMessage]
    return text(response)
  }

  it.each(CHAINS)('sees the client behind %s', async (_, ...chain) => {
    const port = ports.get(chain.join(' '))
    for (const forged of [[FORGED], ['203.0.113.9', PROXY], [''], ['unknown, , "']])
      expect(await ask('127.0.0.1', port, CLIENT, forged)).toBe(CLIENT)
  })

  it('sees a client with IPv6 behind nginx that appends the port in brackets', async () => {
    expect(await ask('::1', v6Port, CLIENT_V6, [FORGED])).toBe('::')
  })
})
