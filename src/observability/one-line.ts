/** Text of tenants, of people and of their servers, as one line of a message, of a label or of a result. */

/** `1 event`, `2 events`. @param one ends in its plural with an s */
export const counted = (count: number, one: string): string => `${count} ${one}${count === 1 ? '' : 's'}`

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

/** U+2060, which is invisible and takes no width, breaks up what a chat would read as a mention or a link. */
export const WORD_JOINER = '\u2060'

/** A name for chats, which read what looks like an address of the web as a link, and some of them also `[text](url)`. */
export const chatName = (name: string): string =>
  name
    .replace(/:(?=\/\/)/g, `:${WORD_JOINER}`)
    .replace(/\.(?=[\p{L}\p{N}])/gu, `.${WORD_JOINER}`)
    .replace(/\](?=[([:])/g, `]${WORD_JOINER}`)
