/** Which clients a response cuts off because they read too slowly. */
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest'
import { PIECE_BYTES, ReadingRate } from '../../src/http/reading-rate.ts'

beforeEach(() => void vi.useFakeTimers())
afterEach(() => void vi.useRealTimers())

const HOUR_SECONDS = 3_600

/** Sends pieces to a client that takes each in the given seconds. Returns the second at which it is cut off, or null. */
function cutOffAt(secondsPerPiece: (no: number) => number, bytes = PIECE_BYTES): number | null {
  let at: number | null = null
  const start = performance.now()
  const elapsed = () => (performance.now() - start) / 1000
  const rate = new ReadingRate(() => {
    at = elapsed()
  })
  for (let no = 0; at === null && elapsed() < HOUR_SECONDS; no += 1) {
    rate.wait()
    vi.advanceTimersByTime(secondsPerPiece(no) * 1000)
    if (at === null) rate.took(bytes)
  }
  rate.end()
  return at
}

describe('the rate at which a client reads', () => {
  it('is too low at 3.7 KB/s, also after a fast start', () => {
    const secondsPerPiece = PIECE_BYTES / 3_700
    expect(cutOffAt(() => secondsPerPiece)).toBeLessThan(120)
    expect(cutOffAt((no) => (no < 1_000 ? 0.01 : secondsPerPiece))).toBeLessThan(120)
  })

  it('is high enough at 7 KB/s, in pieces of any size', () => {
    expect(cutOffAt(() => PIECE_BYTES / 7_000)).toBeNull()
    expect(cutOffAt(() => 1_000 / 7_000, 1_000)).toBeNull()
  })

  it('is too low when a client stops for 50 s, and not when it pauses for 45 s', () => {
    expect(cutOffAt((no) => (no === 3 ? 3_600 : 0.01))).toBeCloseTo(50, 0)
    expect(cutOffAt((no) => (no % 10 === 3 ? 45 : 0.01))).toBeNull()
  })

  it('does not count the time in which the service has nothing to send', () => {
    const onTooSlow = vi.fn()
    const rate = new ReadingRate(onTooSlow)
    for (let no = 0; no < 10; no += 1) {
      rate.wait()
      rate.took(PIECE_BYTES)
      vi.advanceTimersByTime(60_000)
    }
    expect(onTooSlow).not.toHaveBeenCalled()
  })

  it('does not matter any more when the response is over', () => {
    const onTooSlow = vi.fn()
    const rate = new ReadingRate(onTooSlow)
    rate.wait()
    rate.end()
    rate.wait()
    vi.advanceTimersByTime(60_000)
    expect(onTooSlow).not.toHaveBeenCalled()
  })
})
