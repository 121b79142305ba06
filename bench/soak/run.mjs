/** The course of a run: kills and checks at their times, a line of figures each minute, and the summary. */
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { checkBooks } from './books.mjs'
import { plot } from './plot.mjs'
import { randomTimes, seededRandom } from './random.mjs'
import { BrokenBook } from './requests.mjs'
import { killPostgres } from './services.mjs'
import { summarize } from './summary.mjs'

const MINUTE_MS = 60_000
/** On average. */
const KILL_INTERVAL_MS = 6 * MINUTE_MS
const CHECK_INTERVAL_MS = 5 * MINUTE_MS
/** At full rate a check reads gigabytes. */
const CHECK_INTERVAL_AT_FULL_RATE_MS = 15 * MINUTE_MS
const TICK_MS = 200

export class Run {
  #parts
  #options
  #startedMs = 0
  #checks = []
  #kills = { service: 0, postgres: 0 }

  constructor(parts, options) {
    this.#parts = parts
    this.#options = options
  }

  /** Returns the exit status. */
  async complete() {
    const { load, figures } = this.#parts
    this.#startedMs = Date.now()
    load.start()
    const minutes = setInterval(
      () => figures.write().catch((error) => this.#parts.faults.push(error)),
      MINUTE_MS,
    )
    let fault = null
    try {
      await this.#follow(this.#plan())
      await this.#check()
    } catch (error) {
      fault = error
    }
    clearInterval(minutes)
    load.stop()
    await figures.write()
    return this.#report(fault)
  }

  /** Kills by the seed, and checks at fixed intervals, in the order of their times. */
  #plan() {
    const { durationMs, isFullRate, seed } = this.#options
    const intervalMs = isFullRate ? CHECK_INTERVAL_AT_FULL_RATE_MS : CHECK_INTERVAL_MS
    const random = seededRandom(seed + 1)
    const kills = (name, kill) =>
      randomTimes(random, durationMs, KILL_INTERVAL_MS).map((atMs) => ({ atMs, name, kill }))
    const checks = []
    for (let atMs = intervalMs; atMs < durationMs - intervalMs / 2; atMs += intervalMs) {
      checks.push({ atMs, name: 'check' })
    }
    return [
      ...kills('service', () => this.#killService()),
      ...kills('postgres', () => killPostgres(this.#parts.dataDirectory, this.#parts.services)),
      ...checks,
    ].sort((a, b) => a.atMs - b.atMs)
  }

  async #follow(plan) {
    for (const { atMs, name, kill } of plan) {
      await this.#waitUntil(atMs)
      if (this.#options.interruption.isRequested) return
      if (kill === undefined) {
        await this.#check()
        continue
      }
      const note = this.#note(name)
      this.#kills[name] += 1
      const killedMs = Date.now()
      await kill()
      note.backMs = Date.now() - killedMs
    }
    await this.#waitUntil(this.#options.durationMs)
  }

  async #waitUntil(atMs) {
    while (!this.#options.interruption.isRequested && Date.now() - this.#startedMs < atMs) {
      this.#throwFault()
      await sleep(TICK_MS)
    }
  }

  /** The second service runs from beginning to end, so that a slow leak shows in its memory. */
  #killService() {
    return this.#parts.services[0].killAndRestart()
  }

  async #check() {
    const { load } = this.#parts
    const startedMs = Date.now()
    await load.pause()
    this.#throwFault()
    const compared = await checkBooks(this.#parts)
    this.#throwFault()
    load.resume()
    const tookMs = Date.now() - startedMs
    this.#checks.push({ ...compared, tookMs })
    this.#note('check')
    const { members, events, updates } = compared
    console.log(
      `books: ${members} members, ${events} events, ${updates} updates: 0 missing, 0 twice; ${(tookMs / 1000).toFixed(1)} s`,
    )
  }

  #throwFault() {
    const { faults, services } = this.#parts
    for (const { fault } of services) if (fault) throw new BrokenBook(fault)
    if (faults.length > 0) throw faults[0]
  }

  #note(kind) {
    const note = { kind, s: Math.round((Date.now() - this.#startedMs) / 1000) }
    this.#parts.events.push(note)
    return note
  }

  #report(fault) {
    const { directory, seed } = this.#options
    const { figures, receiver, senders, clients } = this.#parts
    const outcome = {
      seed,
      hours: (Date.now() - this.#startedMs) / 3_600_000,
      books: fault === null ? 'right' : fault.message,
      checks: this.#checks.length,
      kills: this.#kills,
      acknowledged: { ...senders.acknowledged, ...clients.acknowledged },
      received: receiver.received,
    }
    const { text, summary } = summarize(outcome, figures.lines)
    writeFileSync(join(directory, 'summary.json'), `${JSON.stringify(summary, null, 2)}\n`)
    writeFileSync(join(directory, 'plot.svg'), plot(figures.lines))
    console.log(text)
    if (fault === null) return 0
    console.error(fault instanceof BrokenBook ? `a book is wrong: ${fault.message}` : fault)
    return 1
  }
}
