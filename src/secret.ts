import { createSecretKey, type KeyObject, timingSafeEqual } from 'node:crypto'
import { inspect } from 'node:util'

/** A value that must never be printed: string conversion, JSON and console.log all show `[secret]`. */
export class Secret {
  readonly #value: string
  #key: KeyObject | null = null

  constructor(value: string) {
    this.#value = value
  }

  /** The value itself. Every call is a place to review. */
  reveal(): string {
    return this.#value
  }

  /** For an HMAC. Made once: making it anew for each signature would take as long as the signature. */
  key(): KeyObject {
    this.#key ??= createSecretKey(this.#value, 'utf8')
    return this.#key
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

/** Wraps a nullable column; an empty secret counts as absent, so that whoever checks it fails closed. */
export function secretOrNull(value: string | null): Secret | null {
  return value === null || value === '' ? null : new Secret(value)
}

/** Compares in time that depends on the lengths alone, which are public here. */
export function equalInConstantTime(a: Buffer, b: Buffer): boolean {
  return a.length === b.length && timingSafeEqual(a, b)
}
