/** `npm run site` makes pages that a browser reads from the disk, without any server. */
import { spawnSync } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath, pathToFileURL } from 'node:url'
import { expect, it, onTestFinished } from 'vitest'
import { canRunChromium, launchChromium } from '../support/chromium.ts'
import { temporaryDirectory } from '../support/process.ts'

const ROOT = fileURLToPath(new URL('../..', import.meta.url))
const site = temporaryDirectory()

it.runIf(canRunChromium('the static site is'))(
  'the search finds sections and operations of the API, nothing comes from elsewhere, and no script fails',
  async () => {
    const built = spawnSync(process.execPath, ['scripts/site.mjs', site], { cwd: ROOT, encoding: 'utf8' })
    expect(built).toMatchObject({ status: 0, stderr: '' })
    for (const name of ['search.js', 'style.css'])
      expect(readFileSync(join(site, name), 'utf8')).not.toContain('//')
    const browser = await launchChromium()
    onTestFinished(() => browser.close())
    const page = await browser.newPage()
    const [requests, errors]: [string[], string[]] = [[], []]
    page.on('request', (request) => requests.push(request.url()))
    page.on('pageerror', (error) => errors.push(error.message))
    await page.goto(pathToFileURL(join(site, 'index.html')).href)
    await page.getByRole('searchbox').fill('rotate secrets')
    await page.getByRole('link', { name: 'Change secrets: Rotate secrets' }).click()
    await page.waitForURL('**/docs/operate/secrets.html#rotate-secrets')
    await page.getByRole('searchbox').fill('delete audience')
    await page.getByRole('link', { name: 'API reference: DELETE /api/audience/{id}' }).click()
    await page.locator('#operations-Audience-eraseMember .opblock-body').waitFor()
    expect(requests.filter((url) => !/^(file|data):/.test(url))).toEqual([])
    expect(errors).toEqual([])
  },
)
