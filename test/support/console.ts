/** The console on a TCP port of its own, and an operator who uses it as a browser does. */
import { randomBytes } from 'node:crypto'
import type { AddressInfo } from 'node:net'
import { Secret } from '../../src/config/secret.ts'
import type { ConsoleOptions as ConsoleParts } from '../../src/console/parts.ts'
import { createConsole } from '../../src/console/server.ts'
import { LineApi } from '../../src/line-api/client.ts'
import { deliveryPaths } from '../../src/line-api/line-signature.ts'
import { commandActor, type Role } from '../../src/operators/actor.ts'
import { openSession } from '../../src/operators/sessions.ts'
import type { Transactions } from '../../src/postgres/statement.ts'
import { ChannelTester } from '../../src/watch/notifications/history.ts'
import { openNotificationSender } from '../../src/watch/notifications/send.ts'
import type { TextDatabase } from '../../tools/text-database.ts'
import { atEnd } from './at-end.ts'
import { addOperator } from './operations.ts'
import { type Answer, readAnswer } from './service.ts'

const SESSION_COOKIE = 'oa-audience-console'
export const CONSOLE_TOKEN = 'a-token-of-the-tests-of-the-console'
export const PASSWORD = 'six unrelated words of this test'

export interface ConsoleOptions extends Partial<Omit<ConsoleParts, 'database' | 'token' | 'config'>> {
  /** by default, what a service without configuration has */
  config?: Partial<ConsoleParts['config']>
  token?: string | null
  lineApiUrl?: string
}

/** It is closed with its test or file. */
export async function startConsole(
  database: ConsoleParts['database'],
  { token = CONSOLE_TOKEN, lineApiUrl = 'http://127.0.0.1:9', config: given, ...parts }: ConsoleOptions = {},
) {
  const none = { trustProxy: [], publicUrl: null, smtpUrl: null, consoleUrl: null }
  const config = { logLevel: 'silent' as const, ...none, ...given }
  const sender = await openNotificationSender(config, () => false)
  const now = parts.now ?? Date.now
  const { publicUrl } = config
  const verifier = { lineApi: new LineApi(lineApiUrl), publicUrl, webhookPaths: deliveryPaths, now }
  const log = { write: () => undefined }
  const app = await createConsole({
    config,
    verifier,
    channelTester: new ChannelTester(sender),
    ownUrls: () => [new URL('https://oa.example.com/audience')],
    log,
    now,
    erasureLedger: null,
    ...parts,
    database,
    token: token === null ? null : new Secret(token),
    userHeader: parts.userHeader ?? null,
  })
  await app.listen({ port: 0, host: '127.0.0.1' })
  atEnd(() => app.close())
  return { app, url: `http://127.0.0.1:${(app.server.address() as AddressInfo).port}` }
}

/** A person who uses the console. */
export class Operator {
  readonly url: string
  cookie = ''
  /** the cookie of a browser that has signed in */
  device = ''

  constructor(url: string) {
    this.url = url
  }

  /** The headers that the console's own pages send. */
  get headers(): Record<string, string> {
    const cookie = [this.cookie, this.device].filter((text) => text !== '').join('; ')
    return { 'x-console': '1', origin: this.url, ...(cookie === '' ? {} : { cookie }) }
  }

  async call(method: string, path: string, body?: unknown, headers = this.headers): Promise<Answer> {
    const sent = body === undefined ? null : JSON.stringify(body)
    return readAnswer(await fetch(this.url + path, { method, headers, body: sent, redirect: 'manual' }))
  }

  readonly get = (path: string) => this.call('GET', path)
  readonly post = (path: string, body?: unknown) => this.call('POST', path, body)

  signIn(token = CONSOLE_TOKEN, headers: Record<string, string> = {}): Promise<Answer> {
    return this.send('/sign-in', { token }, headers)
  }

  /** Keeps the cookies of the response. */
  async send(path: string, body: unknown, headers: Record<string, string> = {}): Promise<Answer> {
    const answer = await this.call('POST', path, body, { ...this.headers, ...headers })
    for (const header of answer.headers.getSetCookie()) {
      const cookie = header.split(';')[0] ?? ''
      if (cookie.startsWith(SESSION_COOKIE)) this.cookie = cookie
      else this.device = cookie
    }
    return answer
  }
}

/** Adds an operator, who accepts the invitation with a password and is signed in. */
export async function addSignedIn(
  { url, database }: { url: string; database: Transactions },
  fields: { email?: string; role: Role; organizationIds?: bigint[] | null },
): Promise<Operator & { id: bigint; email: string }> {
  const { email = `${randomBytes(6).toString('hex')}@example.com`, role, organizationIds = null } = fields
  const invited = await addOperator(database, commandActor(), email, { name: null, role, organizationIds })
  const operator = new Operator(url)
  const accepted = await operator.send('/invitation/accept', {
    invitation: invited.invitation,
    password: PASSWORD,
  })
  if (accepted.status !== 200) throw new Error(accepted.text)
  return Object.assign(operator, { id: invited.id, email })
}

/** An operator who has signed in with CONSOLE_TOKEN. */
export async function signedIn(url: string): Promise<Operator> {
  const operator = new Operator(url)
  await operator.signIn()
  return operator
}

/** A console and the operator who has signed in with CONSOLE_TOKEN. */
export async function startSignedIn(...given: Parameters<typeof startConsole>) {
  const console = await startConsole(...given)
  return { ...console, operator: await signedIn(console.url) }
}

/** An operator of the table, who has signed in. */
export async function signedInAs(database: TextDatabase, url: string, operatorId: bigint): Promise<Operator> {
  // A session ends with the password.
  await database.query(`update operator set password_hash = coalesce(password_hash, 'none') where id = $1`, [
    operatorId,
  ])
  const operator = new Operator(url)
  operator.cookie = `${SESSION_COOKIE}=${(await openSession(database, operatorId)).id}`
  return operator
}

/** What 12 hours do to every session. */
export async function endSessions(database: TextDatabase): Promise<void> {
  await database.query(`update operator_session set expires_at = now() where expires_at > now()`)
}
