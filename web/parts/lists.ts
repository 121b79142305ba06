/** Lists that a person types into one field. */

/** The items of a text that separates them with commas. Null if there is none. */
export function listOf(text: string): string[] | null {
  const items = text
    .split(',')
    .map((item) => item.trim())
    .filter((item) => item !== '')
  return items.length === 0 ? null : items
}
