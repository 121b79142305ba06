/** The statements over the columns that hold secrets, one set for each table. `values` are the columns in the order of SECRET_COLUMNS. */
import type { SecretTable } from '../config/secret-keys.ts'
import { type Row, type Statement, statement } from '../postgres/statement.ts'

/** A row of one of the tables. */
export interface SecretRow extends Row {
  id: bigint
  /** null: a notification channel, which belongs to no account */
  accountId: bigint | null
  values: Array<string | null>
}

interface TableStatements {
  /** Rows with a secret. $1 bigint: last id of the previous page; $2 int: rows */
  selectPage: Statement
  /** Rows with a value that is encrypted, or looks encrypted. $1 bigint: last id of the previous page; $2 int: rows */
  selectEncrypted: Statement
  /** Ids of rows with plain text. $1 bigint: last id of the previous batch; $2 int: rows */
  selectPlain: Statement
  /** Rows that no other transaction has locked, with their current values. $1 bigint[]: ids */
  lock: Statement
  /** $1 bigint[]: ids; then a text[] for each column */
  update: Statement
}

export const TABLES: Record<SecretTable, TableStatements> = {
  official_account: {
    selectPage: statement('select-account-secrets')`
    select id, id as "accountId", json_build_array(channel_secret, channel_access_token, chat_secret) as values
      from official_account
     where id > $1 and coalesce(channel_secret, channel_access_token, chat_secret) is not null
     order by id limit $2`,
    selectEncrypted: statement('select-encrypted-account-secrets')`
    select id, id as "accountId", json_build_array(channel_secret, channel_access_token, chat_secret) as values
      from official_account
     where id > $1
       and (channel_secret like 'enc:v1:%' or channel_access_token like 'enc:v1:%' or chat_secret like 'enc:v1:%')
     order by id limit $2`,
    selectPlain: statement('select-plain-account-secrets')`
    select id from official_account
     where id > $1
       and (is_plain_secret(channel_secret) or is_plain_secret(channel_access_token) or is_plain_secret(chat_secret))
     order by id limit $2`,
    lock: statement('lock-account-secrets')`
    select id, id as "accountId", json_build_array(channel_secret, channel_access_token, chat_secret) as values
      from official_account where id = any ($1) for no key update skip locked`,
    update: statement('update-account-secrets')`
    update official_account a
       set channel_secret = v.channel_secret, channel_access_token = v.channel_access_token, chat_secret = v.chat_secret
      from unnest($1::bigint[], $2::text[], $3::text[], $4::text[]) as v (id, channel_secret, channel_access_token, chat_secret)
     where a.id = v.id`,
  },
  endpoint: {
    selectPage: statement('select-endpoint-secrets')`
    select id, channel_oa_id as "accountId", json_build_array(secret, previous_secret) as values
      from endpoint
     where id > $1 and coalesce(secret, previous_secret) is not null
     order by id limit $2`,
    selectEncrypted: statement('select-encrypted-endpoint-secrets')`
    select id, channel_oa_id as "accountId", json_build_array(secret, previous_secret) as values
      from endpoint
     where id > $1 and (secret like 'enc:v1:%' or previous_secret like 'enc:v1:%')
     order by id limit $2`,
    selectPlain: statement('select-plain-endpoint-secrets')`
    select id from endpoint
     where id > $1 and (is_plain_secret(secret) or is_plain_secret(previous_secret))
     order by id limit $2`,
    lock: statement('lock-endpoint-secrets-to-encrypt')`
    select id, channel_oa_id as "accountId", json_build_array(secret, previous_secret) as values
      from endpoint where id = any ($1) for no key update skip locked`,
    update: statement('update-endpoint-secrets')`
    update endpoint e
       set secret = v.secret, previous_secret = v.previous_secret
      from unnest($1::bigint[], $2::text[], $3::text[]) as v (id, secret, previous_secret)
     where e.id = v.id`,
  },
  notification_channel: {
    selectPage: statement('select-channel-secrets')`
    select id, null::bigint as "accountId", json_build_array(target, secret) as values
      from notification_channel
     where id > $1 and coalesce(target, secret) is not null
     order by id limit $2`,
    selectEncrypted: statement('select-encrypted-channel-secrets')`
    select id, null::bigint as "accountId", json_build_array(target, secret) as values
      from notification_channel
     where id > $1 and (target like 'enc:v1:%' or secret like 'enc:v1:%')
     order by id limit $2`,
    selectPlain: statement('select-plain-channel-secrets')`
    select id from notification_channel
     where id > $1 and (is_plain_secret(target) or is_plain_secret(secret))
     order by id limit $2`,
    lock: statement('lock-channel-secrets')`
    select id, null::bigint as "accountId", json_build_array(target, secret) as values
      from notification_channel where id = any ($1) for no key update skip locked`,
    update: statement('update-channel-secrets')`
    update notification_channel n
       set target = v.target, secret = v.secret
      from unnest($1::bigint[], $2::text[], $3::text[]) as v (id, target, secret)
     where n.id = v.id`,
  },
}

export const SECRET_TABLES = Object.keys(TABLES) as SecretTable[]
