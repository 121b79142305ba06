/** A Map that forgets its oldest entries when it has too many: memory is bounded, whoever comes. */
export class BoundedMap<Key, Value> extends Map<Key, Value> {
  readonly #max: number

  constructor(max: number) {
    super()
    this.#max = max
  }

  /** Entries stand in the order in which they were first set; to make one the newest, delete it before. */
  override set(key: Key, value: Value): this {
    super.set(key, value)
    if (this.size > this.#max) this.#forgetOldest()
    return this
  }

  /**
   * A tenth at once: a Map walks past all that was deleted before it finds its first entry, so forgetting one for each
   * new one would cost each a walk.
   */
  #forgetOldest(): void {
    let left = Math.ceil(this.#max / 10)
    for (const key of this.keys()) {
      if (left === 0) return
      this.delete(key)
      left -= 1
    }
  }
}
