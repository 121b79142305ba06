/** The options of an official account, which `accounts add`, `accounts update`, `accounts apply` and `setup` share. */
import type { Command } from 'commander'
import type { AccountColumns } from '../accounts/provisioning.ts'
import { FatalError } from '../errors.ts'
import { printError } from './io.ts'

/** Option → column. The compiler requires one option for each column. */
export const COLUMNS = {
  name: 'name',
  channelId: 'channel_id',
  channelSecret: 'channel_secret',
  channelAccessToken: 'channel_access_token',
  botUserId: 'bot_user_id',
  basicId: 'basic_id',
  chatSecret: 'chat_secret',
  chatInboxId: 'chat_inbox_id',
  oaHash: 'oa_hash',
  trackingKey: 'tracking_key',
  loginChannelId: 'login_channel_id',
} as const satisfies { [column in keyof AccountColumns as Camel<column>]: column }

type Camel<name extends string> = name extends `${infer head}_${infer tail}`
  ? `${head}${Capitalize<Camel<tail>>}`
  : name

type Field = keyof typeof COLUMNS
export type Fields = { [field in Field]?: string }

/** The options whose value `-` is read from standard input. The tracking key is public. */
export const SECRET_FLAGS = {
  channelSecret: '--channel-secret',
  channelAccessToken: '--channel-access-token',
  chatSecret: '--chat-secret',
  oaHash: '--oa-hash',
} as const satisfies { [field in Field]?: string }

const SECRETS_HELP = `
A secret given as - is read from standard input, so that it does not appear in the list of processes.
Several secrets are read one line each, in the order of the options:
  printf '%s\\n' "$SECRET" "$TOKEN" | oa-audience accounts update 1 --channel-secret - --channel-access-token -`

const REQUIRED_FIELDS: Field[] = ['name', 'oaHash', 'trackingKey']

export function withFields(command: Command): Command {
  return command
    .option('--channel-id <id>', 'id of the channel on the platform')
    .option('--channel-secret <secret>', "secret that signs the platform's deliveries")
    .option(
      '--channel-access-token <token>',
      'access token of the channel (default: issued from its id and secret)',
    )
    .option(
      '--bot-user-id <id>',
      'user id of the bot, U and 32 hex digits; compared with the destination of deliveries',
    )
    .option('--basic-id <id>', 'basic id of the account, such as @abc1234')
    .option('--chat-secret <secret>', "secret that signs the support chat's callbacks")
    .option('--chat-inbox-id <id>', "the account's inbox in a support chat with several inboxes")
    .option(
      '--oa-hash <hash>',
      "identifies the account in the support chat's callback address (default: random)",
    )
    .option('--tracking-key <key>', 'identifies the account in tracking events (default: random)')
    .option('--login-channel-id <id>', 'LINE Login channel whose ID tokens prove people in tracking events')
    .addHelpText('after', SECRETS_HELP)
}

/** Form of LINE's channel secrets. Simulators may use others, so any other text is only a warning. */
const CHANNEL_SECRET = /^[0-9a-f]{32}$/

/** Returns a warning about an unusual channel secret, or null. With a mistyped secret, every delivery is refused. */
export function secretWarning(secret: string | null | undefined): string | null {
  if (!secret || CHANNEL_SECRET.test(secret)) return null
  return 'the channel secret is not 32 digits 0-9 a-f, as those of LINE are. If it is wrong, every delivery is refused.'
}

/** Returns the columns that options set. An empty text removes an optional value. */
export function columnsOf(fields: Fields): Partial<AccountColumns> {
  const given = (Object.keys(COLUMNS) as Field[]).filter((field) => fields[field] !== undefined)
  for (const field of given) {
    if (fields[field]?.trim() === '' && REQUIRED_FIELDS.includes(field))
      throw new FatalError(`the ${field} must not be empty`)
  }
  if (fields.channelId && !isChannelId(fields.channelId))
    throw new FatalError('--channel-id must be decimal digits without a zero in front.')
  if (!isUrlSegment(fields.oaHash ?? ''))
    throw new FatalError(
      '--oa-hash has characters that a URL would change. Use letters, digits and - _ . ~ only.',
    )
  const warning = secretWarning(fields.channelSecret)
  if (warning !== null) printError(`oa-audience: warning: ${warning}`)
  return Object.fromEntries(given.map((field) => [COLUMNS[field], fields[field] || null]))
}

/** Whether a text is a channel id as LINE writes it. `08` would be a different account from `8`. */
export function isChannelId(text: string): boolean {
  return /^[1-9]\d{0,19}$/.test(text)
}

/** Whether an `oa_hash` can be part of a URL unescaped. */
export function isUrlSegment(text: string): boolean {
  return /^[\w.~-]*$/.test(text)
}
