/**
 * Encodings of uploaded text, which the command and the page convert to UTF-8: names that people use, and those of the Encoding Standard.
 * windows-874 is TIS-620 with the characters that Windows adds.
 */
export const ENCODINGS = { 'utf-8': 'utf-8', cp932: 'shift_jis', 'tis-620': 'windows-874' } as const

export type Encoding = keyof typeof ENCODINGS
