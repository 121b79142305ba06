/**
 * A program that opens connections and sends all of a body but its last byte on each. Arguments: port, path, connections, bytes of a
 * body, bytes of a piece. Sends "sent" to its parent once every body is as far as it goes, and ends with its parent.
 */
import { connect } from 'node:net'

const [port, path, connections, bodyBytes, pieceBytes] = process.argv.slice(2)
const piece = Buffer.alloc(Number(pieceBytes), 'x')
let pending = Number(connections)
const isOver = () => {
  pending -= 1
  if (pending === 0) process.send?.('sent')
}

/** From an address of its own, so that no share of an address stops it. */
function hold(no, onConnect) {
  const localAddress = `127.1.${no >> 8}.${no & 255}`
  const socket = connect({ port: Number(port), host: '127.0.0.1', localAddress })
  let left = Number(bodyBytes) - 1
  let isPending = true
  const end = () => {
    if (isPending) isOver()
    isPending = false
  }
  const send = () => {
    while (left > 0 && !socket.destroyed) {
      const bytes = Math.min(left, piece.length)
      left -= bytes
      if (!socket.write(piece.subarray(0, bytes))) return
    }
    end()
  }
  socket
    .once('connect', onConnect)
    .on('drain', send)
    .on('error', end)
    .on('close', onConnect)
    .on('close', end)
    .resume()
  socket.write(`POST ${path} HTTP/1.1\r\nhost: x\r\ncontent-length: ${bodyBytes}\r\n\r\n`)
  send()
}

/** No faster than the service accepts them: the kernel drops connections when its queue is full. */
for (let no = 0; no < Number(connections); no += 1) {
  await new Promise((resolve) => hold(no, resolve))
}
process.on('disconnect', () => process.exit(0))
