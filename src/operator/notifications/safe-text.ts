/** Makes text of tenants harmless in chats: anybody who may edit an account chooses its name. */
import { WORD_JOINER } from '../../one-line.ts'

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
