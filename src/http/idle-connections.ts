/**
 * Bounds the connections that have no request: idle ones, and those whose headers are incomplete. Beyond the limit, the connection
 * that has had no request for longest is closed, so a new one always has time to send its headers. A shutdown closes all of them.
 */
import type { Socket } from 'node:net'
import type { FastifyInstance } from 'fastify'

/**
 * Limit per instance. A connection takes 4 KiB, or 15 KiB if it has sent 15 KiB of headers (measured with 2,000):
 * 4,096 × 15 KiB = 60 MiB at most. LINE and a proxy keep some dozens.
 */
const IDLE_MAX = 4_096
/** Limit per address. Behind a proxy, all senders have one address. */
const IDLE_PER_ADDRESS_MAX = IDLE_MAX / 2
/** During a shutdown, a connection has this time for its next request to arrive. Its response closes the connection. */
const LAST_REQUEST_MS = 500
const SWEEP_INTERVAL_MS = 50

export function limitIdleConnections(
  app: FastifyInstance,
  { max = IDLE_MAX, perAddress = IDLE_PER_ADDRESS_MAX } = {},
): void {
  const { server } = app
  const idle = new Set<Socket>()
  const idleOfAddress = new Map<string, Set<Socket>>()
  // The address is kept because a closed socket has none. The requests are counted because they may be pipelined.
  const states = new WeakMap<Socket, { address: string; requests: number; idleSinceMs: number }>()

  const remove = (socket: Socket) => {
    const state = states.get(socket)
    if (state === undefined || !idle.delete(socket)) return
    const sockets = idleOfAddress.get(state.address)
    sockets?.delete(socket)
    if (sockets?.size === 0) idleOfAddress.delete(state.address)
  }
  const closeOldest = (sockets: Set<Socket>) => {
    for (const oldest of sockets) {
      remove(oldest)
      oldest.destroy()
      return
    }
  }
  const add = (socket: Socket, state: { address: string; idleSinceMs: number }) => {
    const { address } = state
    const sockets = idleOfAddress.get(address) ?? new Set()
    state.idleSinceMs = performance.now()
    idleOfAddress.set(address, sockets.add(socket))
    idle.add(socket)
    if (sockets.size > perAddress) closeOldest(sockets)
    else if (idle.size > max) closeOldest(idle)
  }
  server.on('connection', (socket: Socket) => {
    const state = { address: socket.remoteAddress ?? '', requests: 0, idleSinceMs: 0 }
    states.set(socket, state)
    socket.once('close', () => remove(socket))
    add(socket, state)
  })
  server.prependListener('request', ({ socket }, response) => {
    const state = states.get(socket)
    if (state === undefined) return
    remove(socket)
    state.requests += 1
    response.once('close', () => {
      state.requests -= 1
      if (state.requests === 0 && !socket.destroyed) add(socket, state)
    })
  })
  whileClosing(app, () => {
    const untilMs = performance.now() - LAST_REQUEST_MS
    for (const socket of idle) if ((states.get(socket)?.idleSinceMs ?? 0) <= untilMs) socket.destroy()
  })
}

/**
 * Node.js itself closes only idle connections that have had a request, and only when the shutdown begins. The others would delay the
 * shutdown until they are cut.
 */
function whileClosing(app: FastifyInstance, closeIdle: () => void): void {
  let sweep: NodeJS.Timeout | undefined
  app.addHook('preClose', async () => {
    sweep = setInterval(closeIdle, SWEEP_INTERVAL_MS).unref()
  })
  app.addHook('onClose', async () => clearInterval(sweep))
}
