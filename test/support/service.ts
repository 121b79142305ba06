/** The service on a TCP port of its own, and the requests that its users send. */
import type { AddressInfo } from 'node:net'
import type { FastifyInstance } from 'fastify'
import { type AppOptions, createApp } from '../../src/app.ts'
import type { Member } from '../../src/audience/member.ts'
import { Secret } from '../../src/config/secret.ts'
import { signChat } from '../../src/intake/mbox/mbox-source.ts'
import { SOURCES } from '../../src/intake/sources.ts'
import { signLine } from '../../src/line-api/line-signature.ts'
import { Metrics } from '../../src/observability/metrics.ts'
import { type Database, NoDatabase } from '../../src/postgres/database.ts'
import { lineBody, lineEvent, randomUserId } from '../../tools/simulator/events.ts'
import { atEnd } from './at-end.ts'
import { addTenant, createTestDatabase, type Tenant } from './database.ts'

export interface Answer {
  status: number
  headers: Headers
  text: string
  // biome-ignore lint/suspicious/noExplicitAny: tests read any answer
  json: any
}

export async function readAnswer(response: Response): Promise<Answer> {
  const { status, headers } = response
  const text = await response.text()
  const isJson = headers.get('content-type')?.startsWith('application/json') === true && text !== ''
  return { status, headers, text, json: isJson ? JSON.parse(text) : undefined }
}

/** A signed delivery that can be sent to any instance. */
export function signedDelivery(
  tenant: Pick<Tenant, 'accountId' | 'botUserId' | 'channelSecret'>,
  events: unknown[],
): { path: string; init: RequestInit } {
  const body = lineBody(tenant.botUserId, events)
  const headers = { 'x-line-signature': signLine(body, new Secret(tenant.channelSecret)) }
  return { path: `/api/line/${tenant.accountId}`, init: { method: 'POST', headers, body } }
}

/** Sends it to the instance at this address. */
export function sendDelivery(url: string, ...delivery: Parameters<typeof signedDelivery>): Promise<Response> {
  const { path, init } = signedDelivery(...delivery)
  return fetch(url + path, init)
}

export class Service {
  readonly url: string
  readonly app: FastifyInstance

  constructor(app: FastifyInstance) {
    this.app = app
    this.url = `http://127.0.0.1:${(app.server.address() as AddressInfo).port}`
  }

  async call(
    method: string,
    path: string,
    init: { headers?: Record<string, string>; body?: string | Buffer } = {},
  ): Promise<Answer> {
    return readAnswer(await fetch(this.url + path, { method, ...init }))
  }

  /** Sends events of the platform, signed with the account's channel secret. */
  deliver(tenant: Tenant, events: unknown[], path = `/api/line/${tenant.accountId}`): Promise<Answer> {
    return this.deliverRaw(tenant, lineBody(tenant.botUserId, events), path)
  }

  deliverRaw(tenant: Tenant, body: string, path = `/api/line/${tenant.accountId}`): Promise<Answer> {
    const signature = signLine(body, new Secret(tenant.channelSecret))
    return this.call('POST', path, {
      headers: { 'x-line-signature': signature, 'content-type': 'application/json' },
      body,
    })
  }

  chat(tenant: Tenant, webhook: unknown, headers: Record<string, string> = {}): Promise<Answer> {
    const body = JSON.stringify(webhook)
    const timestamp = String(Math.floor(Date.now() / 1000))
    const signed = tenant.chatSecret
      ? {
          'x-chatwoot-timestamp': timestamp,
          'x-chatwoot-signature': signChat(body, timestamp, new Secret(tenant.chatSecret)),
        }
      : {}
    return this.call('POST', `/api/mbox/callback/${tenant.oaHash}`, {
      headers: { 'content-type': 'application/json', ...signed, ...headers },
      body,
    })
  }

  track(tenant: Tenant, events: unknown[]): Promise<Answer> {
    return this.call('POST', '/api/tracking', {
      body: JSON.stringify({ writeKey: tenant.trackingKey, batch: events }),
    })
  }

  /** All members of the tenant's scope, from as many pages as it takes. */
  async members(tenant: Tenant): Promise<Member[]> {
    const members: Member[] = []
    for (let cursor = ''; ; ) {
      const page = await this.call('GET', `/api/audience?limit=200${cursor}`, { headers: tenant.headers })
      if (page.status !== 200) throw new Error(page.text)
      members.push(...page.json.data)
      if (page.json.nextCursor === null) return members
      cursor = `&cursor=${page.json.nextCursor}`
    }
  }

  /** Changes a member as a client does. */
  put(tenant: Tenant, id: unknown, body: unknown, headers: Record<string, string> = {}) {
    return this.call('PUT', `/api/audience/${id}`, {
      headers: { ...tenant.headers, 'content-type': 'application/json', ...headers },
      body: typeof body === 'string' ? body : JSON.stringify(body),
    })
  }

  erase(tenant: Tenant, id: unknown, headers: Record<string, string> = {}): Promise<Answer> {
    return this.call('DELETE', `/api/audience/${id}`, { headers: { ...tenant.headers, ...headers } })
  }

  /** A person who has followed. @param fields of the event */
  async addFollower(tenant: Tenant, fields: Record<string, unknown> = {}): Promise<Member> {
    const userId = randomUserId()
    await this.deliver(tenant, [lineEvent('follow', userId, fields)])
    return (await this.member(tenant, userId)) as Member
  }

  /** Erases the member with this user id. */
  async eraseUser(tenant: Tenant, userId: string): Promise<void> {
    const { status, text } = await this.erase(tenant, (await this.member(tenant, userId))?.id)
    if (status !== 204) throw new Error(text)
  }

  async member(tenant: Tenant, userId: string): Promise<Member | undefined> {
    const page = await this.call('GET', `/api/audience?userId=${encodeURIComponent(userId)}`, {
      headers: tenant.headers,
    })
    return page.json.data[0]
  }
}

/** Of tracking events per minute. */
export const NO_BUDGET = {
  eventsPerMinute: Number.POSITIVE_INFINITY,
  bytesPerMinute: Number.POSITIVE_INFINITY,
}
const DEFAULTS: AppOptions['config'] = {
  logLevel: 'silent',
  trustProxy: [],
  rateLimit: { max: 0, windowMs: 60_000, spareSigned: false },
  redisUrl: null,
  lineApiUrl: 'http://127.0.0.1:9',
  publicUrl: null,
}

/** Starts the service, which is closed with its test or file. */
export async function startApp(
  database: Database | null,
  options: Omit<AppOptions, 'config' | 'database'> & { config?: Partial<AppOptions['config']> } = {},
): Promise<Service> {
  const app = await createApp({
    trackingBudgets: { address: NO_BUDGET, key: NO_BUDGET },
    ...options,
    database: database ?? new NoDatabase(),
    config: { ...DEFAULTS, ...options.config },
  })
  await app.listen({ port: 0, host: '127.0.0.1' })
  atEnd(() => app.close())
  return new Service(app)
}

/** Starts the service for one test with metrics and a log at level info. `noted` returns the log lines so far. */
export async function startObserved(
  database: Database | null,
): Promise<{ seen: Service; noted: () => LogLine[]; counted: () => Promise<string> }> {
  const lines: string[] = []
  const metrics = new Metrics(SOURCES.map(({ name }) => name))
  const log = { write: (line: string) => void lines.push(line) }
  const seen = await startApp(database, { log, metrics, config: { logLevel: 'info' } })
  atEnd(() => metrics.close())
  return {
    seen,
    noted: () => lines.map((line) => JSON.parse(line)),
    counted: () => metrics.registry.getSingleMetricAsString('oa_audience_requests_total'),
  }
}

// biome-ignore lint/suspicious/noExplicitAny: tests read any line
type LogLine = Record<string, any>

/** A database of the test's or the file's own, the service on it and a tenant. */
export async function setUpService() {
  const created = await createTestDatabase()
  const service = await startApp(created.database)
  return { ...created, service, tenant: await addTenant(created.database) }
}
