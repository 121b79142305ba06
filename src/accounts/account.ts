import { Secret, secretOrNull } from '../config/secret.ts'
import type { AccountId, OrganizationId } from '../ids.ts'
import { type Queryable, type Row, type Statement, statement } from '../postgres/statement.ts'

export interface Account {
  id: AccountId
  organizationId: OrganizationId
  channelId: string | null
  channelSecret: Secret | null
  channelAccessToken: Secret | null
  botUserId: string | null
  basicId: string | null
  chatSecret: Secret | null
  /** null: every inbox of the support chat */
  chatInboxId: string | null
  oaHash: Secret
  trackingKey: string
  /** their ID tokens prove people in tracking events */
  loginChannelIds: string[]
  /** changes with every value that admits deliveries or determines their account */
  credentialsVersion: bigint
  /** of a delivery of the last hour for another bot */
  foreignDestination: string | null
  /** the next delivery with events is stored, and refused once, so that LINE sends it again */
  isProofArmed: boolean
  /** endpoints whose condition the flush evaluates for each event */
  conditions: number
}

type SecretName = 'channelSecret' | 'channelAccessToken' | 'chatSecret'

type AccountRow = Omit<Account, SecretName | 'oaHash'> &
  Record<SecretName, string | null> & { oaHash: string }

/** SQL of account a: the newest delivery of a week for another bot */
export const FOREIGN_DESTINATION_AT = `case when a.foreign_destination <> a.bot_user_id
                 and a.foreign_destination_at > now() - interval '7 days' then a.foreign_destination_at end`

/** SQL of account a: the delivery that its last proof refused, if LINE did not send it again within ten minutes */
export const REDELIVERY_OFF_AT = `case when a.redelivery_refused_at > a.redelivery_armed_at
                 and a.redelivery_refused_at < now() - interval '10 minutes'
                 and coalesce(a.redelivery_seen_at, '-infinity') < a.redelivery_armed_at then a.redelivery_refused_at end`

/** SQL: a proof waits for its delivery */
export const IS_PROOF_ARMED = `coalesce(redelivery_armed_at > now() - interval '10 minutes', false)
           and (redelivery_refused_at > redelivery_armed_at) is not true`

/** @param id SQL of an account's id */
const conditionsOf = (id: string) =>
  `(select count(*)::int from endpoint where channel_oa_id = ${id} and condition is not null)`

/** Other programs write chat_inbox_id and login_channel_ids. A blank filter would drop every webhook. */
const SELECT_ACCOUNT = `
    select id, organization_id as "organizationId", channel_id as "channelId", channel_secret as "channelSecret",
           channel_access_token as "channelAccessToken", bot_user_id as "botUserId", basic_id as "basicId",
           chat_secret as "chatSecret", nullif(btrim(chat_inbox_id), '') as "chatInboxId", oa_hash as "oaHash",
           tracking_key as "trackingKey", array(select btrim(id) from unnest(login_channel_ids) as id where btrim(id) <> '') as "loginChannelIds",
           credentials_version as "credentialsVersion",
           case when foreign_destination_at > now() - interval '1 hour' then foreign_destination end
             as "foreignDestination",
           ${IS_PROOF_ARMED} as "isProofArmed", ${conditionsOf('official_account.id')} as conditions
      from official_account`

const selectById = statement('account-by-id')`
    ${SELECT_ACCOUNT}
     where id = $1`

const selectByOaHash = statement('account-by-oa-hash')`
    ${SELECT_ACCOUNT}
     where oa_hash = $1`

const selectByTrackingKey = statement('account-by-tracking-key')`
    ${SELECT_ACCOUNT}
     where tracking_key = $1`

/**
 * Writes at most once per hour for the same destination, and once per minute otherwise. The deliveries of several bots behind one module
 * channel alternate, and without a limit each would cost a commit.
 */
const updateForeignDestination = statement('update-foreign-destination')`
    update official_account
       set foreign_destination = $2, foreign_destination_at = now()
     where id = $1
       and bot_user_id <> $2
       and (foreign_destination_at > now() - case when foreign_destination = $2 then interval '1 hour'
                                                  else interval '1 minute' end) is not true`

/** Once an hour, because a delivery is refused for it. The new version of the credentials lets every instance know. */
const armProof = statement('arm-redelivery-proof')`
    update official_account set redelivery_armed_at = now()
     where id = $1 and (redelivery_armed_at > now() - interval '1 hour') is not true`

const takeProof = statement('take-redelivery-proof')`
    update official_account set redelivery_refused_at = now() where id = $1 and ${IS_PROOF_ARMED}
    returning id`

/** At most once an hour, unless a proof was begun since. */
const noteRedelivery = statement('note-redelivery')`
    update official_account set redelivery_seen_at = now()
     where id = $1
       and (redelivery_seen_at > greatest(now() - interval '1 hour', redelivery_armed_at)) is not true`

export async function armRedeliveryProof(database: Queryable, id: AccountId): Promise<void> {
  await database.query(armProof, [id])
}

/** Returns whether the delivery that is being answered is the one to refuse. */
export async function takeRedeliveryProof(database: Queryable, id: AccountId): Promise<boolean> {
  return (await database.query(takeProof, [id])).length > 0
}

export async function flagRedelivery(database: Queryable, id: AccountId): Promise<void> {
  await database.query(noteRedelivery, [id])
}

export function findAccount(database: Queryable, id: AccountId): Promise<Account | null> {
  return findOne(database, selectById, [id])
}

/** Returns null for a blank hash, which anybody could guess. */
export async function findAccountByOaHash(database: Queryable, oaHash: string): Promise<Account | null> {
  if (oaHash.trim() === '') return null
  return findOne(database, selectByOaHash, [oaHash])
}

/** Returns null for a blank key, so that a program without a key does not write into an account. */
export async function findAccountByTrackingKey(
  database: Queryable,
  trackingKey: string,
): Promise<Account | null> {
  if (trackingKey.trim() === '') return null
  return findOne(database, selectByTrackingKey, [trackingKey])
}

/** The webhook or `bot_user_id` is misconfigured. */
export async function flagForeignDestination(
  database: Queryable,
  id: AccountId,
  destination: string,
): Promise<void> {
  await database.query(updateForeignDestination, [id, destination])
}

async function findOne(
  database: Queryable,
  statement: Statement,
  values: unknown[],
): Promise<Account | null> {
  const [row] = await database.query<AccountRow & Row>(statement, values)
  if (row === undefined) return null
  const textOf = (column: 'channel_secret' | 'channel_access_token' | 'chat_secret', stored: string | null) =>
    database.secretKeys.decrypt(`official_account.${column}`, row.id, stored)
  const chatSecret = textOf('chat_secret', row.chatSecret)
  return {
    ...row,
    channelSecret: secretOrNull(textOf('channel_secret', row.channelSecret)),
    channelAccessToken: secretOrNull(textOf('channel_access_token', row.channelAccessToken)),
    // Null accepts unsigned callbacks. A blank secret refuses all callbacks, because signing was intended.
    chatSecret: chatSecret ? new Secret(chatSecret) : null,
    oaHash: new Secret(row.oaHash),
  }
}

// The account that the `destination` of a delivery names: the only account of the same organization with this bot user id and the same
// channel secret as the account in the path. All accounts of a module channel share its webhook and its secret. A secret that only the
// account in the path has proves nothing about another one (decision 29).

/** As in versions_of_bot. If more accounts have the bot, the account in the path receives the delivery. */
const ACCOUNTS_OF_BOT_MAX = 20

/**
 * Encrypted secrets are compared in this process. `offset 0`: the versions are computed once per delivery, not once per account.
 *
 * $1 accounts in the paths bigint[]; $2 destinations text[]; $3 maximum number of accounts int
 */
const selectAccountsOfBots = statement('accounts-of-destinations')`
    select d.position::int as position, bot_versions, p.id as path_id,
           p.channel_secret as path_secret, named.id, named.channel_secret as secret, ${conditionsOf('coalesce(named.id, p.id)')} as conditions
      from unnest($1::bigint[], $2::text[]) with ordinality as d (path_account_id, destination, position)
      join lateral (select * from official_account where id = d.path_account_id offset 0) p on true
      join lateral (select versions_of_bot(p.id, d.destination) as bot_versions offset 0) v on true
      left join lateral (select id, channel_secret from official_account
                          where organization_id = p.organization_id and bot_user_id = d.destination limit $3) named on true`

interface NamedRow extends Row {
  position: number
  bot_versions: bigint
  path_id: bigint
  path_secret: string | null
  id: bigint | null
  secret: string | null
  conditions: number
}

interface Named {
  /** the account in the path if no account or several match */
  accountId: AccountId
  /** changes with the accounts that have the bot; a flush compares it */
  botVersions: bigint
  conditions: number
}

/** One element per delivery. Undefined: the account in the path does not exist. */
export async function findNamedAccounts(
  database: Queryable,
  deliveries: Array<{ pathAccountId: AccountId; destination: string }>,
): Promise<Array<Named | undefined>> {
  const rows = await database.query<NamedRow>(selectAccountsOfBots, [
    deliveries.map(({ pathAccountId }) => pathAccountId),
    deliveries.map(({ destination }) => destination),
    ACCOUNTS_OF_BOT_MAX + 1,
  ])
  const named = deliveries.map((): NamedRow[] => [])
  for (const row of rows) named[row.position - 1]?.push(row)
  return named.map((candidates) => {
    const [first] = candidates
    if (first === undefined) return undefined
    const { bot_versions: botVersions, conditions } = first
    if (candidates.length > ACCOUNTS_OF_BOT_MAX) return { accountId: first.path_id, botVersions, conditions }
    const secretOf = (id: AccountId, stored: string | null) =>
      database.secretKeys.decryptOrNull('official_account.channel_secret', id, stored)
    const pathSecret = secretOf(first.path_id, first.path_secret)
    const matching = candidates.filter(
      ({ id, secret }) => id !== null && pathSecret !== null && secretOf(id, secret) === pathSecret,
    )
    const [only] = matching.length === 1 ? matching : []
    return { accountId: only?.id ?? first.path_id, botVersions, conditions: only?.conditions ?? conditions }
  })
}
