/** The accounts of a soak: on the simulated platform and in the service, with clients and endpoints. */
import { randomBytes } from 'node:crypto'
import { addAccount, addClient, addKey, addOrganization } from '../../dist/src/accounts/provisioning.js'
import { Book } from '../../dist/tools/load/book.js'
import { randomAccount } from '../../dist/tools/simulator/state.js'

/** The first two accounts share an organization. The second has signed callbacks and a filter, the third no endpoint. */
const ORGANIZATIONS = ['shop', 'shop', 'hotel']
const FILTERED_EVENTS = ['message', 'follow']
/** Conditions of the two tools of the first account. One of them holds for each member, whose tags change meanwhile. */
const TOOLS = ['{"tagsAny":["g0","g1"]}', '{"tagsNone":["g0","g1"]}']

/** @returns {Promise<Book[]>} */
export async function addAccounts(database, platform, receiverUrl) {
  const organizations = new Map()
  const books = []
  for (const [number, name] of ORGANIZATIONS.entries()) {
    if (!organizations.has(name)) organizations.set(name, await addOrganization(database, name))
    books.push(await addOne(database, platform, organizations.get(name), number, receiverUrl))
  }
  return books
}

async function addOne(database, platform, organizationId, number, receiverUrl) {
  const onPlatform = randomAccount(`Account ${number}`)
  const { channelId, channelSecret, channelAccessToken, botUserId, basicId } = onPlatform
  const { people, login } = platform.addAccount(onPlatform)
  const { loginChannelId } = onPlatform
  const idTokenOf = (userId) => login.idToken({ userId, loginChannelId })
  const chatSecret = number === 1 ? randomBytes(16).toString('hex') : null
  const added = await addAccount(database, organizationId, {
    name: onPlatform.displayName,
    channel_id: channelId,
    channel_secret: channelSecret,
    bot_user_id: botUserId,
    channel_access_token: channelAccessToken,
    basic_id: basicId,
    login_channel_ids: [loginChannelId],
    chat_secret: chatSecret,
  })
  const client = await addClient(database, `client of ${number}`)
  const { key } = await addKey(database, client.id, added.id)
  const headers = { 'x-client-id': client.clientId, 'x-client-secret': client.clientSecret, 'x-api-key': key }
  const endpoints = number === 2 ? {} : await addEndpoints(database, added.id, number, receiverUrl)
  return new Book(
    { ...added, botUserId, channelSecret, chatSecret, people, idTokenOf, headers, ...endpoints },
    number,
  )
}

async function addEndpoints(database, accountId, number, receiverUrl) {
  const lineEvents = number === 1 ? FILTERED_EVENTS : []
  await database.query(
    `insert into endpoint (channel_oa_id, url, format, replies, events, allow_private_network, condition)
     select $1, $2, 'line', $3, $4, true, condition from unnest($5::jsonb[]) condition`,
    [
      ...[accountId, `${receiverUrl}/line/${number}`, number === 0, number === 1 ? lineEvents : null],
      number === 0 ? TOOLS : [null],
    ],
  )
  const [{ secret }] = await database.query(
    `insert into endpoint (channel_oa_id, url, format, allow_private_network)
     values ($1, $2, 'members', true) returning secret`,
    [accountId, `${receiverUrl}/members/${number}`],
  )
  return { lineEvents, membersSecret: secret }
}
