/** An HTTP proxy that opens connections with CONNECT, as EGRESS_PROXY names one. It resolves names itself. */
import { once } from 'node:events'
import { createServer, type IncomingMessage } from 'node:http'
import { type AddressInfo, connect, type Socket } from 'node:net'
import { Secret } from '../../src/config/secret.ts'
import { EgressProxy } from '../../src/http/egress-proxy.ts'
import { atEnd } from './at-end.ts'

/** Encoded in the URL. */
export const PASSWORD = 'p@ss/wörd'

export interface ConnectProxy {
  url: string
  /** host and port of each CONNECT */
  asked: string[]
  headers: IncomingMessage['headers'][]
  /** ports of 127.0.0.1 by name */
  names: Map<string, string>
  /** instead of a connection, what the proxy does with the client's socket; null: it opens the connection */
  answer: ((socket: Socket) => void) | null
}

export async function startConnectProxy(): Promise<ConnectProxy> {
  const proxy: ConnectProxy = { url: '', asked: [], headers: [], names: new Map(), answer: null }
  const sockets = new Set<Socket>()
  const server = createServer().listen(0, '127.0.0.1')
  await once(server, 'listening')
  server.on('connection', (socket) => sockets.add(socket))
  server.on('connect', ({ url = '', headers }, socket: Socket) => {
    proxy.asked.push(url)
    proxy.headers.push(headers)
    socket.on('error', () => undefined)
    if (proxy.answer !== null) return proxy.answer(socket)
    const port = Number(proxy.names.get(url.replace(/:\d+$/, '')) ?? url.replace(/.*:/, ''))
    const target = connect(port, '127.0.0.1', () => {
      socket.write('HTTP/1.1 200 Connection established\r\n\r\n')
      target.pipe(socket).pipe(target)
    })
    sockets.add(target)
    target.on('error', () => socket.destroy())
    socket.on('close', () => target.destroy())
  })
  atEnd(() => {
    server.close()
    for (const socket of sockets) socket.destroy()
  })
  const { port } = server.address() as AddressInfo
  proxy.url = `http://user:${encodeURIComponent(PASSWORD)}@127.0.0.1:${port}`
  return proxy
}

export const routeThrough = ({ url }: ConnectProxy) => new EgressProxy(new Secret(url))
