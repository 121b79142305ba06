/** A receiver of outgoing webhooks, and a service that sends to it. */
import type { IncomingHttpHeaders } from 'node:http'
import { onTestFinished } from 'vitest'
import type { Route } from '../../src/endpoints/address.ts'
import { HostResolver } from '../../src/endpoints/resolver.ts'
import { Sender } from '../../src/endpoints/sender.ts'
import { addTenant, createTestDatabase } from './database.ts'
import { serveForTest } from './http-server.ts'
import { insertRow } from './load.ts'
import { eventually } from './process.ts'
import { startApp } from './service.ts'

export interface Received {
  path: string
  headers: IncomingHttpHeaders
  body: string
}

export interface Receiver {
  url: string
  received: Received[]
  /** The answer to the next requests: a status, or null for none. */
  answer: { status: number | null; headers?: Record<string, string>; body?: string; until?: Promise<unknown> }
}

/** @param refuses bodies that it answers with 500 */
export async function startReceiver(refuses: (body: string) => boolean = () => false): Promise<Receiver> {
  const receiver: Receiver = { url: '', received: [], answer: { status: 200 } }
  const url = await serveForTest((request, response) => {
    let body = ''
    request.on('data', (chunk) => {
      body += chunk
    })
    request.on('end', async () => {
      receiver.received.push({ path: request.url ?? '', headers: request.headers, body })
      const answer = refuses(body) ? { status: 500 } : receiver.answer
      const { status, headers = {}, body: text = 'ok', until }: Receiver['answer'] = answer
      // Without a wait, the response is written in the same turn.
      if (until !== undefined) await until
      if (status !== null) response.writeHead(status, headers).end(text)
    })
  })
  receiver.url = `${url}/webhook`
  return receiver
}

export type Sending = Awaited<ReturnType<typeof startSending>>

/** A service with a sender, as an instance has them. */
export async function startSending(route: Route = new HostResolver()) {
  const { database, env } = await createTestDatabase()
  const sender = new Sender(database, () => false, route)
  const service = await startApp(database, { handOver: sender.handOver })
  const tenant = await addTenant(database)
  sender.start()
  onTestFinished(() => sender.stop())
  return {
    ...{ database, sender, env, service, tenant },
    /** Adds an endpoint of the tenant. Returns its id. */
    addEndpoint: (url: string, columns: Record<string, unknown> = {}) => {
      const account = { channel_oa_id: tenant.accountId, allow_private_network: true }
      return insertRow(database, 'endpoint', { ...account, url, ...columns })
    },
    /** Makes everything due that has not been accepted. */
    makeDue: () => database.query(`update endpoint_delivery set due_at = now() where leased_until <= now()`),
    /** Waits until no delivery is being sent or waits to be sent at once. */
    becomesQuiet: () =>
      eventually(
        () => database.query(`select from endpoint_delivery where leased_until > now() or due_at <= now()`),
        (rows) => rows.length === 0,
      ),
  }
}
