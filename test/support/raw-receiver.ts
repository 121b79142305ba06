/** A receiver on bare TCP: it records when each byte arrived, and writes what a test wants. */
import { type AddressInfo, createServer, type Socket } from 'node:net'
import { onTestFinished } from 'vitest'

interface Piece {
  atMs: number
  text: string
}

export interface RawConnection {
  socket: Socket
  /** What has arrived, with the time of each piece. */
  pieces: Piece[]
  /** Complete requests so far. */
  requests: number
}

interface RawReceiver {
  url: string
  connections: RawConnection[]
}

export const OK = 'HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok'

/** @param answer is called for each complete request */
export async function startRawReceiver(
  answer: (connection: RawConnection, receiver: RawReceiver) => unknown,
): Promise<RawReceiver> {
  const receiver: RawReceiver = { url: '', connections: [] }
  const server = createServer((socket) => {
    const connection: RawConnection = { socket, pieces: [], requests: 0 }
    receiver.connections.push(connection)
    let pending = ''
    socket.on('error', () => undefined)
    socket.on('data', (bytes: Buffer) => {
      const text = bytes.toString('latin1')
      connection.pieces.push({ atMs: performance.now(), text })
      pending += text
      for (let end = endOfRequest(pending); end !== null; end = endOfRequest(pending)) {
        pending = pending.slice(end)
        connection.requests += 1
        answer(connection, receiver)
      }
    })
  }).listen(0, '127.0.0.1')
  await new Promise((resolve) => server.once('listening', resolve))
  onTestFinished(() => {
    server.close()
    for (const { socket } of receiver.connections) socket.destroy()
  })
  receiver.url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/webhook`
  return receiver
}

/** Null: the request is not complete. */
function endOfRequest(text: string): number | null {
  const head = text.indexOf('\r\n\r\n')
  if (head < 0) return null
  const length = Number(/content-length: (\d+)/i.exec(text.slice(0, head))?.[1] ?? 0)
  const end = head + 4 + length
  return text.length >= end ? end : null
}

/** Where a text arrived, over all connections: the time of its last byte. A text may be split over pieces. */
export function arrivalsOf({ connections }: RawReceiver, text: string): number[] {
  const wanted = Buffer.from(text).toString('latin1')
  return connections.flatMap(({ pieces }) => {
    const found: number[] = []
    let before = ''
    for (const piece of pieces) {
      const joined = before + piece.text
      if (joined.includes(wanted)) {
        found.push(piece.atMs)
        before = ''
      } else before = joined.slice(-wanted.length)
    }
    return found
  })
}
