/** Encryption of secrets at rest. */
import { randomBytes } from 'node:crypto'
import fc from 'fast-check'
import { expect, it } from 'vitest'
import {
  keyIdOf,
  looksEncrypted,
  SECRET_COLUMNS,
  type SecretColumn,
  SecretKeys,
  UnreadableSecret,
} from '../../src/config/secret-keys.ts'
import { runs } from '../support/runs.ts'

const newKey = (id: string) => `${id}:${randomBytes(32).toString('base64')}`
const [first, second] = [newKey('2026a'), newKey('2025b')]
const keys = SecretKeys.parse(`${first},${second}`)

const COLUMNS = Object.entries(SECRET_COLUMNS).flatMap(([table, columns]) =>
  columns.map((column) => `${table}.${column}` as SecretColumn),
)
const column = fc.constantFrom(...COLUMNS)
const id = fc.bigInt({ min: -(2n ** 63n), max: 2n ** 63n - 1n })
/** PostgreSQL stores neither U+0000 nor unpaired surrogates. */
const text = fc.string({ unit: 'binary', minLength: 1 }).filter((value) => value.trim() !== '')

it('an encrypted secret is decrypted to the same text', () => {
  fc.assert(
    fc.property(column, id, text, (of, row, secret) => {
      const stored = keys.encrypt(of, row, secret)
      expect(keyIdOf(stored)).toBe('2026a')
      expect(looksEncrypted(stored)).toBe(true)
      if (secret.length > 8) expect(stored).not.toContain(secret)
      expect(keys.decrypt(of, row, stored)).toBe(secret)
    }),
    { numRuns: runs(400) },
  )
})

it('an encrypted secret cannot be read in another row or another column, or with another key', () => {
  const other = SecretKeys.parse(`2026a:${randomBytes(32).toString('base64')}`)
  fc.assert(
    fc.property(column, column, id, id, text, (of, elsewhere, row, otherRow, secret) => {
      const stored = keys.encrypt(of, row, secret)
      if (row !== otherRow) expect(() => keys.decrypt(of, otherRow, stored)).toThrow(UnreadableSecret)
      if (of !== elsewhere) expect(() => keys.decrypt(elsewhere, row, stored)).toThrow(UnreadableSecret)
      expect(() => other.decrypt(of, row, stored)).toThrow(UnreadableSecret)
      expect(SecretKeys.NONE.decryptOrNull(of, row, stored)).toBe(null)
    }),
    { numRuns: runs(200) },
  )
})

it('an encrypted secret cannot be read after any of its bits is flipped', () => {
  const of: SecretColumn = 'official_account.channel_secret'
  const stored = keys.encrypt(of, 7n, 'a channel secret')
  const [, prefix = '', encoded = ''] = /^(.*:)([^:]+)$/.exec(stored) ?? []
  const bytes = Buffer.from(encoded, 'base64url')
  for (let bit = 0; bit < bytes.length * 8; bit += 1) {
    const damaged = Buffer.from(bytes)
    damaged.writeUInt8(damaged.readUInt8(bit >> 3) ^ (1 << (bit & 7)), bit >> 3)
    expect(keys.decryptOrNull(of, 7n, prefix + damaged.toString('base64url'))).toBe(null)
  }
  for (let length = 0; length < stored.length; length += 1) {
    const cut = stored.slice(0, length)
    if (looksEncrypted(cut)) expect(keys.decryptOrNull(of, 7n, cut)).toBe(null)
  }
})

it('an encrypted secret has a nonce of its own', () => {
  const values = Array.from({ length: 5_000 }, () => keys.encrypt('endpoint.secret', 1n, 'the same'))
  const nonces = values.map((stored) => stored.slice('enc:v1:2026a:'.length, 'enc:v1:2026a:'.length + 16))
  expect(new Set(nonces).size).toBe(values.length)
})

it('an encrypted secret is read with every configured key, and not without its key', () => {
  const old = SecretKeys.parse(second).encrypt('endpoint.secret', 1n, 'old')
  expect(keys.isCurrent(old)).toBe(false)
  expect(keys.decrypt('endpoint.secret', 1n, old)).toBe('old')
  expect(SecretKeys.parse(first).decryptOrNull('endpoint.secret', 1n, old)).toBe(null)
})

it.each([null, '', ' ', '\t\n'])(
  'a text that is not encrypted stays as it is if it is blank: %j',
  (blank) => {
    expect(keys.encrypt('endpoint.secret', 1n, blank)).toBe(blank)
    expect(keys.decrypt('endpoint.secret', 1n, blank)).toBe(blank)
  },
)

it('a text that is not encrypted is read as it is, and is stored as it is without keys', () => {
  fc.assert(
    fc.property(
      text.filter((value) => !looksEncrypted(value)),
      (plain) => {
        expect(keys.decrypt('endpoint.secret', 1n, plain)).toBe(plain)
        expect(SecretKeys.NONE.encrypt('endpoint.secret', 1n, plain)).toBe(plain)
      },
    ),
    { numRuns: runs(200) },
  )
})

it.each([
  'x',
  'plain',
  `plain,${first}`,
  'a:b:c',
  `a:${randomBytes(16).toString('base64')}`,
  `a:${randomBytes(33).toString('base64')}`,
  `a b:${randomBytes(32).toString('base64')}`,
  `${first},`,
  `${first},${newKey('2026a')}`,
])('SECRETS_KEYS is refused without quoting it: %s', (value) => {
  let message = ''
  try {
    SecretKeys.parse(value)
  } catch (error) {
    message = (error as Error).message
  }
  expect(message).toMatch(/^(must be id:key|has two keys)/)
  for (const part of value.split(/[,:]/).filter((each) => each.length > 8))
    expect(message).not.toContain(part)
})
