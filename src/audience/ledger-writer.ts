/** Appends erasures to this process's file of the erasure ledger. */
import { randomBytes } from 'node:crypto'
import { type FileHandle, open, unlink } from 'node:fs/promises'
import { hostname } from 'node:os'
import { join } from 'node:path'
import { LEDGER_FILE_SUFFIX } from './ledger-files.ts'
import { formatLedgerLine, LEDGER_HEADER, type LedgerErasure } from './ledger-line.ts'

/** Only the service's user may read which hashes were erased. */
const FILE_MODE = 0o600

/** The message has the system's error code, but nothing of a person. */
export class LedgerUnwritable extends Error {
  override readonly name = 'LedgerUnwritable'
}

interface Waiting {
  erasures: LedgerErasure[]
  resolve: () => void
  reject: (error: Error) => void
}

/** Erasures of concurrent callers share one write and one fsync. */
export class LedgerWriter {
  readonly #directory: string
  #waiting: Waiting[] = []
  #writing: Promise<void> | null = null
  /** null before the first write, and after a failed one */
  #file: FileHandle | null = null
  #path = ''
  #lastNumber = 0

  constructor(directory: string) {
    this.#directory = directory
  }

  /** Resolves when the erasures are on disk. */
  append(erasures: LedgerErasure[]): Promise<void> {
    return new Promise((resolve, reject) => {
      this.#waiting.push({ erasures, resolve, reject })
      this.#writing ??= this.#writeWaiting().finally(() => {
        this.#writing = null
      })
    })
  }

  async close(): Promise<void> {
    await this.#writing
    await this.#closeFile()
  }

  async #writeWaiting(): Promise<void> {
    while (this.#waiting.length > 0) {
      const batch = this.#waiting.splice(0)
      try {
        await this.#write(batch.flatMap(({ erasures }) => erasures))
        for (const { resolve } of batch) resolve()
      } catch (error) {
        await this.#abandonFile()
        const { code, message } = error as Error & { code?: string }
        const failure = new LedgerUnwritable(`ERASURE_LEDGER cannot be written (${code ?? message})`)
        for (const { reject } of batch) reject(failure)
      }
    }
  }

  async #write(erasures: LedgerErasure[]): Promise<void> {
    const isNew = this.#file === null
    if (this.#file === null) {
      this.#lastNumber = 0
      this.#path = join(this.#directory, fileName())
      this.#file = await open(this.#path, 'ax', FILE_MODE)
    }
    const file = this.#file
    // Nobody would find a line of a file that was deleted.
    if ((await file.stat()).nlink === 0) throw new Error('the file was deleted')
    const lines = erasures.map((erasure, at) =>
      formatLedgerLine({ ...erasure, number: this.#lastNumber + at + 1 }),
    )
    await file.appendFile((isNew ? LEDGER_HEADER : '') + lines.join(''), 'latin1')
    await file.sync()
    if (isNew) await syncDirectory(this.#directory)
    this.#lastNumber += lines.length
  }

  /**
   * After a failed write, the file may end with a part of a line, so nothing more is appended to it. A file without a confirmed line
   * is removed. Otherwise each repeated DELETE would leave one on a full disk.
   */
  async #abandonFile(): Promise<void> {
    const isUnused = this.#file !== null && this.#lastNumber === 0
    await this.#closeFile()
    if (isUnused) await unlink(this.#path).catch(() => undefined)
  }

  async #closeFile(): Promise<void> {
    const file = this.#file
    this.#file = null
    await file?.close().catch(() => undefined)
  }
}

/** Host, process and time are for people. The random text makes the name unique. */
function fileName(): string {
  const host = hostname().replaceAll(/[^A-Za-z0-9.-]/g, '_')
  const time = new Date().toISOString().replaceAll(/[-:]|\.\d+/g, '')
  return `${time}-${host}-${process.pid}-${randomBytes(4).toString('hex')}${LEDGER_FILE_SUFFIX}`
}

/** Without this, a new file may be missing after a power failure. */
async function syncDirectory(path: string): Promise<void> {
  const directory = await open(path)
  try {
    await directory.sync()
  } finally {
    await directory.close()
  }
}
