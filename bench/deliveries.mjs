/** Signed LINE deliveries as raw requests, built before the clock starts. */
import { randomBytes } from 'node:crypto'
import { Secret } from '../dist/src/config/secret.js'
import { signLine } from '../dist/src/line-api/line-signature.js'
import { lineBody, randomUserId, textMessage } from '../dist/tools/simulator/events.js'

/** Enough people that few share a flush, few enough that most are members already. */
const people = Array.from({ length: 10_000 }, randomUserId)

/** Of every account that is measured. */
export const CHANNEL_SECRET = randomBytes(16).toString('hex')
export const BOT_USER_ID = randomUserId()

export function requestsFor(accountId, count, eventsEach = 1) {
  return Array.from({ length: count }, () => {
    const events = Array.from({ length: eventsEach }, () =>
      textMessage(people[Math.floor(Math.random() * people.length)], 'Good morning, is the shop open today?'),
    )
    const body = lineBody(BOT_USER_ID, events)
    const head = [
      `POST /api/line/${accountId} HTTP/1.1`,
      'host: 127.0.0.1',
      'user-agent: LineBotWebhook/2.0',
      'content-type: application/json; charset=utf-8',
      `x-line-signature: ${signLine(body, new Secret(CHANNEL_SECRET))}`,
      `content-length: ${Buffer.byteLength(body)}`,
    ]
    return Buffer.from(`${head.join('\r\n')}\r\n\r\n${body}`)
  })
}
