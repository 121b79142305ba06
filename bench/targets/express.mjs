/** The usual set-up today: Express + @line/bot-sdk + pg, one event at a time, deduplicated and counted. */
import { middleware } from '@line/bot-sdk'
import express from 'express'
import pg from 'pg'

const pool = new pg.Pool({ connectionString: process.env.DATABASE_URL, max: 16 })
const app = express()

app.post(
  '/api/line/:id',
  middleware({ channelSecret: process.env.CHANNEL_SECRET }),
  async (request, response) => {
    for (const event of request.body.events) {
      const client = await pool.connect()
      try {
        await client.query('begin')
        const { rowCount } = await client.query(
          'insert into express_event (id, account, user_id, payload) values ($1, $2, $3, $4) on conflict do nothing',
          [event.webhookEventId, request.params.id, event.source.userId, event],
        )
        if (rowCount === 1) {
          await client.query(
            `insert into express_member (account, user_id, events, last_seen) values ($1, $2, 1, $3)
               on conflict (account, user_id) do update set events = express_member.events + 1,
                  last_seen = greatest(express_member.last_seen, excluded.last_seen)`,
            [request.params.id, event.source.userId, new Date(event.timestamp)],
          )
        }
        await client.query('commit')
      } finally {
        client.release()
      }
    }
    response.json({ accepted: request.body.events.length })
  },
)
app.listen(Number(process.env.PORT), '127.0.0.1')
