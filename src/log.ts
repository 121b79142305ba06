/** Where the log goes: standard output, many lines in one write. */
import pino, { type DestinationStream } from 'pino'

/** UTF-16 units. A write for each line costs 5 % of the throughput. */
const LINES_MAX_LENGTH = 8 * 1024
/** Lines wait for this at most. They go out at the end of the process whatever ends it, except for a SIGKILL. */
const LINES_MAX_WAIT_MS = 100
/** Bytes. If nobody reads the output, lines are dropped: the service must not grow by them. */
const UNREAD_MAX_BYTES = 16 * 1024 * 1024

/**
 * Lines are put together here, because the destination's own buffer is one text that is measured again with every line:
 * that took a tenth of a delivery.
 */
export function openLog(): DestinationStream {
  const output = pino.destination({ dest: 1, sync: false, maxLength: UNREAD_MAX_BYTES })
  let lines: string[] = []
  let length = 0
  const writeLines = () => {
    if (length === 0) return
    output.write(lines.join(''))
    lines = []
    length = 0
  }
  setInterval(writeLines, LINES_MAX_WAIT_MS).unref()
  process.on('exit', () => {
    writeLines()
    output.flushSync()
  })
  return {
    write(line) {
      lines.push(line)
      length += line.length
      if (length >= LINES_MAX_LENGTH) writeLines()
    },
  }
}
