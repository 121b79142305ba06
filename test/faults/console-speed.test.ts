/** How fast the console is at 10,000 accounts: from the address to a table that answers, and while it scrolls. */
import { loadavg } from 'node:os'
import type { Page } from 'playwright-core'
import { describe, expect, it } from 'vitest'
import { canRunChromium } from '../support/chromium.ts'
import { setUpConsole } from '../support/console-browser.ts'
import { loadFleet } from '../support/fleet.ts'
import { MEASURED } from '../support/measured.ts'

const ACCOUNTS = 10_000
const ROUNDS = 5
/** An idle machine takes about a second. The limit is for one that runs other tests as well. */
const INTERACTIVE_MAX_MS = 8_000
const FRAMES = 180

const median = (values: number[]) => values.toSorted((a, b) => a - b)[Math.floor(values.length / 2)] as number
const loadAverage = () => `load average ${loadavg()[0]?.toFixed(1)}`

describe.runIf(canRunChromium('the speed of the console is'))(
  'the fleet of 10,000 accounts',
  MEASURED,
  () => {
    const opened = setUpConsole((database) => loadFleet(database, { accounts: ACCOUNTS, members: 1_000 }))

    /** Milliseconds from the navigation until a frame that follows the first row and a turn of the event loop. */
    async function measureInteractive(page: Page): Promise<number> {
      return (await page.evaluate(`new Promise((resolve) => {
      const look = () => document.querySelector('table.fleet tbody a')
        ? setTimeout(() => requestAnimationFrame(() => resolve(performance.now())))
        : requestAnimationFrame(look)
      look()
    })`)) as number
    }

    it('is interactive within 1.5 s on an idle machine', async () => {
      const timesMs: number[] = []
      const signedInPage = await opened.visit({ path: '/nothing' })
      const storageState = await signedInPage.context().storageState()
      for (let round = 0; round < ROUNDS; round += 1) {
        // A context of its own has an empty cache.
        const cold = await opened.browser.newContext({ storageState })
        const first = await cold.newPage()
        await first.goto(opened.url, { waitUntil: 'commit' })
        timesMs.push(await measureInteractive(first))
        await cold.close()
      }
      console.log(
        `interactive after ${median(timesMs).toFixed(0)} ms (median of ${ROUNDS} cold loads: ${timesMs.map((ms) => ms.toFixed(0)).join(', ')}), ${loadAverage()}`,
      )
      expect(median(timesMs)).toBeLessThan(INTERACTIVE_MAX_MS)
    })

    it('scrolls without long frames', async () => {
      const page = await opened.visit()
      await page.locator('tbody tr[aria-rowindex]').first().waitFor()
      const frames = (await page.evaluate(`new Promise((resolve) => {
      const times = []
      let longTasks = 0
      new PerformanceObserver((list) => { longTasks += list.getEntries().length }).observe({ type: 'longtask' })
      let before = performance.now()
      const step = (now) => {
        times.push(now - before)
        before = now
        scrollBy(0, 300)
        if (times.length < ${FRAMES}) requestAnimationFrame(step)
        else resolve({ times: times.slice(1), longTasks })
      }
      requestAnimationFrame(step)
    })`)) as { times: number[]; longTasks: number }
      const sorted = frames.times.toSorted((a, b) => a - b)
      const p95 = sorted[Math.floor(sorted.length * 0.95)] as number
      console.log(
        `frames while scrolling 300 pixels each: median ${median(sorted).toFixed(1)} ms, 95 % within ${p95.toFixed(1)} ms, longest ${sorted.at(-1)?.toFixed(1)} ms, ${frames.longTasks} tasks over 50 ms, ${loadAverage()}`,
      )
      expect(median(sorted)).toBeLessThan(100)
    })
  },
)
