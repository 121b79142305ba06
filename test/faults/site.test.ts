/** `npm run site` makes pages that a browser reads from the disk, without any server. */
import { spawnSync } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath, pathToFileURL } from 'node:url'
import type { Browser, Page } from 'playwright-core'
import { beforeAll, describe, expect, it } from 'vitest'
import { canRunChromium, launchChromium } from '../support/chromium.ts'
import { temporaryDirectory } from '../support/process.ts'

const ROOT = fileURLToPath(new URL('../..', import.meta.url))
const site = temporaryDirectory()

beforeAll(() => {
  const { status, stderr } = spawnSync(process.execPath, ['scripts/site.mjs', site], {
    cwd: ROOT,
    encoding: 'utf8',
  })
  expect({ status, stderr }).toEqual({ status: 0, stderr: '' })
})

it('names no host in its own scripts and styles', () => {
  for (const name of ['search.js', 'style.css'])
    expect(readFileSync(join(site, name), 'utf8')).not.toContain('//')
})

describe.runIf(canRunChromium('the static site is'))('in a browser', () => {
  let browser: Browser
  let page: Page
  const requests: string[] = []
  const errors: string[] = []

  beforeAll(async () => {
    browser = await launchChromium()
    page = await browser.newPage()
    page.on('request', (request) => requests.push(request.url()))
    page.on('pageerror', (error) => errors.push(error.message))
    return () => browser.close()
  })

  it('the search finds a section and opens it', async () => {
    await page.goto(pathToFileURL(join(site, 'index.html')).href)
    await page.getByRole('searchbox').fill('rotate secrets')
    await page.getByRole('link', { name: 'Change secrets: Rotate secrets' }).click()
    await page.waitForURL('**/docs/operate/secrets.html#rotate-secrets')
    expect(await page.getByRole('heading', { name: 'Rotate secrets' }).isVisible()).toBe(true)
  })

  it('the search finds an operation of the API, and the reference shows it', async () => {
    await page.getByRole('searchbox').fill('delete audience')
    await page.getByRole('link', { name: 'API reference: DELETE /api/audience/{id}' }).click()
    await page.locator('#operations-Audience-eraseMember .opblock-body').waitFor()
  })

  it('nothing comes from elsewhere, and no script fails', () => {
    expect(requests.filter((url) => !/^(file|data):/.test(url))).toEqual([])
    expect(errors).toEqual([])
  })
})
