/**
 * A messaging platform on loopback that implements the part of LINE's API which this service calls. The demo, the tests and
 * `oa-audience simulate` use it, because LINE forbids load tests against its own platform. It can send faulty responses on demand.
 */
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { text } from 'node:stream/consumers'
import { answer, callerOf } from './line-api.ts'
import { MISBEHAVIOURS, type Misbehaviour, misbehaviourOf } from './misbehaviour.ts'
import { RECEIVER_PATH, type Receipt, type ReceiverSettings, receive } from './receiver.ts'
import { initialState, type PlatformState, randomAccount, type SimulatedAccount } from './state.ts'

type VisibleState = Omit<PlatformState, 'tokens' | 'testsAtMs'>

/** Its account is the first one. */
export interface SimulatedPlatform extends VisibleState {
  url: string
  /** Adds another official account to the platform. */
  addAccount: (account: SimulatedAccount) => VisibleState
  /** what arrived below /receive, where the platform plays a tool that receives outgoing webhooks */
  receipts: Receipt[]
  receiver: ReceiverSettings
  /** the last requests, such as `GET /v2/bot/info` */
  calls: string[]
  /** Replaces the responses to all requests that match `only`, by default all. Null restores the documented ones. */
  misbehave: (how: Misbehaviour | null, only?: RegExp) => void
  close: () => Promise<void>
}

/** Number of recorded requests, which bounds the memory of a long simulation. */
const CALLS_MAX = 10_000

export async function simulatePlatform(
  account = randomAccount('Corner Coffee'),
  port = 0,
): Promise<SimulatedPlatform> {
  const calls: string[] = []
  const fault: ActiveFault = { respond: null, only: /./ }
  const state = initialState(account)
  const states = [state]
  const receipts: Receipt[] = []
  const receiver: ReceiverSettings = {
    channelSecret: account.channelSecret,
    endpointSecret: null,
    onReceipt: () => undefined,
  }
  const server = createServer((request, response) => {
    const call = `${request.method} ${request.url}`
    if (control(call, state, fault, request, response)) return
    if (request.url?.startsWith(RECEIVER_PATH)) {
      receive(receipts, receiver, request, response).catch(() => response.destroy())
      return
    }
    calls.push(call)
    if (calls.length > CALLS_MAX) calls.shift()
    if (fault.respond !== null && fault.only.test(call)) fault.respond(request, response)
    else respond(states, request, response)
  })
  await new Promise<void>((resolve, reject) => {
    server.once('error', reject)
    server.listen(port, '127.0.0.1', resolve)
  })
  const { people, groups, settings, audiences, audienceSettings, statistics, login } = state
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    account,
    receipts,
    receiver,
    calls,
    people,
    groups,
    settings,
    audiences,
    audienceSettings,
    statistics,
    login,
    addAccount: (added) => {
      const addedState = { ...initialState(added), login: state.login }
      states.push(addedState)
      return addedState
    },
    misbehave: (how, only = /./) => {
      fault.respond = how
      fault.only = only
    },
    close: () =>
      new Promise((resolve) => {
        server.close(() => resolve())
        server.closeAllConnections()
      }),
  }
}

interface ActiveFault {
  /** null: requests are answered as documented */
  respond: Misbehaviour | null
  only: RegExp
}

/** Answers the calls that control the simulator itself. Returns false for any other call. */
function control(
  call: string,
  state: PlatformState,
  fault: ActiveFault,
  request: IncomingMessage,
  response: ServerResponse,
): boolean {
  switch (call) {
    case 'PUT /simulate/misbehaviour':
      setMisbehaviour(fault, request, response)
      return true
    case 'POST /simulate/id-token':
      issueIdToken(state, request, response)
      return true
    case 'PUT /simulate/login-keys':
      state.login.rotateKeys()
      response.writeHead(200).end('ID tokens are signed with a new key\n')
      return true
    default:
      return false
  }
}

function respond(states: PlatformState[], request: IncomingMessage, response: ServerResponse): void {
  const misbehaviour = callerOf(states, request)?.settings.misbehaviour ?? null
  if (misbehaviour !== null) {
    misbehaviour(request, response)
    return
  }
  answer(states, request).then(
    ({ status, body }) =>
      response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(body)),
    // The client disconnected before its request was complete.
    () => response.destroy(),
  )
}

/** The body is a form with `userId` and, for another channel than the account's, `loginChannelId`. The response is a token. */
function issueIdToken(
  { account, login }: PlatformState,
  request: IncomingMessage,
  response: ServerResponse,
): void {
  text(request)
    .then(async (body) => {
      const form = new URLSearchParams(body)
      const userId = form.get('userId')
      const loginChannelId = form.get('loginChannelId') ?? account.loginChannelId
      if (userId === null) response.writeHead(400).end('userId is missing: send userId=U4af…\n')
      else response.writeHead(200).end(await login.idToken({ userId, loginChannelId }))
    })
    .catch(() => response.destroy())
}

/** The body names a misbehaviour. An empty body restores the documented responses. */
function setMisbehaviour(fault: ActiveFault, request: IncomingMessage, response: ServerResponse): void {
  text(request).then(
    (body) => {
      const name = body.trim()
      const found = misbehaviourOf(name)
      if (found === null && name !== '') {
        const names = Object.keys(MISBEHAVIOURS).join(', ')
        response.writeHead(400).end(`unknown misbehaviour: send one of ${names}, or an empty body\n`)
        return
      }
      fault.respond = found
      response.writeHead(200).end(`${name || 'well-behaved'}\n`)
    },
    () => response.destroy(),
  )
}
