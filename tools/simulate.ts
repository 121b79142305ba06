/** `oa-audience simulate`: LINE's platform on loopback, to try and to load this service with. */
import { once } from 'node:events'
import { type Command, InvalidArgumentError, Option } from 'commander'
import { accountOf, between, onDatabase, parseId, withJson } from '../src/cli/input.ts'
import { printJson, styled } from '../src/cli/output.ts'
import { Progress } from '../src/cli/progress.ts'
import { FatalError } from '../src/errors.ts'
import { addPeople, type Delivery, deliveries } from './simulator/deliveries.ts'
import { MISBEHAVIOURS, misbehaviourOf } from './simulator/misbehaviour.ts'
import {
  randomAccount,
  type SimulatedAccount,
  type SimulatedPlatform,
  simulatePlatform,
} from './simulator/platform.ts'

/** Deliveries without an answer yet; the platform would open more connections, one machine cannot. */
const IN_FLIGHT_MAX = 256
/** How long the platform waits for an answer. */
const ANSWER_TIMEOUT_MS = 2_000
const TICK_MS = 20

interface SimulateOptions {
  port: number
  account?: bigint
  people: number
  unverified?: boolean
  misbehave?: string
  deliverTo?: string
  rate: number
  count?: number
  maxEvents: number
  repeats: number
  shuffle: number
  json?: boolean
}

export function simulateCommand(program: Command): void {
  withJson(program.command('simulate'))
    .description(
      "run LINE's platform on loopback: its API, and signed deliveries if told where to (LINE forbids load tests through its own)",
    )
    .option('--port <port>', 'TCP port of its API; 0 takes a free one', between(0, 65_535), 4100)
    .option(
      '--account <id>',
      'take the credentials of this account; else new ones are made and shown',
      parseId,
    )
    .option('--people <count>', 'people who follow the account', between(1, 1_000_000), 1000)
    .option('--unverified', 'the account may not list its followers')
    .addOption(new Option('--misbehave <how>', 'answer wrongly').choices(Object.keys(MISBEHAVIOURS)))
    .option(
      '--deliver-to <address>',
      'send signed deliveries there, such as http://127.0.0.1:3000/api/line/1',
      address,
    )
    .option('--rate <n>', 'deliveries a second', between(1, 100_000), 10)
    .option('--count <n>', 'end after so many deliveries', between(1, 1_000_000_000))
    .option('--max-events <n>', 'events in one delivery, at most', between(1, 100), 5)
    .option('--repeats <share>', 'share of deliveries that come twice, 0 to 1', share, 0.1)
    .option(
      '--shuffle <n>',
      'deliveries among which the next is chosen; 1 keeps their order',
      between(1, 10_000),
      20,
    )
    .action(simulate)
}

async function simulate(options: SimulateOptions): Promise<void> {
  const { misbehave, deliverTo, json } = options
  if (options.count !== undefined && deliverTo === undefined)
    throw new FatalError('--count needs --deliver-to: the address that deliveries are sent to')
  const account =
    options.account === undefined ? randomAccount('Simulated account') : await storedAccount(options.account)
  const platform = await simulatePlatform(account, options.port).catch((error: Error & { code?: string }) => {
    throw new FatalError(`--port ${options.port} cannot be used (${error.code}): choose another one`)
  })
  platform.settings.isVerified = options.unverified !== true
  platform.settings.webhook = deliverTo === undefined ? null : { endpoint: deliverTo, active: true }
  platform.misbehave(misbehaviourOf(misbehave ?? ''))
  addPeople(platform, options.people)
  const interrupted = new AbortController()
  const stop = () => interrupted.abort()
  process.once('SIGINT', stop).once('SIGTERM', stop)
  if (!json) introduce(platform, options)
  else if (deliverTo === undefined) printJson({ url: platform.url, account: platform.account })
  const tally =
    deliverTo === undefined ? null : await deliverAll(platform, deliverTo, options, interrupted.signal)
  if (tally === null || options.count === undefined) {
    if (!interrupted.signal.aborted) await once(interrupted.signal, 'abort')
  }
  await platform.close()
  if (tally !== null) report(tally, json === true)
}

async function storedAccount(id: bigint): Promise<SimulatedAccount> {
  const account = await onDatabase((database) => accountOf(database, id))
  const { channelId, channelSecret, channelAccessToken, botUserId, basicId } = account
  if (channelSecret === null)
    throw new FatalError(`the account ${id} has no channel secret: nothing could be signed`)
  const made = randomAccount('Simulated account')
  return {
    ...made,
    channelSecret: channelSecret.reveal(),
    channelId: channelId ?? made.channelId,
    channelAccessToken: channelAccessToken?.reveal() ?? made.channelAccessToken,
    botUserId: botUserId ?? made.botUserId,
    basicId: basicId ?? made.basicId,
  }
}

function introduce({ url, account }: SimulatedPlatform, options: SimulateOptions): void {
  const dim = (text: string) => styled('dim', text)
  console.log(`LINE's API, simulated, at ${url}. Start the service with`)
  console.log(dim(`  LINE_API_URL=${url} npm start`))
  if (options.account === undefined) {
    console.log('and give it the account:')
    console.log(
      dim(
        [
          '  npx oa-audience accounts add --organization 1 --name Simulated',
          `--channel-id ${account.channelId} --channel-secret ${account.channelSecret}`,
          `--bot-user-id ${account.botUserId} --basic-id ${account.basicId}`,
        ].join(' '),
      ),
    )
    console.log('then, with its id, let people talk to it:')
    console.log(dim('  npx oa-audience simulate --account ID --deliver-to http://127.0.0.1:3000/api/line/ID'))
  }
  console.log('It answers wrongly when told to, and rightly again after an empty word:')
  console.log(dim(`  curl -X PUT ${url}/simulate/misbehaviour -d limit`))
  console.log('Ctrl-C ends it.')
}

interface Tally {
  deliveries: number
  /** events in them that had not been sent before */
  events: number
  repeatedDeliveries: number
  /** answers by status; `none` where there was none */
  answers: Record<string, number>
}

/** Keeps the rate whatever the answers take, as a platform does, up to a number of deliveries in flight. */
async function deliverAll(
  platform: SimulatedPlatform,
  address: string,
  { rate, count = Number.POSITIVE_INFINITY, json, ...traffic }: SimulateOptions,
  signal: AbortSignal,
): Promise<Tally> {
  const tally: Tally = { deliveries: 0, events: 0, repeatedDeliveries: 0, answers: {} }
  const progress = new Progress('deliveries', Number.isFinite(count) ? count : null)
  const remark = () => ` ${answersOf(tally)}`
  const source = deliveries(platform, traffic)
  const inFlight = new Set<Promise<void>>()
  const startedAtMs = performance.now()
  while (tally.deliveries < count && !signal.aborted) {
    const due = Math.min(count, Math.ceil(((performance.now() - startedAtMs) / 1000) * rate))
    while (tally.deliveries < due && inFlight.size < IN_FLIGHT_MAX && !signal.aborted) {
      const delivery = source.next().value
      tally.deliveries += 1
      if (delivery.isRepetition) tally.repeatedDeliveries += 1
      else tally.events += delivery.eventCount
      const sending: Promise<void> = send(address, delivery).then((status) => {
        tally.answers[status] = (tally.answers[status] ?? 0) + 1
        inFlight.delete(sending)
      })
      inFlight.add(sending)
    }
    if (!json) progress.show(tally.deliveries, remark())
    await new Promise((resolve) => setTimeout(resolve, TICK_MS))
  }
  await Promise.all(inFlight)
  if (!json) progress.end(tally.deliveries, remark())
  return tally
}

async function send(address: string, { body, signature }: Delivery): Promise<string> {
  try {
    const response = await fetch(address, {
      method: 'POST',
      headers: { 'content-type': 'application/json; charset=utf-8', 'x-line-signature': signature },
      body,
      signal: AbortSignal.timeout(ANSWER_TIMEOUT_MS),
    })
    await response.arrayBuffer()
    return String(response.status)
  } catch {
    return 'none'
  }
}

function report(tally: Tally, asJson: boolean): void {
  if (asJson) {
    printJson(tally)
    return
  }
  const { deliveries, repeatedDeliveries, events, answers } = tally
  console.log(`${deliveries} deliveries, ${repeatedDeliveries} of them repeated; ${events} distinct events`)
  console.log(`answered ${answersOf(tally)}`)
  if ('429' in answers) {
    console.log(
      '429: more than RATE_LIMIT_MAX from one address; RATE_LIMIT_SPARE_SIGNED=true spares the platform',
    )
  }
}

const answersOf = ({ answers }: Tally): string =>
  Object.entries(answers)
    .map(([status, n]) => `${status}: ${n}`)
    .join(', ')

function address(text: string): string {
  if (!/^https?:\/\//.test(text) || !URL.canParse(text))
    throw new InvalidArgumentError('It must be an http:// or https:// address.')
  return text
}

function share(text: string): number {
  const value = Number(text)
  if (text === '' || !(value >= 0 && value <= 1))
    throw new InvalidArgumentError('It must be a number from 0 to 1.')
  return value
}
