/** What an attempt holds is released, whatever happens. */

import { expect, it } from 'vitest'
import { SecretKeys } from '../../src/config/secret-keys.ts'
import type { ContentRow, EndpointRow } from '../../src/endpoints/backlog.ts'
import { openMessage, type ReadContent } from '../../src/endpoints/messages.ts'

it('lets erasures pass when a message cannot be built', async () => {
  const endpoint = { status: 'active', url: 'https://example.com/', allow_private_network: true }
  const row = { ...endpoint, format: 'line', replies: false, channel_secret: 's', events: '{' }
  let isReleased = false
  const release = () => {
    isReleased = true
  }
  const contents = {
    read: async () => ({ row: row as ContentRow, release, whenLost: () => undefined }),
  }
  const delivery = { id: 1n, accountId: 1n, endpointId: 1n }
  const attempt = { endpoint: endpoint as EndpointRow, delivery, isProven: true }
  const read: ReadContent = { change: null, isCurrent: false, events: null, waitedMs: 0 }
  await expect(openMessage(SecretKeys.NONE, contents, attempt, read)).rejects.toThrow(SyntaxError)
  expect(isReleased).toBe(true)
})
