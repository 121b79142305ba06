/**
 * Bounds the memory of request bodies. An attacker can open connections and send all of a body but its last byte, so bodies in
 * transit take bytes from a budget. Each source has a budget, and one client address can use half of it. When a budget is full,
 * the body that has been incomplete for longest is cut off, or the largest one while all are young. LINE's senders take
 * milliseconds and send a few kilobytes, so an attacker's own bodies are cut off.
 */

/** Memory of an incomplete request besides its body: the connection, its buffers and the request (measured with 1,000). */
export const INCOMPLETE_BYTES = 16 * 1024
/** An honest sender has sent its body by then. */
const YOUNG_MS = 1_000
/** Fraction of a budget that one address can use. Behind a proxy without TRUST_PROXY, all senders have one address. */
const ADDRESS_SHARE = 0.5

export class BodyBudget {
  readonly #maxBytes: number
  /** of complete and incomplete bodies */
  bytes = 0
  /** the oldest first */
  readonly #incomplete = new Set<HeldBody>()
  /** of incomplete bodies */
  readonly #bytesOfAddress = new Map<string, number>()

  constructor(maxBytes: number) {
    this.#maxBytes = maxBytes
  }

  /** Returns null if the budget is full. `onCutOff` is called after the body was released to make room for others. */
  open(address: string, onCutOff: () => void): HeldBody | null {
    const body = new HeldBody(this, address, onCutOff)
    if (!this.grow(body, INCOMPLETE_BYTES)) return null
    this.#incomplete.add(body)
    return body
  }

  /** Returns false if the body itself should be cut off. */
  grow(body: HeldBody, moreBytes: number): boolean {
    const { address } = body
    while (this.#bytesOf(address) + moreBytes > this.#maxBytes * ADDRESS_SHARE)
      if (!this.#cutOffOther(body, moreBytes, address)) return false
    if (!this.#makeRoom(body, moreBytes)) return false
    this.#count(body, moreBytes)
    return true
  }

  /** A complete body is not cut off. Returns false if the budget is full. */
  complete(body: HeldBody, bytes: number): boolean {
    if (!this.#makeRoom(body, bytes - body.bytes)) return false
    this.remove(body)
    body.bytes = bytes
    this.bytes += bytes
    return true
  }

  remove(body: HeldBody): void {
    if (this.#incomplete.delete(body)) this.#count(body, -body.bytes)
    else this.bytes -= body.bytes
  }

  #bytesOf(address: string): number {
    return this.#bytesOfAddress.get(address) ?? 0
  }

  #count(body: HeldBody, bytes: number): void {
    const ofAddress = this.#bytesOf(body.address) + bytes
    if (ofAddress === 0) this.#bytesOfAddress.delete(body.address)
    else this.#bytesOfAddress.set(body.address, ofAddress)
    body.bytes += bytes
    this.bytes += bytes
  }

  #makeRoom(body: HeldBody, moreBytes: number): boolean {
    while (this.bytes + moreBytes > this.#maxBytes)
      if (!this.#cutOffOther(body, moreBytes, null)) return false
    return true
  }

  /** Returns false if there is none to cut off. @param address null: of any address */
  #cutOffOther(body: HeldBody, moreBytes: number, address: string | null): boolean {
    let oldest: HeldBody | null = null
    let largest: HeldBody | null = null
    let minBytes = body.bytes + moreBytes
    const youngFromMs = performance.now() - YOUNG_MS
    for (const other of this.#incomplete) {
      if (address !== null && other.address !== address) continue
      oldest ??= other
      if (oldest.startedAtMs < youngFromMs) {
        largest = oldest === body ? null : oldest
        break
      }
      if (other === body || other.bytes < minBytes) continue
      largest = other
      minBytes = other.bytes + 1
    }
    largest?.cutOff()
    return largest !== null
  }
}

/** The bytes that one request holds: from its headers to its response. */
export class HeldBody {
  readonly address: string
  readonly startedAtMs = performance.now()
  bytes = 0
  content: Buffer | null = null
  readonly #budget: BodyBudget
  readonly #onCutOff: () => void
  #state: 'incomplete' | 'complete' | 'released' = 'incomplete'

  constructor(budget: BodyBudget, address: string, onCutOff: () => void) {
    this.#budget = budget
    this.address = address
    this.#onCutOff = onCutOff
  }

  /** Returns false if the budget is full, or the body was released. */
  grow(bodyBytes: number): boolean {
    return this.#state === 'incomplete' && this.#budget.grow(this, INCOMPLETE_BYTES + bodyBytes - this.bytes)
  }

  /** Returns false if the budget is full, or the body was released. */
  complete(content: Buffer): boolean {
    if (this.#state !== 'incomplete' || !this.#budget.complete(this, content.length)) return false
    this.content = content
    this.#state = 'complete'
    return true
  }

  cutOff(): void {
    this.release()
    this.#onCutOff()
  }

  release(): void {
    if (this.#state !== 'released') this.#budget.remove(this)
    this.#state = 'released'
    this.content = null
  }
}
