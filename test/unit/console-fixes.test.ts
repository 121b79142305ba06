/** The field of the account's form that a problem links to. */
import { expect, it } from 'vitest'
import type { FailureReason } from '../../src/accounts/verification.ts'
import type { Problem } from '../../src/watch/account-status.ts'
import { fixPath } from '../../web/parts/problem-fixes.ts'

const tokenRefused = (reason: FailureReason): Problem => ({
  ...{ reason: 'token_refused', status: 'broken' },
  facts: { check: { name: 'access_token', reason, ok: false, message: 'x' } },
})

it.each([
  ['token_refused', 'channelAccessToken'],
  ['credentials_refused', 'channelSecret'],
] as const)('a refusal with the reason %s is fixed in the field %s', (reason, field) => {
  expect(fixPath(tokenRefused(reason), '5')).toBe(`/accounts/5/edit?field=${field}`)
})

it('a reason of a newer service is fixed on the page of the account', () => {
  expect(fixPath({ reason: 'of_a_newer_version' } as never, '5')).toBe('/accounts/5')
})
