/** One log line per request. */
import { hostname } from 'node:os'
import type { DestinationStream } from 'pino'
import type { AnswerObserver } from '../http/answers.ts'

/**
 * Writes the lines to the log's own stream, in pino's format. They all have one shape, so they are assembled here: pino
 * takes 5 µs for one, 7 % of what this process spends on a delivery (measured; see bench/README.md).
 */
export function requestLog(log: DestinationStream): AnswerObserver {
  const writer = `"pid":${process.pid},"hostname":${JSON.stringify(hostname())}`
  return ({ request, requestId, route, status, seconds, ip }) => {
    const method = request === null ? '' : `,"method":${JSON.stringify(request.method)}`
    const ms = seconds === null ? '' : `,"ms":${Math.round(seconds * 10_000) / 10}`
    // A proxy may forward any text as an address.
    const address = ip === undefined ? '' : `,"ip":${JSON.stringify(ip)}`
    log.write(
      `{"level":30,"time":${Date.now()},${writer},"requestId":"${requestId}"${method},"route":"${route}"` +
        `,"status":${status}${ms}${address},"msg":"request"}\n`,
    )
  }
}
