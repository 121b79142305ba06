/**
 * Bounds the connections that have no request: idle ones, and those whose headers are incomplete. Beyond the limit, the connection
 * that has had no request for longest is closed, so a new one always has time to send its headers.
 */
import type { Server } from 'node:http'
import type { Socket } from 'node:net'

/**
 * Limit per instance. A connection takes 4 KiB, or 15 KiB if it has sent 15 KiB of headers (measured with 2,000):
 * 4,096 × 15 KiB = 60 MiB at most. LINE and a proxy keep some dozens.
 */
const IDLE_MAX = 4_096
/** Limit per address. Behind a proxy, all senders have one address. */
const IDLE_PER_ADDRESS_MAX = IDLE_MAX / 2

export function limitIdleConnections(
  server: Server,
  { max = IDLE_MAX, perAddress = IDLE_PER_ADDRESS_MAX } = {},
): void {
  const idle = new Set<Socket>()
  const idleOfAddress = new Map<string, Set<Socket>>()
  // The address is kept because a closed socket has none. The requests are counted because they may be pipelined.
  const states = new WeakMap<Socket, { address: string; requests: number }>()

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
  const add = (socket: Socket, address: string) => {
    const sockets = idleOfAddress.get(address) ?? new Set()
    idleOfAddress.set(address, sockets.add(socket))
    idle.add(socket)
    if (sockets.size > perAddress) closeOldest(sockets)
    else if (idle.size > max) closeOldest(idle)
  }
  server.on('connection', (socket: Socket) => {
    const address = socket.remoteAddress ?? ''
    states.set(socket, { address, requests: 0 })
    socket.once('close', () => remove(socket))
    add(socket, address)
  })
  server.prependListener('request', ({ socket }, response) => {
    const state = states.get(socket)
    if (state === undefined) return
    remove(socket)
    state.requests += 1
    response.once('close', () => {
      state.requests -= 1
      if (state.requests === 0 && !socket.destroyed) add(socket, state.address)
    })
  })
}
