import type { Command } from 'commander'
import type { Account } from '../accounts/account.ts'
import { verifyAccount } from '../accounts/verify.ts'
import { type ImportProgress, importFollowers } from '../audience/import-followers.ts'
import { readConfig } from '../config.ts'
import { AppError, FatalError } from '../errors.ts'
import { deliveryPaths } from '../intake/line/channel.ts'
import { LineApi } from '../line-api/client.ts'
import type { Database } from '../postgres/database.ts'
import { accountOf, onDatabase, parseId, withJson } from './input.ts'
import { printJson, printMany, printOne } from './output.ts'
import { Progress } from './progress.ts'

interface AddOptions {
  organization: bigint
  name: string
  channelId?: string
  channelSecret?: string
  channelAccessToken?: string
  botUserId?: string
  basicId?: string
  chatSecret?: string
  oaHash?: string
  trackingKey?: string
  json?: boolean
}

export function accountsCommand(program: Command): void {
  const group = program.command('accounts').description('official accounts')

  withJson(group.command('add'))
    .description('add an official account; its oaHash and trackingKey are made here')
    .requiredOption('--organization <id>', 'the organization that owns it', parseId)
    .requiredOption('--name <name>')
    .option('--channel-id <id>', "the channel's id on the platform")
    .option('--channel-secret <secret>', 'signs the deliveries of the platform')
    .option('--channel-access-token <token>', 'else one is issued from channel id and secret')
    .option('--bot-user-id <id>', 'U and 32 hex digits; compared with the destination of deliveries')
    .option('--basic-id <id>', 'such as @abc1234')
    .option('--chat-secret <secret>', "signs the support chat's callbacks")
    .option('--oa-hash <hash>', "names the account in the support chat's callback; random unless given")
    .option('--tracking-key <key>', 'names the account in tracking events; random unless given')
    .action(async (options: AddOptions) => {
      const [added] = await onDatabase((database) =>
        database.query<{ id: bigint; oa_hash: string; tracking_key: string }>(
          `insert into official_account (organization_id, name, channel_id, channel_secret, channel_access_token,
                  bot_user_id, basic_id, chat_secret, oa_hash, tracking_key)
           values ($1, $2, $3, $4, $5, $6, $7, $8, coalesce($9, random_token()), coalesce($10, random_token()))
           returning id, oa_hash, tracking_key`,
          [
            options.organization,
            options.name,
            options.channelId ?? null,
            options.channelSecret ?? null,
            options.channelAccessToken ?? null,
            options.botUserId ?? null,
            options.basicId ?? null,
            options.chatSecret ?? null,
            options.oaHash ?? null,
            options.trackingKey ?? null,
          ],
        ),
      )
      if (!added) return
      printOne(
        { id: added.id, oaHash: added.oa_hash, trackingKey: added.tracking_key },
        options.json === true,
      )
    })

  withJson(group.command('list'))
    .description('list all official accounts, without their secrets')
    .action(async ({ json }: { json?: boolean }) => {
      const rows = await onDatabase((database) =>
        database.query<{ id: bigint; organizationId: bigint; name: string; basicId: string | null }>(
          `select id, organization_id as "organizationId", name, channel_id as "channelId", basic_id as "basicId",
                  coalesce(verification->>'verified', 'never verified') as verified
             from official_account order by id`,
        ),
      )
      printMany(rows, json === true)
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

async function importAll(
  database: Database,
  account: Account,
  progress: Progress,
): Promise<Pick<ImportProgress, 'seen' | 'added' | 'passedOver'>> {
  let last: ImportProgress = { seen: 0, added: 0, passedOver: 0 }
  const remark = () => ` (${last.added.toLocaleString('en')} new)`
  for await (const state of importFollowers(database, new LineApi(readConfig().lineApiUrl), account)) {
    last = state
    progress.show(last.seen, remark())
  }
  progress.end(last.seen, remark())
  return { seen: last.seen, added: last.added, passedOver: last.passedOver }
}
