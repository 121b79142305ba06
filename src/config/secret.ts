import { createSecretKey, type KeyObject, timingSafeEqual } from 'node:crypto'
import { inspect } from 'node:util'

/** A value that must never be printed. String conversion, JSON and console.log all show `[secret]`. */
export class Secret {
  readonly #value: string
  #key: KeyObject | null = null

  constructor(value: string) {
    this.#value = value
  }

  /** Returns the value. Review every call. */
  reveal(): string {
    return this.#value
  }

  /** Key for an HMAC. Creating it takes as long as one signature, so it is created once. */
  key(): KeyObject {
    this.#key ??= createSecretKey(this.#value, 'utf8')
    return this.#key
  }

  equals(other: Secret): boolean {
    return equalInConstantTime(Buffer.from(this.#value), Buffer.from(other.#value))
  }

  /** A secret of white space is easy to guess. */
  isBlank(): boolean {
    return this.#value.trim() === ''
  }

  toString(): string {
    return '[secret]'
  }

  toJSON(): string {
    return '[secret]'
  }

  [inspect.custom](): string {
    return '[secret]'
  }
}

/** Wraps a nullable column. A blank secret counts as absent, so checks against it fail closed. */
export function secretOrNull(value: string | null): Secret | null {
  return value === null || value.trim() === '' ? null : new Secret(value)
}

/** The duration depends only on the lengths, which are not secret. */
export function equalInConstantTime(a: Buffer, b: Buffer): boolean {
  return a.length === b.length && timingSafeEqual(a, b)
}
