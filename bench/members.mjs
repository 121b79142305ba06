/** Audiences, and the requests of their API clients. */
import { encodeCursor } from '../dist/src/audience/list-pages.js'

/** API clients per account, each with one key. */
export const CLIENTS = 200
export const CHANNEL_SECRET = 'bench-channel-secret'

/** Members as after a year of use: one in ten blocked, one in a hundred tagged vip, names in four scripts. */
export async function addAudience(database, accountId, count) {
  await database.session(async (session) => {
    await session.query(
      `insert into official_account (id, organization_id, name, channel_secret) overriding system value
       values ($1, 1, 'bench', $2)`,
      [accountId, CHANNEL_SECRET],
    )
    await session.query(
      `with client as (
         insert into api_client (client_id, client_secret)
         select 'client-' || $1::bigint || '-' || i, 'secret-' || i from generate_series(1, $2) i returning id, client_id
       )
       insert into api_key (api_client_id, key, channel_oa_id, organization_id)
       select id, 'key-' || client_id, $1::bigint, 1 from client`,
      [accountId, CLIENTS],
    )
    await session.query(
      `insert into audience_member (channel_oa_id, organization_id, user_id, display_name, picture_url, language,
              relationship, followed_at, blocked_at, first_seen_at, last_seen_at, event_count, external_id, tags,
              attributes, updated_at)
       select $1, 1, 'U' || md5(i::text),
              (array['Ann', 'Somchai', 'สมหญิง', '山田花子', 'Kenji', 'Mali', 'Ploy', '王小明'])[1 + i % 8] || ' ' || i,
              'https://profile.line-scdn.net/' || md5(i::text), 'th',
              case when i % 10 = 0 then 'blocked' else 'following' end, now() - i * interval '1 second',
              case when i % 10 = 0 then now() end, now() - interval '1 day', now(), 7,
              case when i % 3 = 0 then 'customer-' || i end,
              case when i % 100 = 0 then '{vip,new}' when i % 3 = 0 then '{new}' else '{}' end::text[],
              '{"cups": 3}', now() - ($2 - i) * interval '1 second'
         from generate_series(1, $2) i`,
      [accountId, count],
    )
    await session.query('vacuum analyze')
    await session.query('checkpoint')
  })
  const [ids] = await database.query(
    'select min(id) as first, max(id) as last from audience_member where channel_oa_id = $1',
    [accountId],
  )
  return { accountId, count, first: ids.first, last: ids.last }
}

export const random = (below) => Math.floor(Math.random() * below)
export const randomId = ({ first, count }, reserve = 60) =>
  first + BigInt(random(Math.max(1, count - reserve)))

/** A request of a random client of the account. */
export function get(audience, path, headers = {}) {
  const client = 1 + random(CLIENTS)
  const name = `client-${audience.accountId}-${client}`
  const lines = [
    `GET ${path} HTTP/1.1`,
    'host: 127.0.0.1',
    `x-client-id: ${name}`,
    `x-client-secret: secret-${client}`,
    `x-api-key: key-${name}`,
    ...Object.entries(headers).map(([header, value]) => `${header}: ${value}`),
  ]
  return Buffer.from(`${lines.join('\r\n')}\r\n\r\n`)
}

export function cursorAt(audience, id) {
  const scope = { keyId: null, accountId: audience.accountId, organizationId: 1n }
  return encodeCursor({ scope, filters: {} }, { kind: 'id', id, isCommonName: false })
}
