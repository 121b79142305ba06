/** Random choices that a seed repeats. The order in which concurrent answers arrive is not repeatable. */

/**
 * mulberry32: 32 bits of state, which is enough to choose people and times.
 * @param {number} seed
 */
export function seededRandom(seed) {
  let state = seed
  const next = () => {
    state = (state + 0x6d2b79f5) | 0
    let bits = Math.imul(state ^ (state >>> 15), 1 | state)
    bits = (bits + Math.imul(bits ^ (bits >>> 7), 61 | bits)) ^ bits
    return ((bits ^ (bits >>> 14)) >>> 0) / 2 ** 32
  }
  return {
    next,
    below: (limit) => Math.floor(next() * limit),
    pick: (list) => list[Math.floor(next() * list.length)],
    chance: (share) => next() < share,
  }
}

/**
 * One random time in each of the equal parts of a duration, at least one. The last part of the run stays without a kill, so that
 * its end shows a settled state.
 * @param {{next: () => number}} random
 */
export function randomTimes(random, durationMs, intervalMs) {
  const usedMs = durationMs * 0.9
  const count = Math.max(1, Math.round(usedMs / intervalMs))
  return Array.from({ length: count }, (_, part) => ((part + random.next()) * usedMs) / count)
}
