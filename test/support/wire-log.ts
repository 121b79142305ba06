/** A proxy in front of PostgreSQL that records statements of clients and notices of the server, as its wire protocol carries them. */
import { type AddressInfo, createServer, connect as open, type Socket } from 'node:net'
import type { Connection } from '../../src/postgres/embedded/server.ts'

interface WireLog {
  /** how a client reaches the database through the proxy */
  connection: Connection
  /** the names of executed statements, or the texts of those without a name */
  statements: string[]
  /** how often a client has sent messages and then received some; statements that are sent together count once */
  roundTrips: number
  /** the server's notices */
  notices: string[]
  close: () => void
}

/** Starts to record what is sent to a database. */
export async function startWireLog({ host, port, user, database }: Connection): Promise<WireLog> {
  const sockets = new Set<Socket>()
  const proxy = createServer((client) => {
    const server = host.startsWith('/') ? open(`${host}/.s.PGSQL.${port}`) : open(port, host)
    for (const socket of [client, server]) sockets.add(socket.on('error', () => undefined))
    client.on('data', recordStatements(log))
    server.on('data', recordNotices(log))
    countRoundTrips(client, server, log)
    client.pipe(server).pipe(client)
  })
  await new Promise<void>((resolve) => proxy.listen(0, '127.0.0.1', resolve))
  const close = () => {
    for (const socket of sockets) socket.destroy()
    proxy.close()
  }
  const address = { host: '127.0.0.1', port: (proxy.address() as AddressInfo).port }
  const log: WireLog = {
    connection: { ...address, user, database },
    statements: [],
    roundTrips: 0,
    notices: [],
    close,
  }
  return log
}

/** Messages have a type and a length that includes itself. A client's first message, which starts the session, has no type. */
function readMessages(
  isTyped: boolean,
  onMessage: (type: string, body: Buffer) => void,
): (chunk: Buffer) => void {
  let rest = Buffer.alloc(0)
  let typeBytes = isTyped ? 1 : 0
  return (chunk) => {
    rest = Buffer.concat([rest, chunk])
    for (; rest.length >= typeBytes + 4; typeBytes = 1) {
      const end = typeBytes + rest.readUInt32BE(typeBytes)
      if (rest.length < end) return
      onMessage(rest.toString('latin1', 0, typeBytes), rest.subarray(typeBytes + 4, end))
      rest = rest.subarray(end)
    }
  }
}

function countRoundTrips(client: Socket, server: Socket, log: WireLog): void {
  let isWaiting = false
  client.on('data', () => {
    if (!isWaiting) log.roundTrips += 1
    isWaiting = true
  })
  server.on('data', () => {
    isWaiting = false
  })
}

function recordStatements(log: WireLog): (chunk: Buffer) => void {
  let unnamed = ''
  return readMessages(false, (type, body) => {
    const [first = '', second = ''] = body.toString('utf8').split('\0')
    if (type === 'P' && first === '') unnamed = second // Parse: name, text
    if (type === 'B') log.statements.push(second || unnamed) // Bind: portal, name
    if (type === 'Q') log.statements.push(first)
  })
}

/** NoticeResponse: fields, each a letter and a text. */
function recordNotices(log: WireLog): (chunk: Buffer) => void {
  return readMessages(true, (type, body) => {
    if (type !== 'N') return
    const fields = body.toString('utf8').split('\0')
    log.notices.push(fields.find((field) => field.startsWith('M'))?.slice(1) ?? '')
  })
}
