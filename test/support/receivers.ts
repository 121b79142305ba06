/** Tools that receive outgoing webhooks: LINE's own SDK on Express, and Chatwoot's rules. */
import { createHmac } from 'node:crypto'
import { createRequire } from 'node:module'
import { text } from 'node:stream/consumers'
import { middleware } from '@line/bot-sdk'
import { serveForTest } from './http-server.ts'

/** Express has no types of its own. */
const express = createRequire(import.meta.url)('express')

// biome-ignore lint/suspicious/noExplicitAny: tests read any event
export type ReceivedEvent = Record<string, any>

/** A bot as LINE's documentation writes it: the middleware of the SDK, unmodified, on Express. */
export async function startLineBot(channelSecret: string) {
  const events: ReceivedEvent[] = []
  const refusals: Error[] = []
  const app = express()
  app.post(
    '/webhook',
    middleware({ channelSecret }),
    (request: { body: { events: ReceivedEvent[] } }, response: Answer) => {
      events.push(...request.body.events)
      response.json({})
    },
  )
  app.use((error: Error, _: unknown, response: Answer, __: unknown) => {
    refusals.push(error)
    response.status(401).send(error.message)
  })
  return { url: `${await serveForTest(app)}/webhook`, events, refusals }
}

interface Answer {
  json(body: unknown): void
  status(code: number): Answer
  send(body: string): void
}

/**
 * Chatwoot's LINE inbox, by its source of 2026: webhooks/line_controller.rb answers 200 to everything.
 * webhooks/line_events_job.rb finds the channel by the id in the path, and drops a body whose signature does not match
 * (Line::Bot::V2::WebhookParser of line-bot-sdk-ruby: HMAC-SHA256 of the raw body). Its event classes require `timestamp`, `mode`,
 * `webhookEventId` and `deliveryContext`, and need no `replyToken`. line/webhook_event_adapter.rb keeps messages of users and reads
 * neither `mode` nor `replyToken`. line/incoming_message_service.rb stores each message under `message.id`, and
 * line/send_on_line_service.rb replies with push messages.
 */
export async function startChatwoot(channelId: string, channelSecret: string) {
  const messages: Array<{ sourceId: string; contact: string; content: string | null }> = []
  let droppedBodies = 0
  const perform = (path: string, signature: unknown, body: string) => {
    if (path !== `/webhooks/line/${channelId}`) return
    if (signature !== createHmac('sha256', channelSecret).update(body).digest('base64')) {
      droppedBodies += 1
      return
    }
    for (const event of JSON.parse(body).events as ReceivedEvent[]) {
      for (const field of ['timestamp', 'mode', 'webhookEventId', 'deliveryContext']) {
        if (!(field in event)) throw new Error(`missing keyword: ${field}`)
      }
      if (event.type !== 'message' || event.source?.type !== 'user') continue
      const { id, text: content = null } = event.message
      messages.push({ sourceId: String(id), contact: event.source.userId, content })
    }
  }
  const base = await serveForTest(async (request, response) => {
    const body = await text(request)
    perform(request.url ?? '', request.headers['x-line-signature'], body)
    response.writeHead(200).end()
  })
  return { url: `${base}/webhooks/line/${channelId}`, messages, droppedBodies: () => droppedBodies }
}
