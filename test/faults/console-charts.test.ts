/** The charts of the console name each hour and day once, in any zone and whatever the clock of the browser says. */
import type { Browser } from 'playwright-core'
import { beforeAll, describe, expect, it } from 'vitest'
import { canRunChromium } from '../support/chromium.ts'
import { openConsole, visitConsole } from '../support/console-browser.ts'
import { addTenant } from '../support/database.ts'
import { load } from '../support/load.ts'

/** Charts are pictures: what they write is read where they write it. */
const RECORD_TEXTS = `
  window.drawn = new Set()
  const fillText = CanvasRenderingContext2D.prototype.fillText
  CanvasRenderingContext2D.prototype.fillText = function (text, ...place) {
    window.drawn.add(text)
    return fillText.call(this, text, ...place)
  }`

const DAY_MS = 86_400_000

describe.runIf(canRunChromium('the charts of the console are'))('the charts of an account', () => {
  let browser: Browser
  let url: string
  let path: string
  beforeAll(async () => {
    const opened = await openConsole(async (database) => {
      const { accountId } = await addTenant(database)
      await load(
        database,
        `insert into delivery_hour (channel_oa_id, hour, source, deliveries, accepted)
         values ($1, date_trunc('hour', now()), 'line', 3, 3)`,
        [accountId],
      )
      await load(
        database,
        `insert into account_day (channel_oa_id, day, members, following, blocked)
         select $1, (now() at time zone 'UTC' + interval '9 hours')::date - age, 1010 - age, 1004 - age, null from generate_series(0, 1) age`,
        [accountId],
      )
      return `/accounts/${accountId}`
    })
    ;({ browser, url, loaded: path } = opened)
    return opened.close
  })

  it.each([
    ['America/Los_Angeles', -10],
    ['Asia/Kolkata', 10],
    ['Asia/Tokyo', 0],
  ])('name one hour and two days in %s, with a clock that is %i days ahead', async (timezoneId, days) => {
    const clock = new Date(Date.now() + days * DAY_MS)
    const page = await visitConsole(browser, url, { path, timezoneId, clock, script: RECORD_TEXTS })
    const drawn = async () =>
      ((await page.evaluate('[...window.drawn]')) as string[]).map((text) => text.replaceAll(/\s/g, ' '))
    await expect.poll(async () => (await drawn()).filter((text) => /^\w+ \d+$/.test(text)).length).toBe(2)
    const hour = new Intl.DateTimeFormat('en', {
      hour: 'numeric',
      timeZone: timezoneId,
      ...(timezoneId === 'Asia/Kolkata' && { minute: '2-digit' }),
    })
    const labels = (await drawn()).filter((text) => /[AP]M$/.test(text))
    expect(labels).toEqual([
      expect.stringContaining(
        hour.format(Math.floor(Date.now() / 3_600_000) * 3_600_000).replaceAll(/\s/g, ' '),
      ),
    ])
    const lineDay = new Intl.DateTimeFormat('en', { month: 'short', day: 'numeric', timeZone: 'Asia/Tokyo' })
    const expected = [lineDay.format(Date.now() - DAY_MS), lineDay.format(Date.now())]
    expect((await drawn()).filter((text) => /^\w+ \d+$/.test(text))).toEqual(expected)
    // 1,003 and 1,004 followers: none of their labels is 1K.
    expect(await drawn()).not.toContain('1K')
    await page.getByText('Show the numbers').last().click()
    await page
      .getByRole('rowheader', {
        name: `${expected[1]}, ${new Date(Date.now() + 9 * 3_600_000).getUTCFullYear()}`,
        exact: true,
      })
      .waitFor()
    if (process.env.SHOTS)
      await page.screenshot({ path: `${process.env.SHOTS}/chart-${days}.png`, fullPage: true })
  })
})
