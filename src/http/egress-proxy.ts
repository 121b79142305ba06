/**
 * The proxy of EGRESS_PROXY (decision 75). It is asked for each new connection with CONNECT. TLS is spoken with the receiver, whose
 * certificate is checked as without a proxy. Node.js limits the headers of the proxy's response to 16 KiB.
 */
import { constants } from 'node:crypto'
import type { LookupAddress } from 'node:dns'
import { lookup } from 'node:dns/promises'
import { once } from 'node:events'
import {
  Agent as HttpAgent,
  request as httpRequest,
  type IncomingMessage,
  type RequestOptions,
} from 'node:http'
import { Agent as HttpsAgent, request as httpsRequest } from 'node:https'
import type { LookupFunction, Socket } from 'node:net'
import { type Duplex, Readable } from 'node:stream'
import type { Secret } from '../config/secret.ts'

/** For CONNECT and TLS together. Less than the 10 s of a request to an endpoint, so that the reason names the proxy. */
const TUNNEL_MAX_MS = 8_000
const NULL_BODY_STATUSES = [204, 205, 304]

/** 16 is ENDPOINT_IN_FLIGHT_MAX in queue.ts. 4 s is less than the idle timeouts of common servers and proxies. */
export const AGENT = { keepAlive: true, maxFreeSockets: 16, timeout: 4_000 }
/** Otherwise a server could request one handshake after the other on one connection. */
export const TLS = { secureOptions: constants.SSL_OP_NO_RENEGOTIATION }

/** Contains neither text of the proxy nor its password. */
export class ProxyFault extends Error {
  override readonly name = 'ProxyFault'
}

/** What this service uses of the global `fetch`. */
export type Fetch = (url: string, init: RequestInit & { signal: AbortSignal }) => Promise<Response>

type Opened = ((error: Error | null, stream: Duplex) => void) | undefined

export class EgressProxy {
  readonly agents = { 'http:': new HttpAgent(AGENT), 'https:': new HttpsAgent({ ...AGENT, ...TLS }) }
  readonly #url: Secret
  #running: Promise<LookupAddress[]> | null = null

  static open(url: Secret | null): EgressProxy | null {
    return url && new EgressProxy(url)
  }

  constructor(url: Secret) {
    this.#url = url
    const { 'http:': http, 'https:': https } = this.agents
    const startTls = https.createConnection.bind(https)
    http.createConnection = (target, opened) => this.#open(opened, (signal) => this.#connect(target, signal))
    https.createConnection = (target, opened) =>
      this.#open(opened, async (signal) => {
        const socket = await this.#connect(target, signal)
        const secured = startTls({ ...target, socket } as RequestOptions) as Socket
        // An error before the agent listens must not end the process.
        secured.on('error', () => undefined)
        await once(secured, 'secureConnect', { signal }).catch((error) => {
          socket.destroy()
          throw error
        })
        return secured
      })
  }

  /** Like the global fetch, which takes no agent. */
  readonly fetch: Fetch = async (url, init) => {
    const sent = new Request(url, init)
    const body = Buffer.from(await sent.arrayBuffer())
    const { method, signal } = sent
    const isHttp = url.startsWith('http:')
    const agent = this.agents[isHttp ? 'http:' : 'https:']
    const headers = Object.fromEntries(sent.headers)
    const request = (isHttp ? httpRequest : httpsRequest)(url, { method, headers, agent, signal })
    // An error after the response is one of its body.
    request.on('error', () => undefined).end(body.length > 0 ? body : undefined)
    const [response] = (await once(request, 'response', { signal })) as [IncomingMessage]
    const status = response.statusCode ?? 0
    const received = new Headers()
    for (const [name, value] of Object.entries(response.headers)) received.set(name, String(value))
    const hasBody = !NULL_BODY_STATUSES.includes(status)
    if (!hasBody) response.resume()
    const stream = hasBody ? (Readable.toWeb(response) as ReadableStream) : null
    return new Response(stream, { status, headers: received })
  }

  #open(opened: Opened, connect: (signal: AbortSignal) => Promise<Socket>): undefined {
    const signal = AbortSignal.timeout(TUNNEL_MAX_MS)
    const limit = `the proxy of EGRESS_PROXY opened no connection within ${TUNNEL_MAX_MS / 1000} s`
    connect(signal).then(
      (socket) => opened?.(null, socket),
      (error) => opened?.(signal.aborted ? new ProxyFault(limit) : error, undefined as never),
    )
  }

  async #connect({ host, port }: RequestOptions, signal: AbortSignal): Promise<Socket> {
    const proxy = new URL(this.#url.reveal())
    const path = `${host?.includes(':') ? `[${host}]` : host}:${port}`
    const login = [proxy.username, proxy.password].map(decodeURIComponent).join(':')
    const authorization = `Basic ${Buffer.from(login).toString('base64')}`
    const request = httpRequest({
      ...{ host: proxy.hostname.replace(/^\[|\]$/g, ''), port: proxy.port || 80, lookup: this.#lookup },
      ...{ method: 'CONNECT', path, agent: false, signal },
      headers: { host: path, ...(proxy.username === '' ? {} : { 'proxy-authorization': authorization }) },
    })
    request.on('error', () => undefined).end()
    const connected = await once(request, 'connect', { signal }).catch(({ code }) => {
      throw new ProxyFault(`the proxy of EGRESS_PROXY cannot be used (${code})`)
    })
    const [{ statusCode = 0 }, socket, head] = connected as [IncomingMessage, Socket, Buffer]
    socket.on('error', () => undefined)
    // A receiver sends nothing before it has a request.
    if (statusCode >= 200 && statusCode < 300 && head.length === 0) return socket
    socket.destroy()
    const fix = statusCode === 407 ? '; correct its user and password' : ''
    throw new ProxyFault(`the proxy of EGRESS_PROXY did not open the connection (status ${statusCode})${fix}`)
  }

  /** getaddrinfo occupies one of the process's four threads until the name server responds, so all connections share one call. */
  readonly #lookup: LookupFunction = (name, { all }, callback) => {
    this.#running ??= lookup(name, { all: true }).finally(() => {
      this.#running = null
    })
    this.#running.then(
      (found) => (all ? callback(null, found) : callback(null, found[0]?.address ?? '', found[0]?.family)),
      (error) => callback(error, []),
    )
  }
}
