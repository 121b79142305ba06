/** Credentials in an address that is a parameter of another address, and texts that only look like a user in an address. */
import { expect, test } from 'vitest'
import { storedPayload } from '../src/intake/stored-payload.ts'

const stored = (text: string) => (JSON.parse(storedPayload({ text })) as { text: string }).text

test.each([
  'https://x.example/?next=/login?token=hunter2',
  'https://x.example/?a=1;token=hunter2',
  'https://x.example/?liff.state=%3Ftoken%3Dhunter2',
  'https://x.example/?url=https%3A%2F%2Fy.example%2F%3Faccess_token%3Dhunter2',
])('removes the credential of a nested address: %s', (text) => {
  expect(stored(text)).not.toContain('hunter2')
})

test.each([
  'HP:https://shop.example、メール:info@shop.example',
  '公式https://shop.exampleお問合せinfo@shop.exampleまで',
])('keeps a text without spaces that has an address and an email address: %s', (text) => {
  expect(stored(text)).toBe(text)
})
