/** How far a long command is: a line that is drawn again on a terminal, now and then a line of its own elsewhere. */

const BAR_WIDTH = 24
/** Between two drawings on a terminal, and between two lines elsewhere. */
const TERMINAL_MS = 100
const LINES_MS = 5_000

/** Writes to standard error, so that what a command prints can be redirected. */
export class Progress {
  readonly #what: string
  readonly #total: number | null
  readonly #startedAtMs = Date.now()
  readonly #isTerminal = process.stderr.isTTY === true
  #shownAtMs = 0
  #shown = ''

  /** @param total null where nobody knows it */
  constructor(what: string, total: number | null) {
    this.#what = what
    this.#total = total
  }

  show(done: number, remark = ''): void {
    const line = this.#line(done, remark)
    if (line === this.#shown || Date.now() - this.#shownAtMs < (this.#isTerminal ? TERMINAL_MS : LINES_MS))
      return
    this.#write(line)
  }

  /** The last word, shown in any case. */
  end(done: number, remark = ''): void {
    this.#write(this.#line(done, remark))
    if (this.#isTerminal) process.stderr.write('\n')
  }

  #write(line: string): void {
    // A line that wraps could not be drawn over.
    const room = (process.stderr.columns || 80) - 1
    const drawn = line.padEnd(this.#shown.length).slice(0, room)
    process.stderr.write(this.#isTerminal ? `\r${drawn}` : `${line}\n`)
    this.#shown = line
    this.#shownAtMs = Date.now()
  }

  #line(done: number, remark: string): string {
    const seconds = Math.max((Date.now() - this.#startedAtMs) / 1000, 0.001)
    const rate = `${Math.round(done / seconds).toLocaleString('en')}/s`
    const count = done.toLocaleString('en')
    if (this.#total === null) return `${this.#what} ${count}, ${rate}${remark}`
    const share = this.#total === 0 ? 1 : Math.min(done / this.#total, 1)
    const bar = '='.repeat(Math.round(share * BAR_WIDTH)).padEnd(BAR_WIDTH)
    return `${this.#what} [${bar}] ${Math.floor(share * 100)} %, ${count} of ${this.#total.toLocaleString('en')}, ${rate}${remark}`
  }
}
