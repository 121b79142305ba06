/** Official accounts as an agency has them, and requests for the first three. */
import { randomBytes, randomUUID } from 'node:crypto'
import { Secret } from '../dist/src/config/secret.js'
import { signLine } from '../dist/src/line-api/line-signature.js'
import { runMaintenance } from '../dist/src/upkeep/maintenance.js'
import { lineBody, lineEvent, textMessage } from '../dist/tools/simulator/events.js'

/** Accounts that receive requests. Their ids are the first ones. */
export const USED = 3
const USED_MEMBERS = 2_000
const OTHER_MEMBERS = 10
const CHANNEL_SECRET = randomBytes(16).toString('hex')

/**
 * Accounts of ten to an organization, with a week of deliveries in every third hour (the used ones: five weeks of all hours), a month
 * of followers, members, a key, and an endpoint for every tenth. Nothing is due. Returns what requests for the used accounts need.
 */
export async function addAccounts(session, accounts) {
  await runMaintenance(session, {
    retentionDays: 90,
    deduplicationDays: 400,
    trackingRetentionDays: 7,
    auditRetentionDays: 400,
  })
  await session.query('set synchronous_commit = off')
  for (const statement of STATEMENTS)
    await session.query(statement, statement.includes('$1') ? [accounts] : [])
  await session.query('alter system set autovacuum = off')
  await session.query('select pg_reload_conf()')
  await session.query('vacuum analyze')
  await session.query('checkpoint')
  return session.query(
    `select a.id, a.organization_id, a.bot_user_id, a.oa_hash, a.tracking_key,
            array(select user_id from audience_member where channel_oa_id = a.id) as people
       from official_account a where a.id <= ${USED} order by a.id`,
  )
}

/** $1 accounts */
const STATEMENTS = [
  `insert into organization (name) select 'Agency ' || i from generate_series(1, $1 / 10 + 1) i`,
  `insert into official_account (organization_id, name, channel_id, channel_secret, bot_user_id)
   select 1 + i / 10, 'Account ' || i, i, '${CHANNEL_SECRET}', 'U' || md5(i::text) from generate_series(1, $1::int) i`,
  `insert into delivery_hour (channel_oa_id, hour, source, deliveries, accepted, last_at)
   select id, date_trunc('hour', now()) - h * interval '1 hour', 'line', 10, 12,
          date_trunc('hour', now()) - h * interval '1 hour'
     from generate_series(839, 0, -1) h, official_account
    where h % 3 = 0 and h < 168 or id <= ${USED}`,
  `insert into account_day (channel_oa_id, day, following, line_followers, line_blocks, first_follows, returns, unfollows)
   select id, (now() at time zone 'UTC')::date - d, 900, 1000 - d, 100, 1, 0, 0
     from generate_series(30, 0, -1) d, official_account`,
  `insert into audience_member (channel_oa_id, organization_id, user_id, display_name, relationship, profile_due_at)
   select a.id, a.organization_id, 'U' || md5(a.id || '-' || i), 'Ann ' || i, 'following', null
     from official_account a
    cross join lateral generate_series(1, case when a.id <= ${USED} then ${USED_MEMBERS} else ${OTHER_MEMBERS} end) i`,
  `with client as (
     insert into api_client (client_id, client_secret) select 'client-' || id, 'secret' from official_account returning id, client_id
   )
   insert into api_key (api_client_id, key, channel_oa_id, organization_id)
   select client.id, 'key-' || a.id, a.id, a.organization_id from client join official_account a on 'client-' || a.id = client_id`,
  `insert into endpoint (channel_oa_id, url) select id, 'https://example.com/' from official_account where id % 10 = 0`,
  `update account_check set due_at = 'infinity', count_due_at = 'infinity', judged_at = now()`,
]

const pick = (list) => list[Math.floor(Math.random() * list.length)]

/** One request for one of the used accounts, by what it is. `i` counts. */
export const requestsOf = {
  'delivery of a message': (used, i) =>
    delivery(used[i % USED], (user) => textMessage(user, 'Good morning, is the shop open today?')),
  'delivery of a follow': (used, i) => delivery(used[i % USED], (user) => lineEvent('follow', user)),
  'callback of the chat': (used, i) => {
    const { oa_hash, people } = used[i % USED]
    return post(`/api/mbox/callback/${oa_hash}`, {
      body: JSON.stringify({
        event: 'conversation_updated',
        id: Math.floor(Math.random() * 1e9),
        status: 'open',
        channel: 'Channel::Line',
        contact_inbox: { source_id: pick(people) },
      }),
    })
  },
  'tracking event': (used, i) => {
    const { tracking_key, people } = used[i % USED]
    const event = { type: 'page', userId: pick(people), messageId: randomUUID() }
    return post('/api/tracking', { body: JSON.stringify({ writeKey: tracking_key, batch: [event] }) })
  },
  'page of 50': (used, i) => {
    const { id } = used[i % USED]
    const headers = { 'x-client-id': `client-${id}`, 'x-client-secret': 'secret', 'x-api-key': `key-${id}` }
    return request('GET', '/api/audience?limit=50', headers, '')
  },
}

function delivery({ id, bot_user_id, people }, makeEvent) {
  const body = lineBody(bot_user_id, [makeEvent(pick(people))])
  return post(`/api/line/${id}`, {
    body,
    headers: { 'x-line-signature': signLine(body, new Secret(CHANNEL_SECRET)) },
  })
}

const post = (path, { body, headers = {} }) =>
  request(
    'POST',
    path,
    { ...headers, 'content-type': 'application/json', 'content-length': Buffer.byteLength(body) },
    body,
  )

function request(method, path, headers, body) {
  const lines = Object.entries(headers).map(([name, value]) => `${name}: ${value}`)
  return Buffer.from([`${method} ${path} HTTP/1.1`, 'host: 127.0.0.1', ...lines, '', body].join('\r\n'))
}
