/** Appends erasures or revocations to a file of this process in ERASURE_LEDGER. */
import { randomBytes } from 'node:crypto'
import { type BigIntStats, statSync } from 'node:fs'
import { type FileHandle, open, stat, unlink } from 'node:fs/promises'
import { hostname } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import type { LedgerFormat } from './ledger-files.ts'

/** Only the service's user may read the hashes of erased people. */
const FILE_MODE = 0o600

/** A network file system whose server is unreachable may not respond for hours. A write and an fsync take less even on a busy disk. */
const WRITE_TIMEOUT_MS = 10_000

/** The message contains the system's error code, and no personal data. */
export class LedgerUnwritable extends Error {
  override readonly name = 'LedgerUnwritable'
}

const unwritable = (reason: string) => new LedgerUnwritable(`ERASURE_LEDGER cannot be written (${reason})`)

interface Waiting<Entry> {
  entries: Entry[]
  resolve: () => void
  reject: (error: Error) => void
}

/** Device and inode, which a directory keeps and its replacement does not have. */
type Identity = Pick<BigIntStats, 'dev' | 'ino'>

const areSame = (one: Identity, other: Identity) => one.dev === other.dev && one.ino === other.ino

/** Entries of concurrent callers share one write and one fsync. */
export class LedgerWriter<Entry> {
  readonly #directory: string
  readonly #format: LedgerFormat<Entry>
  readonly #timeoutMs: number
  /** null: the directory does not exist yet */
  #identity: Identity | null
  #waiting: Waiting<Entry>[] = []
  #writing: Promise<void> | null = null
  /** null before the first write, and after a failed one */
  #file: FileHandle | null = null
  #path = ''
  #lastNumber = 0

  constructor(directory: string, format: LedgerFormat<Entry>, timeoutMs = WRITE_TIMEOUT_MS) {
    this.#directory = directory
    this.#format = format
    this.#timeoutMs = timeoutMs
    this.#identity = statSync(directory, { bigint: true, throwIfNoEntry: false }) ?? null
  }

  /** Resolves when the entries are on disk. Rejects with LedgerUnwritable after the time limit, but a write that has begun continues. */
  async append(entries: Entry[]): Promise<void> {
    let timer: NodeJS.Timeout | undefined
    const written = new Promise<void>((resolve, reject) => {
      const waiting = { entries, resolve, reject }
      timer = setTimeout(() => {
        // Otherwise waiting entries would fill the memory while the disk hangs for hours.
        this.#waiting = this.#waiting.filter((other) => other !== waiting)
        reject(unwritable('ETIMEDOUT'))
      }, this.#timeoutMs)
      this.#waiting.push(waiting)
      this.#writing ??= this.#writeWaiting().finally(() => {
        this.#writing = null
      })
    })
    await written.finally(() => clearTimeout(timer))
  }

  /** Waits for a running write up to the time limit. A write that still hangs ends with the process. */
  async close(): Promise<void> {
    const writing = this.#writing
    if (writing !== null) await Promise.race([writing, sleep(this.#timeoutMs, undefined, { ref: false })])
    if (this.#writing === null) await this.#closeFile()
  }

  async #writeWaiting(): Promise<void> {
    while (this.#waiting.length > 0) {
      const batch = this.#waiting.splice(0)
      try {
        await this.#write(batch.flatMap(({ entries }) => entries))
        for (const { resolve } of batch) resolve()
      } catch (error) {
        await this.#abandonFile()
        const { code, message } = error as Error & { code?: string }
        for (const { reject } of batch) reject(unwritable(code ?? message))
      }
    }
  }

  async #write(entries: Entry[]): Promise<void> {
    const isNew = this.#file === null
    if (this.#file === null) {
      this.#lastNumber = 0
      await this.#requireSameDirectory()
      this.#path = join(this.#directory, fileName(this.#format.suffix))
      this.#file = await open(this.#path, 'ax', FILE_MODE)
    }
    const file = this.#file
    const lines = entries.map((entry, at) =>
      this.#format.format({ ...entry, number: this.#lastNumber + at + 1 }),
    )
    await file.appendFile((isNew ? this.#format.header : '') + lines.join(''), 'latin1')
    await file.sync()
    if (isNew) await syncDirectory(this.#directory)
    await this.#requireSameDirectory()
    // The lines may be in a file that was deleted or moved. No reader would find them there.
    if (!areSame(await file.stat({ bigint: true }), await stat(this.#path, { bigint: true })))
      throw new Error('its file was replaced')
    this.#lastNumber += lines.length
  }

  /**
   * A directory that was unmounted, or replaced by a copy, lacks the lines that this process has confirmed. Writing there would hide
   * their loss.
   */
  async #requireSameDirectory(): Promise<void> {
    const found = await stat(this.#directory, { bigint: true })
    this.#identity ??= found
    if (areSame(found, this.#identity)) return
    throw new Error('another directory has its place. Bring the former one back, or restart the service')
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
function fileName(suffix: string): string {
  const host = hostname().replaceAll(/[^A-Za-z0-9.-]/g, '_')
  const time = new Date().toISOString().replaceAll(/[-:]|\.\d+/g, '')
  return `${time}-${host}-${process.pid}-${randomBytes(4).toString('hex')}${suffix}`
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
