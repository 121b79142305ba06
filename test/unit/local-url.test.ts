import { expect, it } from 'vitest'
import { localUrl } from '../../src/http/local-url.ts'

it.each([
  ['127.0.0.1', 'http://127.0.0.1:3000'],
  ['localhost', 'http://localhost:3000'],
  ['::1', 'http://[::1]:3000'],
  ['0.0.0.0', 'http://127.0.0.1:3000'],
  ['::', 'http://127.0.0.1:3000'],
])('a service that listens on %s is reached at %s', (host, url) => {
  expect(localUrl(host, 3000)).toBe(url)
})
