/** A fresh, migrated database for a test file. */
import { randomBytes } from 'node:crypto'
import { inject } from 'vitest'
import type { Connection } from '../../src/postgres/embedded/server.ts'
import { PostgresDatabase } from '../../src/postgres/postgres-database.ts'

const TEMPLATE = 'oa_audience_template'

export async function createTestDatabase(
  template = TEMPLATE,
): Promise<{ database: PostgresDatabase; connection: Connection }> {
  const server = inject('postgres')
  const name = `test_${randomBytes(6).toString('hex')}`
  const admin = new PostgresDatabase(server, () => undefined)
  await admin.session((session) => session.query(`create database ${name} template ${template}`))
  await admin.close()
  const connection = { ...server, database: name }
  const database = new PostgresDatabase(connection, () => undefined)
  database.markReady()
  return { database, connection }
}

/** A postgres:// address of a test database, as DATABASE_URL would name it. */
export function urlOf({ host, port, user, database }: Connection): string {
  return `postgres://${user}@/${database}?host=${encodeURIComponent(host)}&port=${port}`
}

export interface Tenant {
  organizationId: bigint
  accountId: bigint
  channelSecret: string
  chatSecret: string | null
  oaHash: string
  trackingKey: string
  botUserId: string
  clientRowId: bigint
  keyId: bigint
  headers: { 'x-client-id': string; 'x-client-secret': string; 'x-api-key': string }
}

const token = (prefix: string) => `${prefix}-${randomBytes(12).toString('hex')}`

/** An organization with one account, one client and one key, by plain inserts as another program would. */
export async function addTenant(
  database: PostgresDatabase,
  columns: {
    channelAccessToken?: string
    chatSecret?: string
    botUserId?: string
    channelId?: string
    channelSecret?: string
    basicId?: string
  } = {},
): Promise<Tenant> {
  const channelSecret = columns.channelSecret ?? randomBytes(16).toString('hex')
  const botUserId = columns.botUserId ?? `U${randomBytes(16).toString('hex')}`
  const [organization] = await database.query<{ id: bigint }>(
    `insert into organization (name) values ('test') returning id`,
  )
  const [account] = await database.query<{ id: bigint; oa_hash: string; tracking_key: string }>(
    `insert into official_account (organization_id, name, channel_id, channel_secret, channel_access_token, bot_user_id,
            chat_secret, basic_id)
     values ($1, 'test', $2, $3, $4, $5, $6, $7) returning id, oa_hash, tracking_key`,
    [
      organization?.id,
      columns.channelId ?? null,
      channelSecret,
      columns.channelAccessToken ?? null,
      botUserId,
      columns.chatSecret ?? null,
      columns.basicId ?? null,
    ],
  )
  if (!organization || !account) throw new Error('no tenant')
  const credentials = await addCredentials(database, account.id, organization.id)
  return {
    organizationId: organization.id,
    accountId: account.id,
    channelSecret,
    chatSecret: columns.chatSecret ?? null,
    oaHash: account.oa_hash,
    trackingKey: account.tracking_key,
    botUserId,
    ...credentials,
  }
}

export async function addCredentials(
  database: PostgresDatabase,
  accountId: bigint,
  organizationId: bigint,
): Promise<Pick<Tenant, 'clientRowId' | 'keyId' | 'headers'>> {
  const headers = {
    'x-client-id': token('client'),
    'x-client-secret': token('secret'),
    'x-api-key': token('key'),
  }
  const [client] = await database.query<{ id: bigint }>(
    `insert into api_client (client_id, client_secret, status) values ($1, $2, 'active') returning id`,
    [headers['x-client-id'], headers['x-client-secret']],
  )
  const [key] = await database.query<{ id: bigint }>(
    `insert into api_key (api_client_id, key, status, channel_oa_id, organization_id)
     values ($1, $2, 'active', $3, $4) returning id`,
    [client?.id, headers['x-api-key'], accountId, organizationId],
  )
  if (!client || !key) throw new Error('no credentials')
  return { clientRowId: client.id, keyId: key.id, headers }
}
