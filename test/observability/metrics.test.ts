/** The listener of /metrics. faults/console-process.test.ts, faults/process.test.ts and faults/workers.test.ts scrape services. */
import type { AddressInfo } from 'node:net'
import { expect, it, onTestFinished } from 'vitest'
import { serveMetrics } from '../../src/http/metrics-page.ts'
import { BROKEN_HEADER, sendRaw } from '../support/raw.ts'

async function serve(metrics: () => Promise<string>) {
  const logged: unknown[] = []
  const log = { warn: (...line: unknown[]) => void logged.push(line) }
  const app = await serveMetrics({ contentType: 'text/plain', metrics }, '127.0.0.1', 0, log)
  onTestFinished(() => app.close())
  return { url: `http://127.0.0.1:${(app.server.address() as AddressInfo).port}`, logged }
}

it('logs a failed scrape, and answers 503 until one succeeds', async () => {
  let fault: Error | null = new TypeError('no gauge')
  const { url, logged } = await serve(async () => {
    if (fault) throw fault
    return 'up 1\n'
  })
  const statusOf = () => fetch(`${url}/metrics`).then(({ status }) => status)
  expect(await statusOf()).toBe(503)
  fault = null
  expect(await statusOf()).toBe(200)
  expect(logged).toEqual([[{ fault: 'TypeError', reason: 'no gauge' }, 'the metrics cannot be scraped']])
})

it('keeps every response out of caches and of guesses at its type', async () => {
  const { url } = await serve(async () => 'up 1\n')
  const page = await fetch(`${url}/metrics?name=up`)
  expect([page.status, page.headers.get('content-type'), await page.text()]).toEqual([
    ...[200, 'text/plain', 'up 1\n'],
  ])
  const answers = [page, await fetch(`${url}/`), await fetch(`${url}/metrics`, { method: 'HEAD' })]
  expect(answers.map(({ status }) => status)).toEqual([200, 404, 404])
  const raw = await sendRaw({ url }, BROKEN_HEADER)
  expect(raw).toMatch(/^HTTP\/1.1 400 /)
  const headersOf = ({ headers }: Response) => [...headers].map((header) => header.join(': ')).join('\r\n')
  for (const head of [raw, ...answers.map(headersOf)]) {
    expect(head).toContain('cache-control: no-store')
    expect(head).toContain('x-content-type-options: nosniff')
  }
})
