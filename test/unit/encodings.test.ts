/** The encodings of spreadsheets, on every version of Node.js that is supported: TextDecoder takes them from ICU. */
import { expect, it } from 'vitest'
import { ENCODINGS } from '../../src/audience/import/encodings.ts'

// Of Microsoft's tables, as Python's codecs have them: half-width kana, and what CP932 adds to Shift_JIS or maps differently.
const SAMPLES: Array<[encoding: keyof typeof ENCODINGS, hex: string, text: string]> = [
  ['cp932', '5c7eb1dd', '\\~ｱﾝ'],
  ['cp932', '8160817c8191819281ca', '～－￠￡￢'],
  ['cp932', '874087548782878a', '①Ⅰ№㈱'],
  ['cp932', 'fbfcfae0ed40eefc', '髙\uf929纊＂'],
  ['cp932', '83658358836783815c', 'テストメ\\'],
  ['tis-620', 'a1e0b9e9d3dfa4d2e0bfe8', 'กเน้ำ฿คาเฟ่'],
  ['tis-620', '80859394fb', '€…“”๛'],
]

it.each(SAMPLES)('%s %s is %s', (encoding, hex, text) => {
  const decoder = new TextDecoder(ENCODINGS[encoding], { fatal: true })
  expect(decoder.decode(Buffer.from(hex, 'hex'))).toBe(text)
})

it.each([
  ['cp932', 'ff'],
  ['cp932', '83'],
  ['cp932', '8120'],
  ['utf-8', '83'],
] as const)('%s refuses %s', (encoding, hex) => {
  const decoder = new TextDecoder(ENCODINGS[encoding], { fatal: true })
  expect(() => decoder.decode(Buffer.from(hex, 'hex'))).toThrow(TypeError)
})
