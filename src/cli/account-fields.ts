/** The options of an official account, which `accounts add`, `accounts update`, `accounts apply` and `setup` share. */
import type { Command } from 'commander'
import type { AccountColumns } from '../accounts/provisioning.ts'
import { FatalError } from '../errors.ts'
import {
  type Field,
  faultOf,
  isChannelId,
  secretWarning,
  columnsOf as toColumns,
} from '../operator/accounts/account-fields.ts'
import { printError } from './io.ts'

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

/** Returns the columns that options set. An empty text removes an optional value. */
export function columnsOf(fields: Fields): Partial<AccountColumns> {
  for (const field of REQUIRED_FIELDS) {
    if (fields[field]?.trim() === '') throw new FatalError(`the ${field} must not be empty`)
  }
  if (fields.channelId && !isChannelId(fields.channelId))
    throw new FatalError('--channel-id must be decimal digits without a zero in front.')
  const flags = { ...SECRET_FLAGS, botUserId: '--bot-user-id' }
  for (const [field, flag] of Object.entries(flags) as Array<[Field, string]>) {
    const fault = faultOf(field, fields[field] ?? '')
    if (fault !== null) throw new FatalError(`${flag} ${fault}`)
  }
  const warning = secretWarning(fields.channelSecret)
  if (warning !== null) printError(`oa-audience: warning: ${warning}`)
  return toColumns(fields)
}
