/** The log: its stream, one line per request, lines for facts, and the console output of libraries. */
import cluster from 'node:cluster'
import { hostname } from 'node:os'
import { format } from 'node:util'
import type { FastifyBaseLogger, FastifyInstance } from 'fastify'
import pino, { type DestinationStream, type Logger } from 'pino'
import type { RequestObserver } from '../http/responses.ts'
import { eventUnapplied, profilesBackedOff } from './facts.ts'

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

const METHODS = ['debug', 'log', 'info', 'warn', 'error'] as const

/** ioredis warns of a superfluous password, and Node of leaks. @returns ends the redirection, before the command line prints an error */
export function logConsoleLines(log: Pick<Logger, 'warn'>): () => void {
  const originals = METHODS.map((method) => [method, console[method]] as const)
  for (const method of METHODS) console[method] = (...parts: unknown[]) => log.warn(format(...parts))
  const defaults = process.listeners('warning')
  const warn = ({ name, message }: Error) => log.warn({ fault: name }, message)
  process.removeAllListeners('warning').on('warning', warn)
  return () => {
    for (const [method, original] of originals) console[method] = original
    process.removeListener('warning', warn)
    for (const listener of defaults) process.on('warning', listener)
  }
}

/** Buffers log lines until the log exists, for example those of the opening of the database. */
export class Notices {
  readonly #waiting: Array<(log: FastifyBaseLogger) => void> = []
  #log: FastifyBaseLogger | null = null

  readonly info = (message: string) => this.#write((log) => log.info(message))
  readonly warn = (message: string) => this.#write((log) => log.warn(message))

  sendTo(log: FastifyBaseLogger): void {
    this.#log = log
    for (const write of this.#waiting.splice(0)) write(log)
  }

  #write(write: (log: FastifyBaseLogger) => void): void {
    if (this.#log === null) this.#waiting.push(write)
    else write(this.#log)
  }
}
