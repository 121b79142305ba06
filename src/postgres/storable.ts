/** PostgreSQL text cannot contain U+0000 or unpaired surrogates. */
export function isStorableText(text: string): boolean {
  return !text.includes('\0') && text.isWellFormed()
}

export function toStorableText(text: string): string {
  return text.replaceAll('\0', '').toWellFormed()
}
