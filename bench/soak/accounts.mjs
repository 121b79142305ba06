/** The tenants of a soak: accounts on the simulated platform and in the service, with clients and endpoints. */
import { randomBytes } from 'node:crypto'
import { addAccount, addClient, addKey, addOrganization } from '../../dist/src/accounts/provisioning.js'
import { Secret } from '../../dist/src/secret.js'
import { randomAccount } from '../../dist/tools/simulator/state.js'

/** The first two accounts share an organization. */
const ORGANIZATIONS = ['shop', 'shop', 'hotel']
/** What a `line` endpoint of the second account receives. All others receive everything. */
export const FILTERED_EVENTS = ['message', 'follow']

/**
 * @param {import('../../dist/src/postgres/postgres-database.js').PostgresDatabase} database
 * @param {string} receiverUrl
 */
export async function addTenants(database, platform, receiverUrl) {
  const organizations = new Map()
  const tenants = []
  for (const [number, organization] of ORGANIZATIONS.entries()) {
    if (!organizations.has(organization)) {
      organizations.set(organization, await addOrganization(database, organization))
    }
    tenants.push(await addTenant(database, platform, organizations.get(organization), number, receiverUrl))
  }
  return tenants
}

async function addTenant(database, platform, organizationId, number, receiverUrl) {
  const onPlatform = randomAccount(`Account ${number}`)
  const { people } = platform.addAccount(onPlatform)
  // The second account's support chat signs its callbacks.
  const chatSecret = number === 1 ? randomBytes(16).toString('hex') : null
  const { id, oaHash, trackingKey } = await addAccount(database, organizationId, {
    name: onPlatform.displayName,
    channel_id: onPlatform.channelId,
    channel_secret: onPlatform.channelSecret,
    channel_access_token: onPlatform.channelAccessToken,
    bot_user_id: onPlatform.botUserId,
    basic_id: onPlatform.basicId,
    chat_secret: chatSecret,
  })
  const client = await addClient(database, `client of ${number}`)
  const { key } = await addKey(database, client.id, id)
  const endpoints = await addEndpoints(database, id, number, receiverUrl)
  return {
    number,
    id,
    oaHash,
    trackingKey,
    chatSecret: chatSecret === null ? null : new Secret(chatSecret),
    channelSecret: new Secret(onPlatform.channelSecret),
    botUserId: onPlatform.botUserId,
    /** the platform's people, from whom the service reads profiles */
    people,
    headers: { 'x-client-id': client.clientId, 'x-client-secret': client.clientSecret, 'x-api-key': key },
    ...endpoints,
  }
}

/** The third account has none. */
async function addEndpoints(database, accountId, number, receiverUrl) {
  if (number === 2) return { lineEvents: null, membersSecret: null }
  const lineEvents = number === 1 ? FILTERED_EVENTS : []
  await database.query(
    `insert into endpoint (channel_oa_id, url, format, replies, events, allow_private_network)
     values ($1, $2, 'line', $3, $4, true)`,
    [accountId, `${receiverUrl}/line/${number}`, number === 0, number === 1 ? FILTERED_EVENTS : null],
  )
  const [{ secret }] = await database.query(
    `insert into endpoint (channel_oa_id, url, format, allow_private_network)
     values ($1, $2, 'members', true) returning secret`,
    [accountId, `${receiverUrl}/members/${number}`],
  )
  return { lineEvents, membersSecret: new Secret(secret) }
}
