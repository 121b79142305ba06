/**
 * A program that opens connections and sends all of a body but its last byte on each. Arguments: port, path, connections, bytes of a
 * body, bytes per second of all connections together. Sends "sent" to its parent once every body is as far as it goes, and ends with
 * its parent.
 */
import { connect } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'

const [port, path, connections, bodyBytes, bytesPerSecond] = process.argv.slice(2)
const body = Buffer.alloc(Number(bodyBytes) - 1, 'x')

/** Resolves when the body is sent, or cut off. From an address of its own, so that no share of an address stops it. */
function hold(no) {
  const localAddress = `127.1.${no >> 8}.${no & 255}`
  const socket = connect({ port: Number(port), host: '127.0.0.1', localAddress })
  socket.on('error', () => undefined).resume()
  socket.write(`POST ${path} HTTP/1.1\r\nhost: x\r\ncontent-length: ${bodyBytes}\r\n\r\n`)
  return new Promise((resolve) => {
    socket.write(body, resolve)
    socket.once('close', resolve)
  })
}

const startedAtMs = performance.now()
const pending = []
for (let no = 0; no < Number(connections); no += 1) {
  const dueAtMs = startedAtMs + (1_000 * no * body.length) / Number(bytesPerSecond)
  if (dueAtMs > performance.now()) await sleep(dueAtMs - performance.now())
  pending.push(hold(no))
}
await Promise.all(pending)
process.send?.('sent')
process.on('disconnect', () => process.exit(0))
