/** A proxy in front of PostgreSQL that records the statements of its clients, as PostgreSQL's wire protocol carries them. */
import { type AddressInfo, createServer, connect as open, type Socket } from 'node:net'
import type { Connection } from '../../src/postgres/embedded/server.ts'

export interface WireLog {
  /** how a client reaches the database through the proxy */
  connection: Connection
  /** the names of executed statements, or the texts of those without a name */
  statements: string[]
  /** messages after which a client waits for the server: Sync, or a simple query */
  roundTrips: number
  close: () => void
}

/** Starts to record what is sent to a database. */
export async function startWireLog({ host, port, user, database }: Connection): Promise<WireLog> {
  const sockets = new Set<Socket>()
  const proxy = createServer((client) => {
    const server = open(`${host}/.s.PGSQL.${port}`)
    for (const socket of [client, server]) sockets.add(socket.on('error', () => undefined))
    client.on('data', recordInto(log))
    client.pipe(server).pipe(client)
  })
  await new Promise<void>((resolve) => proxy.listen(0, '127.0.0.1', resolve))
  const close = () => {
    for (const socket of sockets) socket.destroy()
    proxy.close()
  }
  const address = { host: '127.0.0.1', port: (proxy.address() as AddressInfo).port }
  const log: WireLog = { connection: { ...address, user, database }, statements: [], roundTrips: 0, close }
  return log
}

/** Reads the messages of one client. Each has a type, a length that includes itself, and zero-terminated texts. */
function recordInto(log: WireLog): (chunk: Buffer) => void {
  let rest = Buffer.alloc(0)
  let isStarted = false
  let unnamed = ''
  return (chunk) => {
    rest = Buffer.concat([rest, chunk])
    // The first message, which starts the session, has no type.
    for (let typeBytes = isStarted ? 1 : 0; rest.length >= typeBytes + 4; typeBytes = 1) {
      const end = typeBytes + rest.readUInt32BE(typeBytes)
      if (rest.length < end) return
      const type = isStarted ? String.fromCharCode(rest[0] as number) : ''
      const [first = '', second = ''] = rest.toString('utf8', typeBytes + 4, end).split('\0')
      isStarted = true
      rest = rest.subarray(end)
      if (type === 'P' && first === '') unnamed = second // Parse: name, text
      if (type === 'B') log.statements.push(second || unnamed) // Bind: portal, name
      if (type === 'Q') log.statements.push(first)
      if (type === 'Q' || type === 'S') log.roundTrips += 1
    }
  }
}
