/** The console on a TCP port of its own, and an operator who uses it as a browser does. */
import type { AddressInfo } from 'node:net'
import type { FastifyInstance } from 'fastify'
import { Secret } from '../../src/config/secret.ts'
import { deliveryPaths } from '../../src/intake/line/line-signature.ts'
import { LineApi } from '../../src/line-api/client.ts'
import type { ConsoleOptions as ConsoleParts } from '../../src/operator/console/parts.ts'
import { createConsole } from '../../src/operator/console/server.ts'
import { openSession } from '../../src/operator/sessions.ts'
import type { TextDatabase } from '../../tools/text-database.ts'
import { atEnd } from './at-end.ts'
import { type Answer, readAnswer } from './service.ts'

const SESSION_COOKIE = 'oa-audience-console'
export const CONSOLE_TOKEN = 'a-token-of-the-tests-of-the-console'

export interface RunningConsole {
  app: FastifyInstance
  url: string
}

export interface ConsoleOptions extends Partial<Omit<ConsoleParts, 'database' | 'token'>> {
  token?: string
  lineApiUrl?: string
}

/** It is closed with its test or file. */
export async function startConsole(
  database: ConsoleParts['database'],
  { token = CONSOLE_TOKEN, lineApiUrl = 'http://127.0.0.1:9', ...parts }: ConsoleOptions = {},
): Promise<RunningConsole> {
  const config = { logLevel: 'silent' as const, trustProxy: [], publicUrl: null }
  const now = parts.now ?? Date.now
  const verifier = { lineApi: new LineApi(lineApiUrl), publicUrl: null, webhookPaths: deliveryPaths, now }
  const log = { write: () => undefined }
  const app = await createConsole({
    config,
    verifier,
    log,
    now,
    ...parts,
    database,
    token: new Secret(token),
    userHeader: parts.userHeader ?? null,
  })
  await app.listen({ port: 0, host: '127.0.0.1' })
  atEnd(() => app.close())
  return { app, url: `http://127.0.0.1:${(app.server.address() as AddressInfo).port}` }
}

export class Operator {
  readonly url: string
  cookie = ''

  constructor(url: string) {
    this.url = url
  }

  /** The headers that the console's own pages send. */
  get headers(): Record<string, string> {
    return { 'x-console': '1', origin: this.url, ...(this.cookie === '' ? {} : { cookie: this.cookie }) }
  }

  async call(method: string, path: string, body?: unknown, headers = this.headers): Promise<Answer> {
    const sent = body === undefined ? null : JSON.stringify(body)
    return readAnswer(await fetch(this.url + path, { method, headers, body: sent, redirect: 'manual' }))
  }

  readonly get = (path: string) => this.call('GET', path)
  readonly post = (path: string, body?: unknown) => this.call('POST', path, body)

  async signIn(token = CONSOLE_TOKEN, headers: Record<string, string> = {}): Promise<Answer> {
    const answer = await this.call('POST', '/sign-in', { token }, { ...this.headers, ...headers })
    const cookie = answer.headers.get('set-cookie')
    if (cookie !== null) this.cookie = cookie.split(';')[0] ?? ''
    return answer
  }
}

/** An operator who has signed in. */
export async function signedIn(url: string): Promise<Operator> {
  const operator = new Operator(url)
  await operator.signIn()
  return operator
}

/** An operator of the table, who has signed in. */
export async function signedInAs(database: TextDatabase, url: string, operatorId: bigint): Promise<Operator> {
  const operator = new Operator(url)
  operator.cookie = `${SESSION_COOKIE}=${(await openSession(database, operatorId)).id}`
  return operator
}

/** What 12 hours do to every session. */
export async function endSessions(database: TextDatabase): Promise<void> {
  await database.query(`update operator_session set expires_at = now() where expires_at > now()`)
}
