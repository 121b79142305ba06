interface Waiting<Key, Value> {
  key: Key
  resolve: (value: Value | undefined) => void
  reject: (error: unknown) => void
}

/** Joins reads into batches. Reads that begin in one turn of the event loop, or during another batch, share a round trip. */
export class Batcher<Key, Value> {
  readonly #read: (keys: Key[]) => Promise<Array<Value | undefined>>
  #waiting: Array<Waiting<Key, Value>> = []
  #isReading = false

  /** @param read returns one value per key, in order */
  constructor(read: (keys: Key[]) => Promise<Array<Value | undefined>>) {
    this.#read = read
  }

  load(key: Key): Promise<Value | undefined> {
    return new Promise((resolve, reject) => {
      this.#waiting.push({ key, resolve, reject })
      if (!this.#isReading) {
        this.#isReading = true
        setImmediate(() => void this.#readAll())
      }
    })
  }

  async #readAll(): Promise<void> {
    while (this.#waiting.length > 0) {
      const batch = this.#waiting
      this.#waiting = []
      try {
        const values = await this.#read(batch.map(({ key }) => key))
        for (const [index, { resolve }] of batch.entries()) resolve(values[index])
      } catch (error) {
        for (const { reject } of batch) reject(error)
      }
    }
    this.#isReading = false
  }
}
