/** What an attempt holds is released, whatever happens. */

import { expect, it } from 'vitest'
import { SecretKeys } from '../../src/config/secret-keys.ts'
import { Attempt } from '../../src/endpoints/attempt.ts'
import type { ContentRow, EndpointRow } from '../../src/endpoints/backlog.ts'
import type { Contents } from '../../src/endpoints/contents.ts'

it('lets erasures pass when a message cannot be built', async () => {
  const endpoint = { status: 'active', url: 'https://example.com/', allow_private_network: true }
  const row = { ...endpoint, format: 'line', replies: false, channel_secret: 's', events: '{' }
  let isReleased = false
  const release = () => {
    isReleased = true
  }
  const contents = {
    read: async () => ({ row: row as Partial<ContentRow>, release, whenLost: () => undefined }),
  }
  const attempt = new Attempt(
    SecretKeys.NONE,
    contents as unknown as Contents,
    endpoint as EndpointRow,
    { id: 1n, accountId: 1n, endpointId: 1n },
    true,
  )
  await expect(attempt.open()).rejects.toThrow(SyntaxError)
  expect(isReleased).toBe(true)
})
