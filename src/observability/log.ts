/** The log: its stream, one line per request, and lines for facts. */
import cluster from 'node:cluster'
import { hostname } from 'node:os'
import type { FastifyBaseLogger, FastifyInstance } from 'fastify'
import pino, { type DestinationStream } from 'pino'
import { eventUnapplied, profilesBackedOff, type RequestObserver } from './facts.ts'

/** Logs facts that belong to no request. @returns ends the subscription */
export function logFacts(log: FastifyBaseLogger): () => void {
  const unsubscribe = [
    eventUnapplied.subscribe(({ error }) =>
      // The database's error message may quote the event, so it is left out.
      log.error({ fault: error.name }, 'an event was stored without effect'),
    ),
    profilesBackedOff.subscribe(({ accountId, fault, status }) =>
      // The platform's reason may contain personal data, so it is left out.
      log.warn({ accountId: String(accountId), fault, status }, 'requests for profiles back off'),
    ),
  ]
  return () => {
    for (const end of unsubscribe) end()
  }
}

/**
 * One write per log line costs 5 % of the throughput, so lines are buffered for 16 KiB (pino's limit) or 0.1 s. They are flushed when
 * the process ends, except after SIGKILL. If nothing reads the log, lines beyond 16 MiB are dropped to bound the memory.
 */
const LOG_BUFFER = { minLength: 16 * 1024 - 1, periodicFlush: 100, maxLength: 16 * 1024 * 1024 }
/** All workers write to one pipe. A write of up to PIPE_BUF bytes is atomic, so that lines of different workers do not mix. */
const PIPE_WRITE_MAX = process.platform === 'linux' ? 4096 : 512

export function openLog(): DestinationStream {
  const shared = cluster.isWorker ? { minLength: PIPE_WRITE_MAX - 1, maxWrite: PIPE_WRITE_MAX } : {}
  const lines = pino.destination({ dest: 1, sync: false, contentMode: 'buffer', ...LOG_BUFFER, ...shared })
  // As bytes, because sonic-boom would measure a string again for every line that follows it (2 µs).
  return { write: (line: string) => lines.write(Buffer.from(line) as unknown as string) }
}

/** Writes a line for each request of the app, unless its log level is above info. */
export function logRequests(app: FastifyInstance, log: DestinationStream): void {
  if (['info', 'debug', 'trace'].includes(app.log.level)) app.requestObservers.push(requestLog(log))
}

/**
 * Writes pino's line format to the log's stream. pino takes 5 µs per line, a fifteenth of the process's time for one delivery. The
 * fields are fixed, so string concatenation is enough.
 */
function requestLog(log: DestinationStream): RequestObserver {
  const writer = `"pid":${process.pid},"hostname":${JSON.stringify(hostname())}`
  return ({ request, requestId, route, status, seconds, ip }) => {
    const method = request === null ? '' : `,"method":${JSON.stringify(request.method)}`
    const ms = seconds === null ? '' : `,"ms":${Math.round(seconds * 10_000) / 10}`
    // A proxy may send any text as an address.
    const address = ip === undefined ? '' : `,"ip":${JSON.stringify(ip)}`
    log.write(
      `{"level":30,"time":${Date.now()},${writer},"requestId":"${requestId}"${method},"route":"${route}"` +
        `,"status":${status}${ms}${address},"msg":"request"}\n`,
    )
  }
}
