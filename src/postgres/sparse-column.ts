/** Columns that have no value in most batches. Such a column is sent as null, so the SQL function reads nothing. */

type ToArray<Value> = (values: Array<Value | null>) => Buffer

export function sparse<Value>(values: Array<Value | null>, toArray: ToArray<Value>): Buffer | null {
  return values.every((value) => value === null) ? null : toArray(values)
}

export class SparseColumn<Value> {
  readonly #length: number
  #values: Array<Value | null> | null = null

  constructor(length: number) {
    this.#length = length
  }

  set(index: number, value: Value): void {
    this.#values ??= new Array(this.#length).fill(null)
    this.#values[index] = value
  }

  encode(toArray: ToArray<Value>): Buffer | null {
    return this.#values === null ? null : toArray(this.#values)
  }
}
