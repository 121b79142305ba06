/** The steps of the demo, in order: events come in, a client works with the audience, a person is erased. */
import { randomUUID } from 'node:crypto'
import { setTimeout as sleep } from 'node:timers/promises'
import { styled } from '../../src/cli/io.ts'
import { Secret } from '../../src/config/secret.ts'
import { signLine } from '../../src/line-api/line-signature.ts'
import { addPeople } from '../simulator/deliveries.ts'
import { lineBody, lineEvent, randomUserId, textMessage } from '../simulator/events.ts'
import type { SimulatedPlatform } from '../simulator/platform.ts'
import { describeReceipt } from '../simulator/receiver.ts'

export interface DemoAccount {
  id: bigint
  oaHash: string
  trackingKey: string
  credentials: { 'x-client-id': string; 'x-client-secret': string; 'x-api-key': string }
}

interface Demo {
  /** address of the service */
  url: string
  platform: SimulatedPlatform
  account: DemoAccount
  asJson: boolean
}

type Show = (title: string, call: Call) => Promise<string>

/** Of people with the tag that the client sets. */
export const SEGMENT = 'Regulars'
export const REGULARS = { tagsAll: ['vip'] }

const JSON_TYPE = { 'content-type': 'application/json' }

export async function runSteps(demo: Demo): Promise<void> {
  const show = presenter(demo)
  const [ann = '', ben = '', cat = ''] = addPeople(demo.platform, 3)
  await receiveDeliveries(demo, show, ann, ben)
  await receiveOtherSources(demo, show, ann, cat)
  const audience = await show(
    'A B2B client lists the audience of its scope',
    clientCall(demo, 'GET', '/api/audience?limit=10'),
  )
  await updateMember(demo, show, memberIdIn(audience, ann))
  await show(
    'She writes again. A new bot has the condition "tag vip", so it may reply, and the chat tool reads along',
    delivery(demo, [{ ...textMessage(ann, 'One more, please'), replyToken: randomUUID() }]),
  )
  await show(
    'A segment is such a condition with a name: the client lists who is in it',
    clientCall(demo, 'GET', `/api/audience?segment=${SEGMENT}`),
  )
  await verifyAccount(demo, show)
  await erasePerson(demo, show, memberIdIn(audience, ben), ben)
  await show('Without credentials, nobody can read anything', { method: 'GET', path: '/api/audience' })
  await showReceipts(demo)
}

async function receiveDeliveries(demo: Demo, show: Show, ann: string, ben: string): Promise<void> {
  const follow = delivery(demo, [lineEvent('follow', ann, { follow: { isUnblocked: false } })])
  await show('A person follows the account: LINE sends a signed delivery', follow)
  await show('LINE sends the same delivery again: it takes effect only once', follow)
  const groupJoin = lineEvent('memberJoined', null, {
    source: { type: 'group', groupId: `C${randomUUID().replaceAll('-', '')}` },
    joined: { members: [{ type: 'user', userId: randomUserId() }] },
  })
  await show(
    'One delivery names two people, and a third person who joined a group',
    delivery(demo, [textMessage(ann, 'สวัสดีค่ะ ☕'), lineEvent('follow', ben), groupJoin]),
  )
}

async function receiveOtherSources(
  { account, platform }: Demo,
  show: Show,
  ann: string,
  cat: string,
): Promise<void> {
  await show('The support chat reports that a conversation was resolved', {
    method: 'POST',
    path: `/api/mbox/callback/${account.oaHash}`,
    headers: { ...JSON_TYPE, 'x-chatwoot-delivery': randomUUID() },
    body: JSON.stringify({
      event: 'conversation_status_changed',
      id: 31,
      status: 'resolved',
      channel: 'Channel::Line',
      contact_inbox: { source_id: ann },
      updated_at: Date.now() / 1000,
    }),
  })
  const idToken = await platform.login.idToken({
    userId: cat,
    loginChannelId: platform.account.loginChannelId,
  })
  const view = () => ({
    type: 'page',
    messageId: randomUUID(),
    timestamp: new Date().toISOString(),
    properties: { path: '/menu' },
  })
  const batch = [
    { ...view(), userId: ann },
    { ...view(), context: { idToken } },
  ]
  await show(
    'Web pages report two views: one names the person, one inside LINE proves the person by an ID token',
    {
      method: 'POST',
      path: '/api/tracking',
      headers: JSON_TYPE,
      body: JSON.stringify({ writeKey: account.trackingKey, batch }),
    },
  )
}

async function updateMember(demo: Demo, show: Show, memberId: string): Promise<void> {
  await show(
    'The client tags a member and links its own customer number',
    clientCall(demo, 'PUT', `/api/audience/${memberId}`, {
      externalId: `customer-${demo.account.id}`,
      tags: ['vip'],
      attributes: { cups: 3 },
    }),
  )
}

async function verifyAccount(demo: Demo, show: Show): Promise<void> {
  const endpoint = `${demo.url}/api/line/${demo.account.id}`
  demo.platform.settings.webhook = { endpoint, active: true }
  await show(
    'The client verifies the account on the platform, which sends a test delivery',
    clientCall(demo, 'POST', '/api/line-oa/verify', { testWebhook: true }),
  )
}

async function erasePerson(demo: Demo, show: Show, memberId: string, userId: string): Promise<void> {
  await show('The client erases a person', clientCall(demo, 'DELETE', `/api/audience/${memberId}`))
  await show(
    'An older event about that person arrives late: it is accepted and does not bring them back',
    delivery(demo, [textMessage(userId, 'sent before the erasure', { timestamp: Date.now() - 60_000 })]),
  )
  await show('The person is gone', clientCall(demo, 'GET', `/api/audience?userId=${userId}`))
}

/** For the last change of the steps: it is sent within 2 s on an idle machine. */
const RECEIVED_WITHIN_MS = 30_000
const POLL_MS = 50
/** Three at the chat tool, two at the new bot. */
const LINE_DELIVERIES = 5
/** Earlier changes of a member may be sent as one. */
const LAST_MESSAGES = ['member.created', 'account.verified', 'member.erased']

/** What the two endpoints received meanwhile. */
async function showReceipts({ platform: { receipts }, asJson }: Demo): Promise<void> {
  const deadlineMs = performance.now() + RECEIVED_WITHIN_MS
  const isReceived = (type: string) => receipts.some(({ body }) => body.type === type)
  const isComplete = () =>
    LAST_MESSAGES.every(isReceived) &&
    receipts.filter(({ format }) => format === 'line').length >= LINE_DELIVERIES
  while (!isComplete() && performance.now() < deadlineMs) await sleep(POLL_MS)
  const titles = {
    line: "Tools behind this service received LINE's deliveries, signed as LINE signs them",
    members: 'A CRM received what changed in the audience, signed by Standard Webhooks',
  }
  for (const [format, title] of Object.entries(titles)) {
    const received = receipts.filter((receipt) => receipt.format === format)
    if (asJson) console.log(JSON.stringify({ title, received }))
    else {
      console.log(`\n${styled(['bold', 'cyan'], title)}`)
      for (const receipt of received) console.log(`  ${describeReceipt(receipt)}`)
    }
  }
}

function memberIdIn(audience: string, userId: string): string {
  const { data } = JSON.parse(audience) as { data: Array<{ id: string; userId: string }> }
  const member = data.find((candidate) => candidate.userId === userId)
  if (member === undefined) throw new Error(`the audience has no member ${userId}`)
  return member.id
}

function delivery({ platform, account }: Demo, events: unknown[]): Call {
  const body = lineBody(platform.account.botUserId, events)
  const signature = signLine(body, new Secret(platform.account.channelSecret))
  return {
    method: 'POST',
    path: `/api/line/${account.id}`,
    headers: { ...JSON_TYPE, 'x-line-signature': signature },
    body,
  }
}

function clientCall({ account }: Demo, method: string, path: string, body?: unknown): Call {
  const { credentials } = account
  if (body === undefined) return { method, path, headers: credentials }
  return { method, path, headers: { ...credentials, ...JSON_TYPE }, body: JSON.stringify(body) }
}

/** Returns a function that prints a numbered step, sends its request, prints the answer and returns it. */
function presenter({ url, asJson }: Demo): Show {
  let step = 0
  return async (title, call) => {
    step += 1
    const curl = curlLine(url, call)
    if (!asJson) {
      console.log(`\n${styled(['bold', 'cyan'], `${step}. ${title}`)}`)
      console.log(styled('dim', curl))
    }
    const { status, answer } = await send(url, call)
    if (asJson) {
      console.log(JSON.stringify({ step, title, curl, status, answer }))
    } else {
      const colour = status < 300 ? 'green' : 'yellow'
      console.log(`${styled(colour, String(status))} ${pretty(answer)}`)
    }
    return answer
  }
}

function pretty(answer: string): string {
  if (answer === '') return '(no content)'
  return answer.length < 100 ? answer : JSON.stringify(JSON.parse(answer), null, 2)
}

// A request that the demo both sends and prints as a curl command.

interface Call {
  method: string
  path: string
  headers?: Record<string, string>
  body?: string
}

interface CallResult {
  status: number
  answer: string
}

async function send(url: string, { method, path, headers = {}, body }: Call): Promise<CallResult> {
  const response = await fetch(url + path, { method, headers, ...(body === undefined ? {} : { body }) })
  return { status: response.status, answer: await response.text() }
}

/** A command to paste into a shell. Single quotes keep every byte as it is. */
function curlLine(url: string, { method, path, headers = {}, body }: Call): string {
  const quote = (text: string) => `'${text.replaceAll("'", `'\\''`)}'`
  const parts = ['curl', '-sS', '-X', method, quote(url + path)]
  for (const [name, value] of Object.entries(headers)) parts.push('-H', quote(`${name}: ${value}`))
  if (body !== undefined) parts.push('--data-binary', quote(body))
  return parts.join(' ')
}
