/** The charts of the console name each hour and day once, in any zone and whatever the clock of the browser says. */
import { describe, expect, it } from 'vitest'
import { canRunChromium } from '../support/chromium.ts'
import { setUpConsole } from '../support/console-browser.ts'
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

/** $1 account bigint, $2 deliveries int in one hour, $3 hours ago int, $4 days int with $5 followers int or fewer */
const insertFigures = `
  with hour as (
    insert into delivery_hour (channel_oa_id, hour, source, deliveries, accepted)
    values ($1::bigint, date_trunc('hour', now()) - $3::int * interval '1 hour', 'line', $2::int, $2::int)
  )
  insert into account_day (channel_oa_id, day, members, following, blocked)
  select $1::bigint, (now() at time zone 'UTC' + interval '9 hours')::date - age, $5::int - age, $5::int - age, case $5::int when 0 then 0 end
    from generate_series(0, $4::int - 1) age`

describe.runIf(canRunChromium('the charts of the console are'))('the charts of an account', () => {
  const opened = setUpConsole(async (database) => {
    const add = async (...figures: number[]) => {
      const { accountId } = await addTenant(database)
      if (figures.length > 0) await load(database, insertFigures, [accountId, ...figures])
      return `/accounts/${accountId}`
    }
    return {
      path: await add(3, 0, 2, 1_004),
      sparse: await add(1, 166, 1, 0),
      empty: await add(),
    }
  })

  it.each([
    ['America/Los_Angeles', -365],
    ['Asia/Kolkata', 365],
    ['Asia/Kathmandu', 1 / 24],
    ['Asia/Kathmandu', -1 / 24],
    ['Asia/Tokyo', 0],
  ])('name one hour and two days in %s, with a clock that is %f days ahead', async (timezoneId, days) => {
    const clock = new Date(Date.now() + days * DAY_MS)
    const page = await opened.visit({
      ...{ path: opened.loaded.path, timezoneId, clock, script: RECORD_TEXTS },
    })
    const drawn = async () =>
      ((await page.evaluate('[...window.drawn]')) as string[]).map((text) => text.replaceAll(/\s/g, ' '))
    await expect.poll(async () => (await drawn()).filter((text) => /^\w+ \d+$/.test(text)).length).toBe(2)
    const hour = new Intl.DateTimeFormat('en', {
      hour: 'numeric',
      timeZone: timezoneId,
      ...(/Kolkata|Kathmandu/.test(timezoneId) && { minute: '2-digit' }),
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
  })

  it('without data say so', async () => {
    const page = await opened.visit({ path: opened.loaded.empty })
    await page.getByText('No deliveries in the last 7 days').waitFor()
    await page.getByText('No counts yet').waitFor()
    expect(await page.locator('canvas').count()).toBe(0)
  })

  it.each([-365, 365])(
    'show a single hour of six days ago and a single day without followers, with a clock that is %i days ahead',
    async (days) => {
      const clock = new Date(Date.now() + days * DAY_MS)
      const page = await opened.visit({ path: opened.loaded.sparse, clock, script: RECORD_TEXTS })
      await expect.poll(() => page.locator('canvas').count()).toBe(2)
      await page.getByText('Show the numbers').first().click()
      const rows = page.locator('figure.chart').first().getByRole('rowheader')
      await expect.poll(() => rows.count()).toBe(1)
      await page.getByText('Show the numbers').last().click()
      const lineDay = new Intl.DateTimeFormat('en', { dateStyle: 'medium', timeZone: 'Asia/Tokyo' })
      await page.getByRole('row', { name: `${lineDay.format(Date.now())} 0 – 0 –` }).waitFor()
      // The axes of counts have whole numbers, and the day has a point, because one point makes no line.
      const drawn = (await page.evaluate('[...window.drawn]')) as string[]
      expect(drawn.filter((text) => /^[\d.,]+$/.test(text)).toSorted()).toEqual(['0', '1', '2', '3', '4'])
    },
  )

  it('"as of" is the time at which the table was loaded, by the clock of the service', async () => {
    const clock = new Date(Date.now() + 365 * DAY_MS)
    const page = await opened.visit({ clock, timezoneId: 'UTC' })
    const asOf = () => page.getByText(/^As of/).innerText()
    const before = await asOf()
    const shown = Date.parse(`${new Date().toISOString().slice(0, 10)} ${before.slice(6)} UTC`)
    expect(Math.abs(((Date.now() - shown + DAY_MS / 2) % DAY_MS) - DAY_MS / 2)).toBeLessThan(60_000)
    await page.clock.setFixedTime(new Date(clock.getTime() + DAY_MS / 2))
    await page.getByLabel('Search accounts').fill('a')
    expect(await asOf()).toBe(before)
  })
})
