import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { expect, it, onTestFinished } from 'vitest'
import { attempt } from '../../src/endpoints/attempt.ts'
import type { ContentRow, EndpointRow } from '../../src/endpoints/backlog.ts'
import type { Contents } from '../../src/endpoints/contents.ts'

it('lets erasures pass when a message cannot be built', async () => {
  const server = createServer().listen(0, '127.0.0.1')
  await new Promise((resolve) => server.once('listening', resolve))
  onTestFinished(() => {
    server.close()
    server.closeAllConnections()
  })
  const url = new URL(`http://127.0.0.1:${(server.address() as AddressInfo).port}/`)
  const endpoint = { status: 'active', url: url.href, allow_private_network: true } as EndpointRow
  const row = { ...endpoint, format: 'line', replies: false, channel_secret: 's', events: '{' } as Partial<ContentRow> as ContentRow
  let isReleased = false
  const release = () => {
    isReleased = true
  }
  const contents = { read: async () => ({ row, release, onLost: () => undefined }) } as unknown as Contents
  const target = { url, allowPrivateNetwork: true, lookup: () => undefined }
  const delivery = { id: 1n, accountId: 1n, endpointId: 1n }
  await expect(attempt(contents, endpoint, target, delivery)).rejects.toThrow(SyntaxError)
  expect(isReleased).toBe(true)
})
