/** The field of the account's form that each problem links to. */
import { expect, it } from 'vitest'
import type { Check, FailureReason } from '../../src/accounts/verification.ts'
import type { Problem } from '../../src/watch/account-status.ts'
import { fixPath } from '../../web/parts/problem-fixes.ts'

const check = (name: Check['name'], reason: FailureReason): Check => ({
  name,
  reason,
  ok: false,
  message: 'x',
})
const tokenRefused = (reason: FailureReason): Problem => ({
  ...{ reason: 'token_refused', status: 'broken', facts: { check: check('access_token', reason) } },
})
const notVerifiable = (hasChannelId: boolean): Problem => ({
  ...{ reason: 'not_verifiable', status: 'degraded' },
  facts: { hasChannelId, hasChannelSecret: !hasChannelId },
})

it.each([
  [notVerifiable(true), 'channelSecret'],
  [notVerifiable(false), 'channelId'],
  [tokenRefused('token_refused'), 'channelAccessToken'],
  [tokenRefused('credentials_refused'), 'channelSecret'],
])('%o is fixed in the field %s', (problem, field) => {
  expect(fixPath(problem, '5')).toBe(`/accounts/5/edit?field=${field}`)
})

it('a test that LINE could not deliver, and a reason of a newer service, are fixed on the page of the account', () => {
  const facts = { check: check('webhook_test', 'test_timed_out') }
  expect(fixPath({ reason: 'webhook_test_failed', status: 'broken', facts }, '5')).toBe('/accounts/5')
  expect(fixPath({ reason: 'of_a_newer_version' } as never, '5')).toBe('/accounts/5')
})
