/** What people call the encodings of spreadsheets, and the names in the Encoding Standard. The command and the page convert to UTF-8. */
export const ENCODINGS = { 'utf-8': 'utf-8', cp932: 'shift_jis', 'tis-620': 'windows-874' } as const

export type Encoding = keyof typeof ENCODINGS
