/** A delivery every two seconds for the fleet, so that the list of events has something to follow. */
import { randomInt } from 'node:crypto'
import { setTimeout as sleep } from 'node:timers/promises'
import { Secret } from '../../src/config/secret.ts'
import { signLine } from '../../src/line-api/line-signature.ts'
import { lineBody, lineEvent, textMessage } from '../simulator/events.ts'
import type { FleetAccount } from './fleet.ts'

/** Between two deliveries. */
const PAUSE_MS = 2_000
const GREETINGS = ['hello', 'สวัสดีค่ะ', 'こんにちは', '予約したいです', 'ขอบคุณครับ', 'see you tomorrow']

/** Sends until the signal. A delivery that is not answered is not sent again. */
export async function sendTraffic(url: string, accounts: FleetAccount[], signal: AbortSignal): Promise<void> {
  if (accounts.length === 0) return
  while (!signal.aborted) {
    const account = accounts[randomInt(accounts.length)] as FleetAccount
    const userId = account.userIds[randomInt(account.userIds.length)] as string
    await deliver(url, account, eventAbout(userId), signal).catch(() => undefined)
    await sleep(PAUSE_MS, undefined, { signal }).catch(() => undefined)
  }
}

function eventAbout(userId: string): unknown {
  const dice = randomInt(10)
  if (dice === 0) return lineEvent('follow', userId, { follow: { isUnblocked: false } })
  if (dice === 1) return lineEvent('postback', userId, { postback: { data: 'menu=today' } })
  return textMessage(userId, GREETINGS[randomInt(GREETINGS.length)] as string)
}

async function deliver(
  url: string,
  { id, channelSecret, botUserId }: FleetAccount,
  event: unknown,
  signal: AbortSignal,
): Promise<void> {
  const body = lineBody(botUserId, [event])
  const headers = {
    'content-type': 'application/json',
    'x-line-signature': signLine(body, new Secret(channelSecret)),
  }
  const response = await fetch(`${url}/api/line/${id}`, { method: 'POST', headers, body, signal })
  await response.arrayBuffer()
}
