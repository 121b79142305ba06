/** The usual set-up today: Express + pg, three queries, objects, JSON.stringify. */
import express from 'express'
import pg from 'pg'

const pool = new pg.Pool({ connectionString: process.env.DATABASE_URL, max: 16 })
const app = express()

app.get('/api/audience', async (request, response) => {
  const header = (name) => request.headers[name]
  const { rows: clients } = await pool.query(
    `select id from api_client where client_id = $1 and client_secret = $2 and status = 'active'`,
    [header('x-client-id'), header('x-client-secret')],
  )
  if (clients.length === 0) return response.status(401).end()
  const { rows: keys } = await pool.query(
    `select channel_oa_id, organization_id from api_key where api_client_id = $1 and key = $2 and status = 'active'`,
    [clients[0].id, header('x-api-key')],
  )
  const { rows } = await pool.query(
    `select m.*, t.event_count as tracked_count, t.first_seen_at as tracked_first, t.last_seen_at as tracked_last
       from audience_member m
       left join tracked_activity t on t.channel_oa_id = m.channel_oa_id and t.user_id = m.user_id
      where m.channel_oa_id = $1 and m.organization_id = $2 and m.id > $3 order by m.id limit 51`,
    [keys[0].channel_oa_id, keys[0].organization_id, request.query.after],
  )
  response.json({
    data: rows.slice(0, 50).map((row) => ({
      id: row.id,
      userId: row.user_id,
      displayName: row.display_name,
      pictureUrl: row.picture_url,
      language: row.language,
      relationship: row.relationship,
      followedAt: row.followed_at,
      blockedAt: row.blocked_at,
      firstSeenAt: row.first_seen_at,
      lastSeenAt: row.last_seen_at,
      eventCount: Number(row.event_count) + Number(row.tracked_count ?? 0),
      conversation: row.conversation_id && {
        id: row.conversation_id,
        status: row.conversation_status,
        updatedAt: row.conversation_at,
      },
      externalId: row.external_id,
      tags: row.tags,
      attributes: row.attributes,
      version: Number(row.version),
      createdAt: row.created_at,
      updatedAt: row.updated_at,
    })),
    nextCursor: rows.length > 50 ? rows[49].id : null,
  })
})
app.listen(Number(process.env.PORT), '127.0.0.1')
