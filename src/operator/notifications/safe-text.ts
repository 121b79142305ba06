/** Makes text of tenants harmless in chats: anybody who may edit an account chooses its name. */

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
