/** A TCP proxy that can cut all connections to a server, refuse new ones, or stop forwarding data. */
import {
  type AddressInfo,
  connect,
  createServer,
  type NetConnectOpts,
  type Server,
  type Socket,
} from 'node:net'

export class TcpProxy {
  readonly #server: Server
  readonly #sockets = new Set<Socket>()
  #isOpen = false
  #isSilent = false

  /** The proxy refuses connections until `open` is called. */
  constructor(target: NetConnectOpts) {
    this.#server = createServer((client) => {
      if (!this.#isOpen) {
        client.destroy()
        return
      }
      this.#sockets.add(client)
      client.on('error', () => client.destroy())
      if (this.#isSilent) return
      const server = connect(target)
      for (const [from, to] of [
        [client, server],
        [server, client],
      ] as const) {
        this.#sockets.add(from)
        from.pipe(to)
        from.on('error', () => to.destroy())
        from.on('close', () => {
          this.#sockets.delete(from)
          to.destroy()
        })
      }
    })
  }

  /** Returns the port on 127.0.0.1. */
  async listen(): Promise<number> {
    await new Promise<void>((resolve) => this.#server.listen(0, '127.0.0.1', resolve))
    return (this.#server.address() as AddressInfo).port
  }

  open(): void {
    this.#isOpen = true
  }

  /** Keeps all connections open but forwards no more data. */
  silence(): void {
    this.#isSilent = true
    for (const socket of this.#sockets) socket.unpipe()
  }

  /** Cuts all connections and refuses new ones. */
  shut(): void {
    this.#isOpen = false
    for (const socket of this.#sockets) socket.destroy()
  }

  close(): void {
    this.shut()
    this.#server.close()
  }
}
