/** `oa-audience accounts` */
import type { Command } from 'commander'
import { type AccountColumns, addAccount, updateAccount } from '../accounts/provisioning.ts'
import { FatalError } from '../errors.ts'
import { findAccountDetails, listAccounts } from '../operator/accounts.ts'
import { importFollowersCommand } from './import-followers.ts'
import { onDatabase, parseId, unknownAccount, withJson } from './input.ts'
import { printMany, printOne } from './output.ts'
import { readSecrets } from './secret-input.ts'
import { verifyCommand } from './verify.ts'

/** Option → column. */
const COLUMNS = {
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
} as const satisfies Record<string, keyof AccountColumns>

type Field = keyof typeof COLUMNS
type Fields = { [field in Field]?: string }

/** The options whose value `-` is read from standard input. The tracking key is public. */
const SECRET_FLAGS = {
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

export function accountsCommand(program: Command): void {
  const group = program.command('accounts').description('manage official accounts')
  addCommand(group)
  updateCommand(group)
  listCommand(group)
  showCommand(group)
  verifyCommand(group)
  importFollowersCommand(group)
}

function withFields(command: Command): Command {
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

function addCommand(group: Command): void {
  withJson(withFields(group.command('add')))
    .description('add an official account and print its oaHash and trackingKey')
    .requiredOption('--organization <id>', 'id of the organization that owns it', parseId)
    .requiredOption('--name <name>', 'display name')
    .action(
      async ({
        organization,
        json,
        ...fields
      }: Fields & { organization: bigint; name: string; json?: boolean }) => {
        const columns = { ...columnsOf(await readSecrets(fields, SECRET_FLAGS)), name: fields.name }
        const { id, oaHash, trackingKey } = await onDatabase((database) =>
          addAccount(database, organization, columns),
        )
        printOne({ id, oaHash, trackingKey }, json === true)
      },
    )
}

function updateCommand(group: Command): void {
  withJson(withFields(group.command('update')))
    .description('change the given fields; the next delivery is checked against them')
    .argument('<id>', 'id of the account', parseId)
    .option('--name <name>', 'display name')
    .action(async (id: bigint, { json, ...fields }: Fields & { json?: boolean }) => {
      const changes = columnsOf(await readSecrets(fields, SECRET_FLAGS))
      const changed = Object.keys(changes)
      if (changed.length === 0)
        throw new FatalError('no field to change is given. See --help for the options.')
      const isUpdated = await onDatabase((database) => updateAccount(database, id, changes))
      if (!isUpdated) throw unknownAccount(id)
      printOne({ id, changed: changed.join(', ') }, json === true)
    })
}

function listCommand(group: Command): void {
  withJson(group.command('list'))
    .description('list all official accounts without their secrets')
    .action(async ({ json }: { json?: boolean }) => {
      printMany(await onDatabase(listAccounts), json === true)
    })
}

function showCommand(group: Command): void {
  withJson(group.command('show'))
    .description('show an account with its oaHash and trackingKey, but without its secrets')
    .argument('<id>', 'id of the account', parseId)
    .action(async (id: bigint, { json }: { json?: boolean }) => {
      const account = await onDatabase((database) => findAccountDetails(database, id))
      if (account === null) throw unknownAccount(id)
      printOne(account, json === true)
    })
}

/** The columns that options set. An empty text removes an optional value. */
function columnsOf(fields: Fields): Partial<AccountColumns> {
  const given = (Object.keys(COLUMNS) as Field[]).filter((field) => fields[field] !== undefined)
  for (const field of given) {
    if (fields[field]?.trim() === '' && REQUIRED_FIELDS.includes(field))
      throw new FatalError(`the ${field} must not be empty`)
  }
  // The hash is part of a URL.
  if (!/^[\w.~-]*$/.test(fields.oaHash ?? ''))
    throw new FatalError(
      '--oa-hash has characters that a URL would change. Use letters, digits and - _ . ~ only.',
    )
  return Object.fromEntries(given.map((field) => [COLUMNS[field], fields[field] || null]))
}
