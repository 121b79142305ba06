/** Fresh, migrated databases and the tenants in them. All of them are closed with their test or file. */
import { randomBytes } from 'node:crypto'
import { inject } from 'vitest'
import { addAccount, addClient, addOrganization } from '../../src/accounts/provisioning.ts'
import { type Connection, connectionUrl } from '../../src/postgres/embedded/server.ts'
import { randomUserId } from '../../tools/simulator/events.ts'
import { TextDatabase } from '../../tools/text-database.ts'
import { atEnd } from './at-end.ts'
import { keepSessions } from './sessions.ts'

export const urlOf = connectionUrl

const TEMPLATE = 'oa_audience_template'

/** Opens a database that is migrated, or that nobody needs to migrate. */
export function openDatabase(
  target: Opening[0],
  replicas?: Opening[2],
  secretKeys?: Opening[3],
): TextDatabase {
  const database = new TextDatabase(target, () => undefined, replicas, secretKeys)
  database.markReady()
  // A test may have closed it already.
  atEnd(() => database.close().catch(() => undefined))
  atEnd(keepSessions(database))
  return database
}

type Opening = ConstructorParameters<typeof TextDatabase>

/** `env` is the environment of a command that uses it. */
export async function createTestDatabase(template = TEMPLATE) {
  const server = inject('postgres')
  const name = `test_${randomBytes(6).toString('hex')}`
  const admin = new TextDatabase(server, () => undefined)
  await admin.session((session) => session.query(`create database ${name} template ${template}`))
  await admin.close()
  const connection: Connection = { ...server, database: name }
  return { database: openDatabase(connection), connection, env: { DATABASE_URL: urlOf(connection) } }
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

/** Adds an account with one client and one key, in an organization of its own unless one is given. */
export async function addTenant(
  database: TextDatabase,
  columns: {
    organizationId?: bigint
    channelAccessToken?: string
    chatSecret?: string
    botUserId?: string
    channelId?: string
    channelSecret?: string
    basicId?: string
    loginChannelIds?: string[]
  } = {},
): Promise<Tenant> {
  const { channelSecret = randomBytes(16).toString('hex'), botUserId = randomUserId() } = columns
  const organizationId = columns.organizationId ?? (await addOrganization(database, 'test'))
  const account = await addAccount(database, organizationId, {
    name: 'test',
    channel_id: columns.channelId ?? null,
    channel_secret: channelSecret,
    channel_access_token: columns.channelAccessToken ?? null,
    bot_user_id: botUserId,
    basic_id: columns.basicId ?? null,
    chat_secret: columns.chatSecret ?? null,
    login_channel_ids: columns.loginChannelIds ?? null,
  })
  return {
    organizationId,
    accountId: account.id,
    channelSecret,
    chatSecret: columns.chatSecret ?? null,
    oaHash: account.oaHash,
    trackingKey: account.trackingKey,
    botUserId,
    ...(await addCredentials(database, account.id, organizationId)),
  }
}

/** Stores a recent use of all credentials, so that requests cause no statement that records it. */
export async function markUsed(database: TextDatabase): Promise<void> {
  for (const table of ['api_client', 'api_key'])
    await database.query(`update ${table} set last_used_at = now()`)
}

/** The key is a plain insert, as by a program that does not check whether the account exists and who owns it. */
export async function addCredentials(
  database: TextDatabase,
  accountId: bigint,
  organizationId: bigint,
): Promise<Pick<Tenant, 'clientRowId' | 'keyId' | 'headers'>> {
  const client = await addClient(database, null)
  const key = `key-${randomBytes(12).toString('hex')}`
  const [added] = await database.query<{ id: bigint }>(
    `insert into api_key (api_client_id, key, status, channel_oa_id, organization_id)
     values ($1, $2, 'active', $3, $4) returning id`,
    [client.id, key, accountId, organizationId],
  )
  if (added === undefined) throw new Error('the key was not added')
  const { clientId, clientSecret } = client
  const headers = { 'x-client-id': clientId, 'x-client-secret': clientSecret, 'x-api-key': key }
  return { clientRowId: client.id, keyId: added.id, headers }
}
