/** `oa-audience demo`: the main job, start to end, on a data directory and a simulated platform of its own. */
import { randomUUID } from 'node:crypto'
import { join } from 'node:path'
import type { Command } from 'commander'
import { randomCredential } from '../src/cli/clients.ts'
import { withJson } from '../src/cli/input.ts'
import { styled } from '../src/cli/output.ts'
import { type Config, readConfig } from '../src/config.ts'
import { signLine } from '../src/intake/line/signature.ts'
import { PortTaken, type RunningService, startService } from '../src/main.ts'
import type { Database } from '../src/postgres/database.ts'
import { Secret } from '../src/secret.ts'
import { addPeople } from './simulator/deliveries.ts'
import { lineBody, lineEvent, randomUserId, textMessage } from './simulator/events.ts'
import { type SimulatedAccount, type SimulatedPlatform, simulatePlatform } from './simulator/platform.ts'

export function demoCommand(program: Command): void {
  withJson(program.command('demo'))
    .description('show the main job on a database and a simulated platform of its own; stays up until Ctrl-C')
    .option('--once', 'end with 0 after the steps')
    .action(({ once: endAfterSteps, json }: { once?: boolean; json?: boolean }) =>
      runDemo(readConfig(), { endAfterSteps: endAfterSteps === true, asJson: json === true }),
    )
}

interface DemoOptions {
  endAfterSteps: boolean
  asJson: boolean
}

async function runDemo(config: Config, { endAfterSteps, asJson }: DemoOptions): Promise<void> {
  const interrupt = () => process.exit(130)
  process.once('SIGINT', interrupt).once('SIGTERM', interrupt)
  const platform = await simulatePlatform()
  try {
    const service = await startDemoService({
      ...config,
      database: { kind: 'embedded', dataDir: join(config.dataDir, 'demo') },
      lineApiUrl: platform.url,
      publicUrl: null,
      logLevel: 'warn',
      // The real service may have that port, too.
      metricsPort: null,
    })
    try {
      await service.ready
      const setUp = await addAccount(service.database as Database, platform.account)
      await new Demo(service.url, platform, setUp, asJson).run()
      if (!endAfterSteps) {
        if (!asJson)
          console.log(
            `\nThe service stays up at ${service.url}: paste any of the lines above. Ctrl-C ends it.`,
          )
        await new Promise<void>((resolve) => {
          // For good: npm passes on what the terminal has sent already, while the service is being closed.
          process.on('SIGINT', () => resolve()).on('SIGTERM', () => resolve())
          process.off('SIGINT', interrupt).off('SIGTERM', interrupt)
        })
      }
    } finally {
      await service.close()
    }
  } finally {
    await platform.close()
  }
}

/** On the configured port; on a free one if something, such as the real service, has it. */
async function startDemoService(config: Config): Promise<RunningService> {
  try {
    return await startService(config)
  } catch (error) {
    if (!(error instanceof PortTaken)) throw error
    return startService({ ...config, port: 0 })
  }
}

interface SetUp {
  accountId: bigint
  oaHash: string
  trackingKey: string
  credentials: { 'x-client-id': string; 'x-client-secret': string; 'x-api-key': string }
}

async function addAccount(database: Database, account: SimulatedAccount): Promise<SetUp> {
  const credentials = {
    'x-client-id': randomCredential('client'),
    'x-client-secret': randomCredential('secret'),
    'x-api-key': randomCredential('key'),
  }
  const [added] = await database.query<{ id: bigint; oa_hash: string; tracking_key: string }>(
    `with o as (insert into organization (name) values ('Demo agency') returning id),
          a as (insert into official_account (organization_id, name, channel_id, channel_secret, channel_access_token,
                       bot_user_id, basic_id)
                select id, $1, $2, $3, $4, $5, $6 from o returning *),
          c as (insert into api_client (client_id, client_secret) values ($7, $8) returning id),
          k as (insert into api_key (api_client_id, key, channel_oa_id, organization_id)
                select c.id, $9, a.id, a.organization_id from a, c)
     select id, oa_hash, tracking_key from a`,
    [
      account.displayName,
      account.channelId,
      account.channelSecret,
      account.channelAccessToken,
      account.botUserId,
      account.basicId,
      ...Object.values(credentials),
    ],
  )
  if (!added) throw new Error('the demo account was not added')
  return { accountId: added.id, oaHash: added.oa_hash, trackingKey: added.tracking_key, credentials }
}

interface Call {
  method: string
  path: string
  headers?: Record<string, string>
  body?: string
}

class Demo {
  readonly #url: string
  readonly #platform: SimulatedPlatform
  readonly #setUp: SetUp
  readonly #asJson: boolean
  #step = 0

  constructor(url: string, platform: SimulatedPlatform, setUp: SetUp, asJson: boolean) {
    this.#asJson = asJson
    this.#url = url
    this.#platform = platform
    this.#setUp = setUp
  }

  async run(): Promise<void> {
    const { accountId, oaHash, trackingKey } = this.#setUp
    const [ann = '', ben = ''] = addPeople(this.#platform, 2)
    if (!this.#asJson)
      console.log(
        `${styled('bold', 'oa-audience')} at ${this.#url}, with the official account "${this.#platform.account.displayName}" (id ${accountId})`,
      )

    const follow = this.#delivery([lineEvent('follow', ann, { follow: { isUnblocked: false } })])
    await this.#show('A person follows the account: LINE sends a signed delivery', follow)
    await this.#show('LINE sends the same delivery again: it takes effect once', follow)
    await this.#show(
      'One delivery about two people, and a group that a third one joined',
      this.#delivery([
        textMessage(ann, 'สวัสดีค่ะ ☕'),
        lineEvent('follow', ben),
        lineEvent('memberJoined', null, {
          source: { type: 'group', groupId: `C${randomUUID().replaceAll('-', '')}` },
          joined: { members: [{ type: 'user', userId: randomUserId() }] },
        }),
      ]),
    )
    await this.#show('The support chat tells that a conversation was resolved', {
      method: 'POST',
      path: `/api/mbox/callback/${oaHash}`,
      headers: { 'content-type': 'application/json', 'x-chatwoot-delivery': randomUUID() },
      body: JSON.stringify({
        event: 'conversation_status_changed',
        id: 31,
        status: 'resolved',
        channel: 'Channel::Line',
        contact_inbox: { source_id: ann },
        updated_at: Date.now() / 1000,
      }),
    })
    await this.#show('A web page tells that the person looked at the menu', {
      method: 'POST',
      path: '/api/tracking',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({
        writeKey: trackingKey,
        messageId: randomUUID(),
        type: 'page',
        userId: ann,
        timestamp: new Date().toISOString(),
        properties: { path: '/menu' },
      }),
    })
    const audience = await this.#show(
      'A B2B client lists the audience of its scope',
      this.#client('GET', '/api/audience?limit=10'),
    )
    const members = (JSON.parse(audience) as { data: Array<{ id: string; userId: string }> }).data
    const annId = members.find(({ userId }) => userId === ann)?.id
    const benId = members.find(({ userId }) => userId === ben)?.id
    await this.#show(
      'It tags a member and links its own customer number',
      this.#client('PUT', `/api/audience/${annId}`, {
        externalId: `customer-${accountId}`,
        tags: ['vip'],
        attributes: { cups: 3 },
      }),
    )
    this.#platform.settings.webhook = { endpoint: `${this.#url}/api/line/${accountId}`, active: true }
    await this.#show(
      'It verifies the account on the platform, which sends a test delivery',
      this.#client('POST', '/api/line-oa/verify', { testWebhook: true }),
    )
    await this.#show('It erases a person', this.#client('DELETE', `/api/audience/${benId}`))
    await this.#show(
      'An older event about that person arrives late: it is taken, and does not bring them back',
      this.#delivery([textMessage(ben, 'sent before the erasure', { timestamp: Date.now() - 60_000 })]),
    )
    await this.#show('They are gone', this.#client('GET', `/api/audience?userId=${ben}`))
    await this.#show('And without credentials nobody sees anything', { method: 'GET', path: '/api/audience' })
  }

  #delivery(events: unknown[]): Call {
    const body = lineBody(this.#platform.account.botUserId, events)
    return {
      method: 'POST',
      path: `/api/line/${this.#setUp.accountId}`,
      headers: {
        'content-type': 'application/json',
        'x-line-signature': signLine(body, new Secret(this.#platform.account.channelSecret)),
      },
      body,
    }
  }

  #client(method: string, path: string, body?: unknown): Call {
    const { credentials } = this.#setUp
    if (body === undefined) return { method, path, headers: credentials }
    return {
      method,
      path,
      headers: { ...credentials, 'content-type': 'application/json' },
      body: JSON.stringify(body),
    }
  }

  /** Prints what happens, the curl line that does it, and the answer; does it. */
  async #show(what: string, call: Call): Promise<string> {
    this.#step += 1
    const { method, path, headers = {}, body } = call
    const curl = curlLine(this.#url, call)
    if (!this.#asJson) {
      console.log(`\n${styled(['bold', 'cyan'], `${this.#step}. ${what}`)}`)
      console.log(styled('dim', curl))
    }
    const response = await fetch(this.#url + path, {
      method,
      headers,
      ...(body === undefined ? {} : { body }),
    })
    const answer = await response.text()
    if (this.#asJson) {
      console.log(JSON.stringify({ step: this.#step, what, curl, status: response.status, answer }))
    } else {
      const colour = response.ok ? 'green' : 'yellow'
      console.log(`${styled(colour, String(response.status))} ${pretty(answer)}`)
    }
    return answer
  }
}

/** A line to paste into a shell: single quotes keep every byte as it is. */
function curlLine(url: string, { method, path, headers = {}, body }: Call): string {
  const quote = (text: string) => `'${text.replaceAll("'", `'\\''`)}'`
  const parts = ['curl', '-sS', '-X', method, quote(url + path)]
  for (const [name, value] of Object.entries(headers)) parts.push('-H', quote(`${name}: ${value}`))
  if (body !== undefined) parts.push('--data-binary', quote(body))
  return parts.join(' ')
}

function pretty(answer: string): string {
  if (answer === '') return '(no content)'
  return answer.length < 100 ? answer : JSON.stringify(JSON.parse(answer), null, 2)
}
