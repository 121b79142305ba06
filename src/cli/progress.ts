/** Shows the progress of a long command: a bar on a terminal, elsewhere a plain line every few seconds. */
import cliProgress, { type Options, type Params, type SingleBar } from 'cli-progress'
import { io } from './io.ts'

const BAR_WIDTH = 24
const PLAIN_LINE_INTERVAL_MS = 5_000

/** Shows the progress of `work`, which calls `show`. @param total null if it is unknown */
export async function withProgress<T>(
  unit: string,
  total: number | null,
  work: (show: Progress['show']) => Promise<T>,
): Promise<T> {
  const progress = new Progress(unit, total)
  try {
    return await work((...shown) => progress.show(...shown))
  } finally {
    progress.end()
  }
}

/**
 * Writes to standard error, so that a command's output can be redirected. The bar redraws itself with a timer, which keeps the
 * process alive: call `end` in a finally block.
 */
export class Progress {
  readonly #bar: SingleBar

  constructor(unit: string, total: number | null) {
    this.#bar = new cliProgress.SingleBar({
      stream: io.stderr,
      barsize: BAR_WIDTH,
      barIncompleteChar: ' ',
      noTTYOutput: true,
      notTTYSchedule: PLAIN_LINE_INTERVAL_MS,
      // Disabled wrapping would outlast an interrupted command.
      linewrap: true,
      // Without a terminal, this only prevents an empty line after the last one.
      clearOnComplete: io.stderr.isTTY !== true,
      format: (options, params, { note }: { note: string }) =>
        // A line as wide as the terminal would wrap on some terminals.
        `${unit} ${amountText(options, params, total)}${note}`.slice(0, params.maxWidth - 1),
    })
    this.#bar.start(total ?? 0, 0, { note: '' })
  }

  show(done: number, note = ''): void {
    this.#bar.update(done, { note })
  }

  end(): void {
    this.#bar.stop()
  }
}

function amountText(options: Options, params: Params, total: number | null): string {
  const { value, startTime, progress } = params
  const seconds = Math.max((Date.now() - startTime) / 1000, 0.001)
  const rate = `${Math.round(value / seconds).toLocaleString('en')}/s`
  const count = value.toLocaleString('en')
  if (total === null) return `${count}, ${rate}`
  const bar = cliProgress.Format.BarFormat(progress, options)
  return `[${bar}] ${Math.floor(progress * 100)} %, ${count} of ${total.toLocaleString('en')}, ${rate}`
}
