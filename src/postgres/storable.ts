/** PostgreSQL text holds neither the character 0 nor half a surrogate pair. */
export function isStorableText(text: string): boolean {
  return !text.includes('\0') && text.isWellFormed()
}

/** The text without what PostgreSQL cannot store. */
export function toStorableText(text: string): string {
  return text.replaceAll('\0', '').toWellFormed()
}
