import type { Command } from 'commander'
import { onDatabase, parseId, printMany, printOne, withJson } from './output.ts'

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
}
