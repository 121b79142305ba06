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

/** Bytes with the incomplete bodies that hold them, the oldest first. */
class Pool {
  readonly maxBytes: number
  bytes = 0
  readonly incomplete = new Set<HeldBody>()

  constructor(maxBytes: number) {
    this.maxBytes = maxBytes
  }

  add(body: HeldBody): void {
    this.bytes += body.bytes
    this.incomplete.add(body)
  }

  remove(body: HeldBody): void {
    this.bytes -= body.bytes
    this.incomplete.delete(body)
  }

  /** Cuts off other bodies until `moreBytes` fit. Returns false if the body itself should be cut off. */
  makeRoom(body: HeldBody, moreBytes: number): boolean {
    while (this.bytes + moreBytes > this.maxBytes) {
      const other = this.#next(body, moreBytes)
      if (other === null) return false
      other.cutOff()
    }
    return true
  }

  #next(body: HeldBody, moreBytes: number): HeldBody | null {
    const [oldest] = this.incomplete
    if (oldest === undefined) return null
    if (performance.now() - oldest.startedAtMs > YOUNG_MS) return oldest === body ? null : oldest
    let largest: HeldBody | null = null
    let minBytes = body.bytes + moreBytes
    for (const other of this.incomplete) {
      if (other === body || other.bytes < minBytes) continue
      largest = other
      minBytes = other.bytes + 1
    }
    return largest
  }
}

export class BodyBudget {
  readonly #all: Pool
  readonly #addresses = new Map<string, Pool>()

  constructor(maxBytes: number) {
    this.#all = new Pool(maxBytes)
  }

  get bytes(): number {
    return this.#all.bytes
  }

  /** Returns null if the budget is full. `onCutOff` is called after the body was released to make room for others. */
  open(address: string, onCutOff: () => void): HeldBody | null {
    const ofAddress = this.#addresses.get(address) ?? new Pool(this.#all.maxBytes * ADDRESS_SHARE)
    const leave = () => {
      if (ofAddress.incomplete.size === 0) this.#addresses.delete(address)
    }
    const body = new HeldBody(this.#all, ofAddress, onCutOff, leave)
    if (!body.begin()) return null
    this.#addresses.set(address, ofAddress)
    return body
  }
}

/** The bytes that one request holds: from its headers to its response. */
export class HeldBody {
  readonly startedAtMs = performance.now()
  bytes = INCOMPLETE_BYTES
  content: Buffer | null = null
  readonly #all: Pool
  readonly #ofAddress: Pool
  readonly #onCutOff: () => void
  readonly #leave: () => void
  #state: 'new' | 'incomplete' | 'complete' | 'released' = 'new'

  constructor(all: Pool, ofAddress: Pool, onCutOff: () => void, leave: () => void) {
    this.#all = all
    this.#ofAddress = ofAddress
    this.#onCutOff = onCutOff
    this.#leave = leave
  }

  begin(): boolean {
    if (!this.#ofAddress.makeRoom(this, this.bytes) || !this.#all.makeRoom(this, this.bytes)) return false
    this.#state = 'incomplete'
    this.#ofAddress.add(this)
    this.#all.add(this)
    return true
  }

  grow(bodyBytes: number): boolean {
    if (this.#state !== 'incomplete') return false
    const more = INCOMPLETE_BYTES + bodyBytes - this.bytes
    if (!this.#ofAddress.makeRoom(this, more) || !this.#all.makeRoom(this, more)) return false
    this.bytes += more
    this.#ofAddress.bytes += more
    this.#all.bytes += more
    return true
  }

  /** A complete body is not cut off. Returns false if there is no room, or it was released. */
  complete(content: Buffer): boolean {
    if (this.#state !== 'incomplete') return false
    if (!this.#all.makeRoom(this, content.length - this.bytes)) return false
    this.#endTransit()
    this.content = content
    this.bytes = content.length
    this.#all.bytes += content.length
    this.#state = 'complete'
    return true
  }

  cutOff(): void {
    this.release()
    this.#onCutOff()
  }

  release(): void {
    if (this.#state === 'incomplete') this.#endTransit()
    else if (this.#state === 'complete') this.#all.bytes -= this.bytes
    this.#state = 'released'
    this.content = null
  }

  #endTransit(): void {
    this.#ofAddress.remove(this)
    this.#all.remove(this)
    this.#leave()
  }
}
