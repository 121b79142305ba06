/** Where the log lines of a service go: standard output, without waiting for its reader. */
import cluster from 'node:cluster'
import pino, { type DestinationStream } from 'pino'

/**
 * Log lines are written in groups: one write per line costs 5 % of the throughput. They wait for 16 KiB (pino's limit) or a
 * tenth of a second, and are written when the process ends, except after SIGKILL. If nobody reads them, lines beyond 16 MiB are
 * dropped: the service must not grow by them.
 */
const LOG_BUFFER = { minLength: 16 * 1024 - 1, periodicFlush: 100, maxLength: 16 * 1024 * 1024 }
/** All workers write to one pipe. A write of up to PIPE_BUF bytes is atomic, so that lines of different workers do not mix. */
const PIPE_WRITE_MAX = process.platform === 'linux' ? 4096 : 512

export function openLog(): DestinationStream {
  const shared = cluster.isWorker ? { minLength: PIPE_WRITE_MAX - 1, maxWrite: PIPE_WRITE_MAX } : {}
  const lines = pino.destination({ dest: 1, sync: false, contentMode: 'buffer', ...LOG_BUFFER, ...shared })
  // Bytes, because sonic-boom would measure a text again for every line that follows it (2 µs).
  return { write: (line: string) => lines.write(Buffer.from(line) as unknown as string) }
}
