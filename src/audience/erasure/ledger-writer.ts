/** Appends lines to a file of this process in ERASURE_LEDGER. */
import { randomBytes } from 'node:crypto'
import { type BigIntStats, statSync } from 'node:fs'
import { appendFile, open, stat, unlink } from 'node:fs/promises'
import { hostname } from 'node:os'
import { join } from 'node:path'
import { type LedgerEntry, lineOf } from './ledger-files.ts'

/** Only the service's user may read the hashes of erased people. */
const FILE_MODE = 0o600

/** A network file system whose server is unreachable may not respond for hours. A write and an fsync take less even on a busy disk. */
const WRITE_TIMEOUT_MS = 10_000
/** Limits the memory while the disk hangs: 10,000 × 149 bytes = 1.5 MB. */
const WAITING_MAX_LINES = 10_000

/** The message contains the system's error code, and no personal data. */
export class LedgerUnwritable extends Error {
  override readonly name = 'LedgerUnwritable'

  constructor(reason: string) {
    super(`ERASURE_LEDGER cannot be written (${reason})`)
  }
}

/** The lines of concurrent callers share one write and one fsync. */
export class LedgerWriter {
  readonly #directory: string
  readonly #timeoutMs: number
  /** Device and inode, which a directory keeps and its replacement does not have. Null: it does not exist yet. */
  #identity: Pick<BigIntStats, 'dev' | 'ino'> | null
  /** the end of the write in progress */
  #idle: Promise<void> = Promise.resolve()
  #next: { lines: string[]; written: Promise<void> } | null = null
  /** null before the first write, and after a failed one */
  #path: string | null = null

  constructor(directory: string, timeoutMs = WRITE_TIMEOUT_MS) {
    this.#directory = directory
    this.#timeoutMs = timeoutMs
    this.#identity = statSync(directory, { bigint: true, throwIfNoEntry: false }) ?? null
  }

  /** Resolves when the entries are on disk. Rejects with LedgerUnwritable after the time limit, but the write continues. */
  async append(entries: LedgerEntry[]): Promise<void> {
    if (this.#next === null) {
      const written = this.#idle.then(() => this.#writeNext())
      this.#next = { lines: [], written }
      this.#idle = written.catch(() => undefined)
    }
    const { lines, written } = this.#next
    if (lines.length >= WAITING_MAX_LINES) throw new LedgerUnwritable('ETIMEDOUT')
    lines.push(...entries.map((entry) => `${lineOf(entry)}\n`))
    let timer: NodeJS.Timeout | undefined
    const late = new Promise<never>((_, reject) => {
      timer = setTimeout(() => reject(new LedgerUnwritable('ETIMEDOUT')), this.#timeoutMs)
    })
    await Promise.race([written, late]).finally(() => clearTimeout(timer))
  }

  async #writeNext(): Promise<void> {
    const { lines = [] } = this.#next ?? {}
    this.#next = null
    const path = this.#path ?? join(this.#directory, newFileName())
    try {
      await this.#requireSameDirectory()
      await appendFile(path, lines.join(''), { encoding: 'latin1', mode: FILE_MODE, flush: true })
      await syncDirectory(this.#directory)
      this.#path = path
    } catch (error) {
      // The file may end with a part of a line, so nothing more is appended to it. A file without a confirmed line is removed. Otherwise
      // each repeated DELETE would leave one on a full disk.
      if (this.#path === null) await unlink(path).catch(() => undefined)
      this.#path = null
      const { code, message } = error as Error & { code?: string }
      throw new LedgerUnwritable(code ?? message)
    }
  }

  /**
   * A directory that was unmounted, or replaced by a copy, lacks the lines that this process has confirmed. Writing there would hide
   * their loss.
   */
  async #requireSameDirectory(): Promise<void> {
    const found = await stat(this.#directory, { bigint: true })
    this.#identity ??= found
    if (found.dev === this.#identity.dev && found.ino === this.#identity.ino) return
    throw new Error('another directory has its place. Bring the former one back, or restart the service')
  }
}

/** Host, process and time are for people. The random text makes the name unique. */
function newFileName(): string {
  const host = hostname().replaceAll(/[^A-Za-z0-9.-]/g, '_')
  const time = new Date().toISOString().replaceAll(/[-:]|\.\d+/g, '')
  return `${time}-${host}-${process.pid}-${randomBytes(4).toString('hex')}.ledger`
}

/** Without this, a new file may be missing after a power failure. */
async function syncDirectory(path: string): Promise<void> {
  const directory = await open(path)
  await directory.sync().finally(() => directory.close())
}
