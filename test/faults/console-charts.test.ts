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

/** Where each canvas wrote the labels of its times, which are centred, when it was last drawn. */
const RECORD_PLACES = `
  window.canvases = new Map()
  const { fillText, clearRect } = CanvasRenderingContext2D.prototype
  CanvasRenderingContext2D.prototype.clearRect = function (...place) {
    canvases.set(this.canvas, [])
    return clearRect.apply(this, place)
  }
  CanvasRenderingContext2D.prototype.fillText = function (text, x, y) {
    const right = this.canvas.width
    if (this.textAlign === 'center') canvases.get(this.canvas)?.push({ text, x, width: this.measureText(text).width, right })
    return fillText.call(this, text, x, y)
  }`

const DAY_MS = 86_400_000

describe.runIf(canRunChromium('the charts of the console are'))('the charts of an account', () => {
  const opened = setUpConsole(async (database) => {
    const { accountId } = await addTenant(database)
    const [{ accountId: emptyId }, { accountId: sparseId }] = [
      await addTenant(database),
      await addTenant(database),
    ]
    await load(
      database,
      `insert into delivery_hour (channel_oa_id, hour, source, deliveries, accepted)
         values ($1, date_trunc('hour', now()) - interval '166 hours', 'line', 1, 1)`,
      [sparseId],
    )
    await load(
      database,
      `insert into account_day (channel_oa_id, day, members, following, blocked)
         values ($1, (now() at time zone 'UTC' + interval '9 hours')::date, 0, 0, 0)`,
      [sparseId],
    )
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
    return { path: `/accounts/${accountId}`, empty: `/accounts/${emptyId}`, sparse: `/accounts/${sparseId}` }
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

  it.each([-365, 0, 365])('without data say so, with a clock that is %i days ahead', async (days) => {
    const clock = new Date(Date.now() + days * DAY_MS)
    const page = await opened.visit({ path: opened.loaded.empty, clock })
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

  it.each(['ja-JP', 'th-TH', 'zh-TW'])(
    'have labels that neither overlap nor are cut off in %s',
    async (locale) => {
      const page = await opened.visit({
        ...{ path: opened.loaded.sparse, locale, timezoneId: 'Asia/Kathmandu' },
        script: RECORD_PLACES,
      })
      const placed = async () =>
        (await page.evaluate('[...canvases.values()].filter((labels) => labels.length > 0)')) as Array<
          Array<{ text: string; x: number; width: number; right: number }>
        >
      await expect.poll(async () => (await placed()).length).toBe(2)
      const overlaps = (await placed()).flatMap((labels) =>
        labels
          .toSorted((a, b) => a.x - b.x)
          .filter(
            ({ x, width }, i, sorted) =>
              x - width / 2 < (sorted[i - 1]?.x ?? -9e9) + (sorted[i - 1]?.width ?? 0) / 2,
          ),
      )
      expect(overlaps).toEqual([])
      const cut = (await placed())
        .flat()
        .filter(({ x, width, right }) => x < width / 2 || x > right - width / 2)
      expect(cut).toEqual([])
      // The point of a single day is in the middle.
      const [day] = (await placed()).find((labels) => labels.length === 1) ?? []
      expect((day?.x ?? 0) / (day?.right ?? 1)).toBeGreaterThan(0.4)
    },
  )
})
