/**
 * A messaging platform on loopback that speaks the part of LINE's API which this service calls. The demo and the
 * tests use it: LINE forbids load tests through its own. It can be told to misbehave.
 */
import { randomBytes } from 'node:crypto'
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { text } from 'node:stream/consumers'
import { randomUserId } from './events.ts'

export interface SimulatedAccount {
  channelId: string
  channelSecret: string
  channelAccessToken: string
  botUserId: string
  basicId: string
  displayName: string
}

/** What the platform does instead of answering as documented. */
export type Misbehaviour = (request: IncomingMessage, response: ServerResponse) => void

export interface SimulatedPlatform {
  url: string
  account: SimulatedAccount
  /** every call since the start: `GET /v2/bot/info` */
  calls: string[]
  /** replaces all answers until it is taken back with null */
  misbehave: (how: Misbehaviour | null) => void
  close: () => Promise<void>
}

/** An official account that nobody has, with random credentials of the documented shapes. */
export function randomAccount(displayName: string): SimulatedAccount {
  return {
    channelId: String(2_000_000_000 + (randomBytes(4).readUInt32BE() % 1_000_000)),
    channelSecret: randomBytes(16).toString('hex'),
    channelAccessToken: randomBytes(96).toString('base64'),
    botUserId: randomUserId(),
    basicId: `@${randomBytes(4).toString('hex')}`,
    displayName,
  }
}

export async function simulatePlatform(account = randomAccount('Corner Coffee')): Promise<SimulatedPlatform> {
  const calls: string[] = []
  let misbehaviour: Misbehaviour | null = null
  const tokens = new Set([account.channelAccessToken])

  const answer = async (request: IncomingMessage): Promise<{ status: number; body: unknown }> => {
    const call = `${request.method} ${request.url}`
    calls.push(call)
    if (call === 'POST /oauth2/v3/token') return issueToken(await text(request))
    if (!tokens.has(request.headers.authorization?.replace(/^Bearer /, '') ?? '')) {
      return {
        status: 401,
        body: { message: 'Authentication failed. Confirm that the access token is valid.' },
      }
    }
    if (call === 'GET /v2/bot/info') return { status: 200, body: botInfo(account) }
    return { status: 404, body: { message: 'Not found' } }
  }

  const issueToken = (form: string): { status: number; body: unknown } => {
    const fields = new URLSearchParams(form)
    const known =
      fields.get('client_id') === account.channelId && fields.get('client_secret') === account.channelSecret
    if (!known)
      return {
        status: 400,
        body: { error: 'invalid_request', error_description: "Invalid 'client_credentials'." },
      }
    const token = randomBytes(48).toString('base64')
    tokens.add(token)
    return { status: 200, body: { token_type: 'Bearer', access_token: token, expires_in: 900 } }
  }

  const server = createServer((request, response) => {
    if (misbehaviour !== null) {
      calls.push(`${request.method} ${request.url}`)
      misbehaviour(request, response)
      return
    }
    void answer(request).then(({ status, body }) => {
      response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(body))
    })
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    account,
    calls,
    misbehave: (how) => {
      misbehaviour = how
    },
    close: () =>
      new Promise((resolve) => {
        server.close(() => resolve())
        server.closeAllConnections()
      }),
  }
}

function botInfo(account: SimulatedAccount) {
  return {
    userId: account.botUserId,
    basicId: account.basicId,
    displayName: account.displayName,
    chatMode: 'bot',
    markAsReadMode: 'auto',
  }
}
