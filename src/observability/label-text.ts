/** Labels that contain text of tenants, which alerts carry to chats and mailboxes. */
import { chatName, oneLine } from '../one-line.ts'

/** Longer names add bytes to every scrape, but do not help to find an account. */
const NAME_MAX_LENGTH = 60

/** Chats read `<!here>`, `@channel` and code in backticks, and mail programs read tags. */
const LOOKALIKES: Record<string, string> = { '<': '‹', '>': '›', '@': '＠', '`': "'" }

/** A name in one line, in which nothing is a mention, a link or a tag. prom-client escapes quotes and backslashes. */
export const nameLabel = (name: string): string =>
  chatName(oneLine(name, NAME_MAX_LENGTH)).replace(/[<>@`]/g, (character) => LOOKALIKES[character] as string)

/** Only host and port: a path or query may contain a token. */
export const hostLabel = (url: string): string => (URL.canParse(url) ? new URL(url).host : '')
