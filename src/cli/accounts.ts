import type { Command } from 'commander'
import type { Account } from '../accounts/account.ts'
import { verifyAccount } from '../accounts/verify.ts'
import { type ImportProgress, importFollowers } from '../audience/import-followers.ts'
import { readConfig } from '../config.ts'
import { AppError, FatalError } from '../errors.ts'
import { deliveryPaths } from '../intake/line/channel.ts'
import { LineApi } from '../line-api/client.ts'
import type { Database } from '../postgres/database.ts'
import { accountOf, insertOne, onDatabase, parseId, withJson } from './input.ts'
import { type Printable, printJson, printMany, printOne } from './output.ts'
import { Progress } from './progress.ts'

/** What is known of an account: option → column. */
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
} as const

type Fields = { [field in keyof typeof COLUMNS]?: string }

/** An account is not without them. */
const NEVER_EMPTY: Array<keyof Fields> = ['name', 'oaHash', 'trackingKey']

const withFields = (command: Command): Command =>
  command
    .option('--channel-id <id>', "the channel's id on the platform")
    .option('--channel-secret <secret>', 'signs the deliveries of the platform')
    .option('--channel-access-token <token>', 'else one is issued from channel id and secret')
    .option('--bot-user-id <id>', 'U and 32 hex digits; compared with the destination of deliveries')
    .option('--basic-id <id>', 'such as @abc1234')
    .option('--chat-secret <secret>', "signs the support chat's callbacks")
    .option('--chat-inbox-id <id>', "this account's inbox, where the support chat has others, too")
    .option(
      '--oa-hash <hash>',
      "names the account in the support chat's callback; random at first",
      parseHash,
    )
    .option('--tracking-key <key>', 'names the account in tracking events; random at first')

/** It stands in an address. That it must not be empty is said later. */
function parseHash(text: string): string {
  if (!/^[\w.~-]*$/.test(text)) throw new FatalError('--oa-hash must be letters, digits, and - _ . ~ alone')
  return text
}

export function accountsCommand(program: Command): void {
  const group = program.command('accounts').description('official accounts')

  withJson(withFields(group.command('add')))
    .description('add an official account; its oaHash and trackingKey are made here')
    .requiredOption('--organization <id>', 'the organization that owns it', parseId)
    .requiredOption('--name <name>', 'what people call it')
    .action(async ({ organization, ...options }: Fields & { organization: bigint; json?: boolean }) => {
      const { columns, values } = given(options)
      const added = await onDatabase((database) =>
        insertOne<{ id: bigint; oa_hash: string; tracking_key: string }>(
          database,
          'official_account',
          `(organization_id, ${columns.join(', ')})
           values ($1, ${columns.map((_, no) => `$${no + 2}`).join(', ')})
           returning id, oa_hash, tracking_key`,
          [organization, ...values],
        ),
      )
      if (!added) return
      printOne(
        { id: added.id, oaHash: added.oa_hash, trackingKey: added.tracking_key },
        options.json === true,
      )
    })

  withJson(withFields(group.command('update')))
    .description('change what is given; the next delivery is judged by it')
    .argument('<id>', 'the account', parseId)
    .option('--name <name>', 'what people call it')
    .action(async (id: bigint, options: Fields & { json?: boolean }) => {
      const { columns, values } = given(options)
      if (columns.length === 0) throw new FatalError('nothing is given that could be changed')
      const [updated] = await onDatabase((database) =>
        database.query<{ id: bigint }>(
          `update official_account set ${columns.map((column, no) => `${column} = $${no + 2}`).join(', ')}
            where id = $1 returning id`,
          [id, ...values],
        ),
      )
      if (!updated) throw new FatalError(`there is no account ${id}`)
      printOne({ id: updated.id, changed: columns.join(', ') }, options.json === true)
    })

  withJson(group.command('list'))
    .description('list all official accounts, without their secrets')
    .action(async ({ json }: { json?: boolean }) => {
      const rows = await onDatabase((database) =>
        database.query<Printable>(
          `select id, organization_id as "organizationId", name, channel_id as "channelId", basic_id as "basicId",
                  (verification->>'verified')::boolean as verified
             from official_account order by id`,
        ),
      )
      printMany(rows, json === true)
    })

  withJson(group.command('show'))
    .description('show what names an account, to the platforms and to web pages; not its secrets')
    .argument('<id>', 'the account', parseId)
    .action(async (id: bigint, { json }: { json?: boolean }) => {
      const [account] = await onDatabase((database) =>
        database.query<Printable>(
          `select id, organization_id as "organizationId", name, channel_id as "channelId", bot_user_id as "botUserId",
                  basic_id as "basicId", chat_inbox_id as "chatInboxId", oa_hash as "oaHash", tracking_key as "trackingKey",
                  channel_secret is not null as "hasChannelSecret",
                  channel_access_token is not null as "hasChannelAccessToken", chat_secret is not null as "hasChatSecret"
             from official_account where id = $1`,
          [id],
        ),
      )
      if (!account) throw new FatalError(`there is no account ${id}`)
      printOne(account, json === true)
    })

  withJson(group.command('verify'))
    .description('ask the platform whether an account is set up as it should be; ends with 1 if it is not')
    .argument('<id>', 'the account', parseId)
    .option('--test-webhook', 'have the platform send a test delivery, too (60 an hour)')
    .action(async (id: bigint, options: { testWebhook?: boolean; json?: boolean }) => {
      const verification = await onDatabase(async (database) =>
        verify(database, await accountOf(database, id), options.testWebhook === true),
      )
      if (options.json) {
        printJson(verification)
      } else {
        const { account, accountType, webhook, checks } = verification
        printMany(
          checks.map(({ name, ok, message }) => ({ check: name, ok: ok ? 'yes' : 'NO', message })),
          false,
        )
        console.log()
        printOne(
          {
            verified: verification.verified,
            account: account && `${account.displayName} (${account.basicId}, ${account.userId})`,
            type: accountType,
            webhook: webhook?.endpoint ?? null,
          },
          false,
        )
      }
      if (!verification.verified) process.exitCode = 1
    })

  withJson(group.command('import-followers'))
    .description(
      "add everybody on the platform's list of followers; goes on where an interrupted import stopped",
    )
    .requiredOption('--account <id>', 'the account', parseId)
    .action(async ({ account: id, json }: { account: bigint; json?: boolean }) => {
      const total = await onDatabase(async (database) =>
        importAll(database, await accountOf(database, id), new Progress('followers', null)),
      )
      printOne({ ...total }, json === true)
    })
}

async function verify(database: Database, account: Account, testWebhook: boolean) {
  const { lineApiUrl, publicUrl } = readConfig()
  const lineApi = new LineApi(lineApiUrl)
  const verifier = { database, lineApi, publicUrl, webhookPaths: deliveryPaths, now: Date.now }
  try {
    return await verifyAccount(verifier, account, { testWebhook })
  } catch (error) {
    if (!(error instanceof AppError) || error.code !== 'platform_unavailable') throw error
    throw new FatalError(`${error.message} (${error.retryAfterSeconds} s)`)
  }
}

async function importAll(database: Database, account: Account, progress: Progress): Promise<ImportProgress> {
  let last: ImportProgress = { seen: 0, added: 0, skipped: 0 }
  const remark = () => ` (${last.added.toLocaleString('en')} new)`
  for await (const state of importFollowers(database, new LineApi(readConfig().lineApiUrl), account)) {
    last = state
    progress.show(last.seen, remark())
  }
  progress.end(last.seen, remark())
  return { seen: last.seen, added: last.added, skipped: last.skipped }
}

/** The columns that options name; an empty text takes a value away. */
function given(options: Fields): { columns: string[]; values: Array<string | null> } {
  const fields = (Object.keys(COLUMNS) as Array<keyof Fields>).filter((field) => options[field] !== undefined)
  for (const field of fields) {
    if (options[field]?.trim() === '' && NEVER_EMPTY.includes(field))
      throw new FatalError(`the ${field} must not be empty`)
  }
  return {
    columns: fields.map((field) => COLUMNS[field]),
    values: fields.map((field) => options[field] || null),
  }
}
