/** Text of tenants, of people and of their servers, as one line of a message, of a label or of a result. */

/** Removes what changes lines or the direction of text, and cuts the text to a number of characters. */
export function oneLine(text: string, max: number): string {
  const line = text
    .toWellFormed()
    .replace(/\p{Bidi_Control}/gu, '')
    .replace(/[\p{Cc}\p{Zl}\p{Zp}\s]+/gu, ' ')
    .trim()
  const characters = [...line]
  return characters.length <= max
    ? line
    : `${characters
        .slice(0, max - 1)
        .join('')
        .trimEnd()}…`
}
