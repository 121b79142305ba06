/** `oa-audience demo`: the main job from start to end, with its own database and a simulated platform. */
import { randomBytes } from 'node:crypto'
import { join } from 'node:path'
import type { Command } from 'commander'
import { listOrganizations, removeOrganization } from '../../src/accounts/organizations.ts'
import { addAccount, addClient, addKey, addOrganization } from '../../src/accounts/provisioning.ts'
import { addSegment, setSync } from '../../src/audience/segments.ts'
import { withJson } from '../../src/cli/command.ts'
import { styled } from '../../src/cli/io.ts'
import { type Config, readConfig } from '../../src/config/config.ts'
import { Secret } from '../../src/config/secret.ts'
import { addEndpoint } from '../../src/endpoints/settings.ts'
import { PortTaken } from '../../src/http/listen.ts'
import type { RunningService } from '../../src/main.ts'
import { ALL_ORGANIZATIONS } from '../../src/operators/actor.ts'
import type { Database } from '../../src/postgres/database.ts'
import { statement } from '../../src/postgres/statement.ts'
import { removeAccount } from '../remove-account.ts'
import { type SimulatedPlatform, simulatePlatform } from '../simulator/platform.ts'
import type { SimulatedAccount } from '../simulator/state.ts'
import { addFleet, type FleetAccount } from './fleet.ts'
import { type DemoAccount, REGULARS, runSteps, SEGMENT } from './steps.ts'
import { sendTraffic } from './traffic.ts'

/** Of the token for the console, which is made for this run. */
const TOKEN_BYTES = 24

const ORGANIZATION = 'Demo agency'
const CLIENT = 'Demo CRM'

interface DemoOptions {
  once?: boolean
  incidents?: boolean
  json?: boolean
}

export function demoCommand(program: Command): void {
  withJson(program.command('demo'))
    .description(
      'show the main job with its own database and a simulated platform, then stay up until Ctrl-C',
    )
    .option('--once', 'exit after the steps')
    .option(
      '--incidents',
      'break credentials, webhooks and the platform, show the messages about it, and exit',
    )
    .action((options: DemoOptions) => runDemo(readConfig(), options))
}

async function runDemo(config: Config, options: DemoOptions): Promise<void> {
  const interrupt = () => process.exit(130)
  process.once('SIGINT', interrupt).once('SIGTERM', interrupt)
  const platform = await simulatePlatform()
  // Nobody opens a page of a service that ends by itself.
  const token =
    options.once || options.incidents ? null : new Secret(randomBytes(TOKEN_BYTES).toString('base64url'))
  try {
    const service = await startDemoService(config, platform, token)
    try {
      await service.ready
      if (options.incidents) {
        const { showIncidents } = await import('./incidents-command.ts')
        return await showIncidents(service, platform, options.json === true)
      }
      // Before the steps, because the activity log has its rows in the order in which they are written.
      const fleet = token === null ? [] : await addFleet(service.database as Database, platform, service.url)
      await present(service, platform, options.json === true)
      if (token !== null) await stayUp(service, { token, fleet }, options.json === true, interrupt)
    } finally {
      await service.close()
    }
  } finally {
    await platform.close()
  }
}

/** Shows the console with a fleet that lives, until Ctrl-C. */
async function stayUp(
  { url, consoleUrl }: RunningService,
  { token, fleet }: { token: Secret; fleet: FleetAccount[] },
  asJson: boolean,
  interrupt: () => void,
): Promise<void> {
  if (!asJson) {
    console.log(`\n${styled(['bold', 'cyan'], 'The console shows a fleet of accounts')}`)
    console.log(`  ${consoleUrl}   token: ${styled('bold', token.reveal())}`)
    console.log(`\nThe service stays up at ${url}: paste any of the lines above. Ctrl-C ends it.`)
  }
  const stop = new AbortController()
  const traffic = sendTraffic(url, fleet, stop.signal)
  await waitForSignal(interrupt)
  stop.abort()
  await traffic
}

/** Listens on the configured port, or on a free one if the real service already uses it. */
async function startDemoService(
  config: Config,
  platform: SimulatedPlatform,
  token: Secret | null,
): Promise<RunningService> {
  const demoConfig: Config = {
    ...config,
    database: { kind: 'embedded', dataDir: join(config.dataDir, 'demo') },
    lineApiUrl: platform.url,
    publicUrl: null,
    // Nothing leaves the machine, and the demo must not use the watchdog, the ledger, or the rate limits of the real service.
    redisUrl: null,
    smtpUrl: null,
    egressProxy: null,
    heartbeatUrl: null,
    erasureLedger: null,
    // No warnings: this run's platform refuses the tokens of accounts that an earlier run added.
    logLevel: 'error',
    // The real service may already use that port.
    metricsPort: null,
    console: token && { port: config.console?.port ?? 0, token, userHeader: null },
  }
  // Imported here, because the service's modules take 0.2 s to load, and other commands do not need them.
  const { startService } = await import('../../src/main.ts')
  // Standard output holds the steps alone, so that --json can be parsed.
  const log = { write: (line: string) => void process.stderr.write(line) }
  try {
    return await startService(demoConfig, log)
  } catch (error) {
    if (!(error instanceof PortTaken)) throw error
    return startService({ ...demoConfig, port: 0 }, log)
  }
}

async function present(
  { url, database }: RunningService,
  platform: SimulatedPlatform,
  asJson: boolean,
): Promise<void> {
  await removeEarlierRun(database as Database)
  const account = await addDemoAccount(database as Database, platform.account)
  await addDemoEndpoints(database as Database, account.id, platform)
  const segment = { name: SEGMENT, condition: REGULARS }
  const segmentId = await addSegment(database as Database, account.id, segment)
  const { displayName } = platform.account
  if (!asJson)
    console.log(
      `${styled('bold', 'oa-audience')} at ${url}, with the official account "${displayName}" (id ${account.id})`,
    )
  await runSteps({ url, platform, account, asJson })
  // Not earlier: LINE takes no audience without followers. The console shows what becomes of it.
  await setSync(database as Database, segmentId, true)
}

/** $1 name of the organization text */
const selectEarlierAccounts = statement('demo-select-earlier-accounts')`
    select a.id from official_account a join organization o on o.id = a.organization_id where o.name = $1`

/** $1 name text. Nothing else gives a demo key. */
const deleteEarlierClients = statement('demo-delete-earlier-clients')`
    with deleted as (delete from api_key using api_client c where api_client_id = c.id and c.name = $1)
    delete from api_client where name = $1`

/** The simulated platform of this run does not know the account of an earlier run, so the console would show it as broken. */
async function removeEarlierRun(database: Database): Promise<void> {
  for (const { id } of await database.query<{ id: bigint }>(selectEarlierAccounts, [ORGANIZATION]))
    await removeAccount(database, id)
  for (const { id, name } of await listOrganizations(database, ALL_ORGANIZATIONS))
    if (name === ORGANIZATION)
      await database.transaction((transaction) => removeOrganization(transaction, ALL_ORGANIZATIONS, id))
  await database.query(deleteEarlierClients, [CLIENT])
}

async function addDemoAccount(database: Database, simulated: SimulatedAccount): Promise<DemoAccount> {
  const organizationId = await addOrganization(database, ORGANIZATION)
  const account = await addAccount(database, organizationId, {
    name: simulated.displayName,
    channel_id: simulated.channelId,
    channel_secret: simulated.channelSecret,
    channel_access_token: simulated.channelAccessToken,
    bot_user_id: simulated.botUserId,
    basic_id: simulated.basicId,
    login_channel_ids: [simulated.loginChannelId],
  })
  const client = await addClient(database, CLIENT)
  const added = await addKey(database, client.id, account.id)
  if (added === null) throw new Error('the demo account was not added')
  const credentials = {
    'x-client-id': client.clientId,
    'x-client-secret': client.clientSecret,
    'x-api-key': added.key,
  }
  return { ...account, credentials }
}

/** A tool of each kind, which the simulated platform plays on loopback. */
async function addDemoEndpoints(
  database: Database,
  accountId: bigint,
  { url, receiver }: SimulatedPlatform,
): Promise<void> {
  const common = { accountId, events: null, condition: null, priority: 0, allowPrivateNetwork: true }
  const chatTool = {
    name: 'Chat tool',
    url: `${url}/receive/chat-tool`,
    format: 'line' as const,
    replies: true,
  }
  const crm = { name: 'CRM', url: `${url}/receive/crm`, format: 'members' as const, replies: false }
  const newBot = {
    ...chatTool,
    name: 'New bot',
    url: `${url}/receive/new-bot`,
    condition: REGULARS,
    priority: -1,
  }
  await addEndpoint(database, { ...common, ...chatTool }, [])
  await addEndpoint(database, { ...common, ...newBot }, [])
  const added = await addEndpoint(database, { ...common, ...crm }, [])
  receiver.endpointSecret = added?.secret ?? null
}

function waitForSignal(interrupt: () => void): Promise<void> {
  return new Promise((resolve) => {
    // npm forwards the signal that the terminal has already sent. The second one must not interrupt the shutdown.
    process.on('SIGINT', () => resolve()).on('SIGTERM', () => resolve())
    process.off('SIGINT', interrupt).off('SIGTERM', interrupt)
  })
}
