/** docs/errors.md is complete and true. */
import { readFileSync } from 'node:fs'
import { expect, it } from 'vitest'
import { ERROR_MESSAGES, type ErrorCode } from '../../src/errors.ts'
import { ERROR_STATUS } from '../../src/http/error-envelope.ts'

it('docs/errors.md has one row for each error, with its status and message, and no other', () => {
  const text = readFileSync(new URL('../../docs/errors.md', import.meta.url), 'utf8')
  const rows = [...text.matchAll(/^\| (\d{3}) +\| (.+?) +\| .+ \|$/gm)].map(
    ([, status, message]) => `${status} ${message}`,
  )
  const codes = Object.keys(ERROR_MESSAGES) as ErrorCode[]
  const expected = new Set(codes.map((code) => `${ERROR_STATUS[code]} ${ERROR_MESSAGES[code]}`))
  expect(rows.toSorted()).toEqual([...expected].sort())
})
