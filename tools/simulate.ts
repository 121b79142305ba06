/** `oa-audience simulate`: LINE's platform on loopback, for development and load tests. */
import { once } from 'node:events'
import { type Command, InvalidArgumentError, Option } from 'commander'
import { between, onDatabase, parseId, requireAccount, withJson } from '../src/cli/command.ts'
import { printJson, styled } from '../src/cli/io.ts'
import { Progress } from '../src/cli/progress.ts'
import { readSecrets } from '../src/cli/questions.ts'
import { systemReason } from '../src/config/system-reason.ts'
import { FatalError } from '../src/errors.ts'
import { addPeople } from './simulator/deliveries.ts'
import { MISBEHAVIOURS, misbehaviourOf } from './simulator/misbehaviour.ts'
import { type SimulatedPlatform, simulatePlatform } from './simulator/platform.ts'
import { describeReceipt, RECEIVER_PATH } from './simulator/receiver.ts'
import { sendDeliveries, type Tally } from './simulator/sender.ts'
import { randomAccount, type SimulatedAccount } from './simulator/state.ts'

interface SimulateOptions {
  port: number
  account?: bigint
  people: number
  unverified?: boolean
  misbehave?: string
  endpointSecret?: string
  deliverTo?: string
  rate: number
  count?: number
  maxEvents: number
  repeats: number
  shuffle: number
  hide: number
  json?: boolean
}

export function simulateCommand(program: Command): void {
  withJson(program.command('simulate'))
    .description(
      "simulate LINE's platform on loopback: its API, a receiver of outgoing webhooks and, with --deliver-to, signed deliveries",
    )
    .option('--port <port>', 'TCP port of the API; 0 takes a free one', between(0, 65_535), 4100)
    .option('--account <id>', 'use the credentials of this account (default: print random ones)', parseId)
    .option('--people <count>', 'number of followers', between(1, 1_000_000), 1000)
    .option('--unverified', 'do not let the account list its followers')
    .addOption(new Option('--misbehave <how>', 'send faulty responses').choices(Object.keys(MISBEHAVIOURS)))
    .option(
      '--deliver-to <address>',
      'send signed deliveries to this address, such as http://127.0.0.1:3000/api/line/1',
      parseAddress,
    )
    .option(
      '--endpoint-secret <secret>',
      'secret of an endpoint of the format members that sends to /receive; - reads it from standard input',
    )
    .option('--rate <n>', 'deliveries per second', between(1, 100_000), 10)
    .option('--count <n>', 'stop after this number of deliveries', between(1, 1_000_000_000))
    .option('--max-events <n>', 'maximum number of events in a delivery', between(1, 100), 5)
    .option('--repeats <share>', 'share of deliveries that are sent twice, 0 to 1', parseShare, 0.1)
    .option(
      '--shuffle <n>',
      'number of pending deliveries from which the next one is picked; 1 keeps their order',
      between(1, 10_000),
      20,
    )
    .option('--hide <share>', 'share of deliveries that are not sent, 0 to 1', parseShare, 0)
    .action(simulate)
}

async function simulate(given: SimulateOptions): Promise<void> {
  const options = await readSecrets({ ...given }, { endpointSecret: '--endpoint-secret' })
  const { deliverTo, count, json } = options
  if (count !== undefined && deliverTo === undefined)
    throw new FatalError('--count needs --deliver-to, the address that receives the deliveries')
  const platform = await startPlatform(options)
  const interrupted = new AbortController()
  const stop = () => interrupted.abort()
  process.once('SIGINT', stop).once('SIGTERM', stop)
  if (!json) introduce(platform, options)
  else if (deliverTo === undefined) printJson({ url: platform.url, account: platform.account })
  const tally =
    deliverTo === undefined ? null : await deliver(platform, deliverTo, options, interrupted.signal)
  if (count === undefined && !interrupted.signal.aborted) await once(interrupted.signal, 'abort')
  await platform.close()
  if (tally !== null) report(tally, json === true)
}

async function startPlatform(options: SimulateOptions): Promise<SimulatedPlatform> {
  const { account: id, port, people, deliverTo, misbehave = '', unverified, endpointSecret, json } = options
  const account = id === undefined ? randomAccount('Simulated account') : await storedAccount(id)
  const platform = await simulatePlatform(account, port).catch((error: Error & { code?: string }) => {
    throw new FatalError(
      `port ${port} cannot be used: ${systemReason(error)}. Choose another one with --port.`,
    )
  })
  platform.settings.isVerified = unverified !== true
  platform.settings.webhook = deliverTo === undefined ? null : { endpoint: deliverTo, active: true }
  platform.misbehave(misbehaviourOf(misbehave))
  platform.receiver.endpointSecret = endpointSecret ?? null
  platform.receiver.onReceipt = (receipt) =>
    json ? printJson(receipt) : console.log(`received  ${describeReceipt(receipt)}`)
  addPeople(platform, people)
  return platform
}

/** Columns that the account lacks are random. */
async function storedAccount(id: bigint): Promise<SimulatedAccount> {
  const account = await onDatabase((database) => requireAccount(database, id))
  if (account.channelSecret === null)
    throw new FatalError(
      `account ${id} has no channel secret to sign deliveries with. Run "oa-audience accounts update ${id} --channel-secret -".`,
    )
  const random = randomAccount('Simulated account')
  return {
    displayName: random.displayName,
    channelSecret: account.channelSecret.reveal(),
    channelId: account.channelId ?? random.channelId,
    loginChannelId: account.loginChannelIds[0] ?? random.loginChannelId,
    channelAccessToken: account.channelAccessToken?.reveal() ?? random.channelAccessToken,
    botUserId: account.botUserId ?? random.botUserId,
    basicId: account.basicId ?? random.basicId,
  }
}

function introduce({ url, account }: SimulatedPlatform, options: SimulateOptions): void {
  const command = (line: string) => console.log(styled('dim', `  ${line}`))
  console.log(`The simulated LINE API is at ${url}. Start the service with:`)
  command(`LINE_API_URL=${url} npm start`)
  if (options.account === undefined) {
    console.log('Add the simulated account, to an organization of `npx --no oa-audience organizations list`:')
    command(
      [
        `LINE_API_URL=${url} npx --no oa-audience accounts add --organization 1 --name Simulated`,
        `--channel-id ${account.channelId} --channel-secret ${account.channelSecret}`,
        `--bot-user-id ${account.botUserId} --basic-id ${account.basicId}`,
        `--login-channel-ids ${account.loginChannelId}`,
      ].join(' '),
    )
    console.log('Then send deliveries to it, with the id that was printed:')
    command('npx --no oa-audience simulate --account ID --deliver-to http://127.0.0.1:3000/api/line/ID')
  }
  console.log('Make the API send faulty responses. An empty body restores the documented ones:')
  command(`curl -X PUT ${url}/simulate/misbehaviour -d limit`)
  console.log(
    'Get an ID token that proves a person to the tracking route, and sign further ones with a new key:',
  )
  command(`curl ${url}/simulate/id-token -d userId=U4af4980629f0d2d3a1a2a3a4a5a6a7a8`)
  command(`curl -X PUT ${url}/simulate/login-keys`)
  console.log(
    'Receive outgoing webhooks, which are verified. Also /receive/slow, error, limit, gone, silent:',
  )
  command(
    `npx --no oa-audience endpoints add --account ${options.account ?? 'ID'} --url ${url}${RECEIVER_PATH} --allow-private-network`,
  )
  console.log('Press Ctrl-C to stop.')
}

async function deliver(
  platform: SimulatedPlatform,
  address: string,
  { rate, count, maxEvents, repeats, shuffle, hide, json }: SimulateOptions,
  signal: AbortSignal,
): Promise<Tally> {
  const progress = json ? null : new Progress('deliveries', count ?? null)
  const show = (tally: Tally) => progress?.show(tally.deliveries, ` ${answersText(tally)}`)
  const options = {
    rate,
    count: count ?? Number.POSITIVE_INFINITY,
    maxEvents,
    repeats,
    shuffle,
    hidden: hide,
  }
  try {
    return await sendDeliveries(platform, address, options, show, signal)
  } finally {
    progress?.end()
  }
}

function report(tally: Tally, asJson: boolean): void {
  if (asJson) {
    printJson(tally)
    return
  }
  const { deliveries, repeatedDeliveries, hiddenDeliveries, events, answers } = tally
  console.log(`${deliveries} deliveries, ${repeatedDeliveries} of them repeated; ${events} distinct events`)
  if (hiddenDeliveries > 0) console.log(`${hiddenDeliveries} of them were not sent`)
  console.log(`responses by status: ${answersText(tally)}`)
  if ('429' in answers) {
    console.log(
      '429: one address sent more than RATE_LIMIT_MAX requests. Set RATE_LIMIT_SPARE_SIGNED=true to exempt signed deliveries.',
    )
  }
}

const answersText = ({ answers }: Tally): string =>
  Object.entries(answers)
    .map(([status, count]) => `${status}: ${count}`)
    .join(', ')

function parseAddress(text: string): string {
  if (!/^https?:\/\//.test(text) || !URL.canParse(text))
    throw new InvalidArgumentError('It must be an http:// or https:// address.')
  return text
}

function parseShare(text: string): number {
  const value = Number(text)
  if (text === '' || !(value >= 0 && value <= 1))
    throw new InvalidArgumentError('It must be a number from 0 to 1.')
  return value
}
