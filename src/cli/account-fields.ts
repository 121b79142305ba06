/** The options of an official account, which `accounts add`, `accounts update`, `accounts apply` and `setup` share. */
import type { Command } from 'commander'
import {
  FIELDS,
  type Field,
  faultsOf,
  secretWarning,
  columnsOf as toColumns,
} from '../accounts/account-fields.ts'
import { type Proof, UNPROVEN } from '../accounts/channels.ts'
import type { AccountColumns } from '../accounts/provisioning.ts'
import { type Config, readConfig } from '../config/config.ts'
import { FatalError } from '../errors.ts'
import { localUrl } from '../http/listen.ts'
import { callbackPath } from '../intake/mbox/mbox-source.ts'
import { LineApi } from '../line-api/client.ts'
import { deliveryPaths } from '../line-api/line-signature.ts'
import { io, printError } from './io.ts'

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
    .option(
      '--login-channel-ids <list>',
      'LINE Login or MINI App channels whose ID tokens prove people in tracking events',
    )
    .option('--unproven', 'store channel id and secret without asking LINE whether they belong together')
    .addHelpText('after', SECRETS_HELP)
}

/** Returns the columns that options set. An empty text removes an optional value. The rules are those of the console and of fleet files. */
export function columnsOf(given: Fields): Partial<AccountColumns> {
  const fields: Fields = Object.fromEntries(
    FIELDS.flatMap((field) => (given[field] === undefined ? [] : [[field, given[field].trim()]])),
  )
  for (const field of REQUIRED_FIELDS) {
    if (fields[field] === '') throw new FatalError(`the ${field} must not be empty`)
  }
  for (const { path, message } of faultsOf(fields)) {
    const flag = path.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`)
    throw new FatalError(`--${flag} ${message}`)
  }
  const warning = secretWarning(fields.channelSecret)
  if (warning !== null) printError(`oa-audience: warning: ${warning}`)
  return toColumns(fields)
}

/** Null with `--unproven`. */
export const proverOf = ({ unproven }: Proving): LineApi | null =>
  unproven ? null : new LineApi(readConfig(io.env).lineApiUrl)

export interface Proving {
  unproven?: boolean
}

/** Printed after the change, so that it is the last line. */
export function warnIfUnproven(proof: Proof): void {
  if (proof === 'unproven') printError(`oa-audience: warning: ${UNPROVEN}`)
}

// URLs of this service that an operator enters on other platforms.

interface Addresses {
  /** for the LINE Developers Console */
  webhookUrl: string
  /** for the support chat */
  callbackUrl: string
}

export type AddressConfig = Pick<Config, 'publicUrl' | 'host' | 'port'>

/** Returns PUBLIC_URL, or else the URL at which the service listens. */
export function baseUrl({ publicUrl, host, port }: AddressConfig): string {
  return publicUrl ?? localUrl(host, port)
}

export function addressesOf(config: AddressConfig, id: bigint, oaHash: string): Addresses {
  const base = baseUrl(config)
  const [webhookPath = ''] = deliveryPaths(String(id))
  return { webhookUrl: base + webhookPath, callbackUrl: base + callbackPath(oaHash) }
}
