/** A cheap load generator: raw sockets, requests built before the clock starts, one request at a time per connection. */
import { connect } from 'node:net'
import { performance } from 'node:perf_hooks'

/** Bytes per read. Each connection reuses one buffer. */
const READ_MAX_BYTES = 16 * 1024

/**
 * Sends all requests over `connections` kept-alive connections.
 * @param {{port: number, requests: Buffer[], connections: number}} load
 * @returns {Promise<{perSecond: number, p50Ms: number, p99Ms: number, failures: number}>}
 */
export async function send({ port, requests, connections }) {
  const latencies = []
  let next = 0
  let failures = 0
  const started = performance.now()
  await Promise.all(
    Array.from(
      { length: connections },
      () =>
        new Promise((resolve, reject) => {
          let sentAt = 0
          let pending = ''
          const sendNext = () => {
            if (next >= requests.length) {
              socket.end()
              resolve()
              return
            }
            sentAt = performance.now()
            socket.write(requests[next++])
          }
          const received = (size, buffer) => {
            pending += buffer.latin1Slice(0, size)
            const head = pending.indexOf('\r\n\r\n')
            if (head < 0) return
            const length = /content-length: (\d+)/i.exec(pending)
            if (length === null || pending.length < head + 4 + Number(length[1])) return
            latencies.push(performance.now() - sentAt)
            if (!pending.startsWith('HTTP/1.1 200')) failures += 1
            pending = ''
            sendNext()
          }
          const onread = { buffer: Buffer.alloc(READ_MAX_BYTES), callback: received }
          const socket = connect({ port, host: '127.0.0.1', noDelay: true, onread })
          socket.on('connect', sendNext)
          socket.on('error', reject)
        }),
    ),
  )
  const seconds = (performance.now() - started) / 1000
  latencies.sort((a, b) => a - b)
  const at = (part) => latencies[Math.floor(latencies.length * part)] ?? 0
  return { perSecond: latencies.length / seconds, p50Ms: at(0.5), p99Ms: at(0.99), failures }
}

export function median(values) {
  return values.toSorted((a, b) => a - b)[Math.floor(values.length / 2)]
}
