/** `oa-audience links`: links of posters, which docs/sources.md explains. */
import { expect, it } from 'vitest'
import { readTouch } from '../../src/intake/tracking/touch.ts'
import { runCommand } from '../support/command.ts'
import { addTenant, createTestDatabase } from '../support/database.ts'

const { database, env } = await createTestDatabase()
const tenant = await addTenant(database, { loginChannelIds: ['2000000007'] })

const PAGE = 'https://liff.line.me/2000000007-AbcdEfgh?lang=th'

const add = (...args: string[]) =>
  runCommand(['links', 'add', '--account', String(tenant.accountId), ...args], env)

it('a link keeps its page, and says to a page where the visitor came from', async () => {
  const values = ['--source', 'qr-shop', '--medium', 'poster', '--campaign', 'ฤดูใบไม้ร่วง & more']
  const { status, stdout } = await add('--page', PAGE, ...values, '--json')
  const { link, svg } = JSON.parse(stdout)
  expect(status).toBe(0)
  expect(link.startsWith(PAGE)).toBe(true)
  const touch = { type: 'touch', source: 'qr-shop', medium: 'poster', campaign: 'ฤดูใบไม้ร่วง & more' }
  expect(readTouch({ page: { url: link } })).toEqual(touch)
  // LIFF opens the page with everything that was added in one parameter, before liff.init() has ended.
  const state = `https://shop.example/?liff.state=${encodeURIComponent(new URL(link).search)}`
  expect(readTouch({ page: { url: state } })).toEqual(touch)
  expect(svg).toMatch(/^<svg[^>]*>.*<\/svg>$/s)
})

it('a link of an account without a login channel is printed, with what is missing', async () => {
  const other = await addTenant(database)
  const args = ['links', 'add', '--account', String(other.accountId), '--page', PAGE, '--source', 'x']
  const { status, stdout, stderr } = await runCommand(args, env)
  expect(status).toBe(0)
  expect(stdout).toContain('utm_source=x')
  expect(stderr).toContain('has no login channel, so no visit is proven')
})

it.each([
  ['a page that is not an https URL', ['--page', 'http://shop.example', '--source', 'x']],
  ['an empty source', ['--page', PAGE, '--source', '']],
  ['a source that is longer than a member may have', ['--page', PAGE, '--source', 'x'.repeat(201)]],
])('refuses %s', async (_name, args) => {
  expect((await add(...args)).status).toBe(1)
})
