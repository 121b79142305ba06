/** The console says where to report a vulnerability, to everybody who reaches it. */
import { readFileSync } from 'node:fs'
import { expect, it } from 'vitest'
import { addressesOf } from '../src/console/security-text.ts'
import { startConsole } from './support/console.ts'
import { createTestDatabase } from './support/database.ts'

const { database } = await createTestDatabase()
const now = () => Date.parse('2026-01-01T00:00:00Z')

async function securityText(url: string, headers = {}) {
  const response = await fetch(`${url}/.well-known/security.txt`, { headers })
  expect([response.status, response.headers.get('content-type')]).toEqual([200, 'text/plain; charset=utf-8'])
  const lines = (await response.text()).trimEnd().split('\n')
  return lines.map((line) => line.split(/: (.*)/).slice(0, 2))
}

it('has the fields that RFC 9116 requires, and ends a month after the response', async () => {
  const { url } = await startConsole(database, { now })
  expect(await securityText(url)).toEqual([
    ['Contact', `${url}/SECURITY.md`],
    ['Expires', '2026-01-31T00:00:00.000Z'],
    ['Policy', `${url}/SECURITY.md`],
    ['Preferred-Languages', 'en'],
  ])
})

it('names first what the publisher of the copy has set as `bugs` in package.json', () => {
  expect(addressesOf('https://bugs.example')).toEqual(['https://bugs.example'])
  expect(addressesOf({ email: 'security@bugs.example', url: 'https://bugs.example' })).toEqual([
    'mailto:security@bugs.example',
    'https://bugs.example',
  ])
})

it('refers to SECURITY.md of the running version, which needs no sign-in', async () => {
  const { url } = await startConsole(database)
  const [, address = ''] = (await securityText(url))[0] ?? []
  const response = await fetch(address)
  expect(response.status).toBe(200)
  expect(await response.text()).toBe(readFileSync(new URL('../SECURITY.md', import.meta.url), 'utf8'))
})

it('has the public address behind a proxy: CONSOLE_URL, or what the trusted proxy reports', async () => {
  const headers = { 'x-forwarded-proto': 'https', 'x-forwarded-host': 'console.example.com' }
  const contacts = [{ trustProxy: ['loopback'] }, { consoleUrl: 'https://console.example.com' }, {}].map(
    async (config) => (await securityText((await startConsole(database, { config })).url, headers))[0]?.[1],
  )
  expect(await Promise.all(contacts)).toEqual([
    'https://console.example.com/SECURITY.md',
    'https://console.example.com/SECURITY.md',
    expect.stringMatching(/^http:\/\/127\.0\.0\.1:\d+\/SECURITY\.md$/),
  ])
})
