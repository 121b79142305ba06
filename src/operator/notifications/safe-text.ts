/** Makes text of tenants harmless in messages: anybody who may edit an account chooses its name. */

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
const WORD_JOINER = '\u2060'

/**
 * A name for chats, which read everything that looks like an address of the web as a link, and Mattermost and others also
 * `[text](url)`.
 */
export const chatName = (name: string): string =>
  name
    .replace(/:(?=\/\/)/g, `:${WORD_JOINER}`)
    .replace(/\.(?=[\p{L}\p{N}])/gu, `.${WORD_JOINER}`)
    .replace(/\](?=[([:])/g, `]${WORD_JOINER}`)

/**
 * A line for chats. Slack reads `<!here>`, `<@U1>` and `<https://…|text>`; Mattermost and others also `@channel` and code in backticks.
 * A URL stays as it is, because an operator copies it.
 */
export const chatLine = (line: string): string =>
  line
    .replaceAll('`', "'")
    .replace(/@(?=\S)/g, `@${WORD_JOINER}`)
    .replaceAll('&', '&amp;')
    .replaceAll('<', '&lt;')
    .replaceAll('>', '&gt;')
