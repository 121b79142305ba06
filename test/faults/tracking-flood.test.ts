/** Anybody can send tracking events: a flood of them neither delays LINE's deliveries nor fills the disk. */
import { randomBytes } from 'node:crypto'
import { expect, it } from 'vitest'
import { randomUserId } from '../../tools/simulator/events.ts'
import { addTenant, type Tenant } from '../support/database.ts'
import { measureDeliveries, measureIdle } from '../support/delivery-latency.ts'
import { MEASURED } from '../support/measured.ts'
import { startPlatform } from '../support/platform.ts'
import { setUpProcess } from '../support/process.ts'

/** The default, per minute and address. */
const RATE_LIMIT = 6_000
/** Requests per second of 500 events: half of what the rate limit lets one address send. */
const FLOOD_PER_SECOND = 49
/** The account's budget in an hour: 60 minutes × 6,000 events. */
const EVENTS_PER_HOUR = 360_000
const GIB = 1024 ** 3

/** @param idToken a token whose signature is replaced in each event, so that each has to be verified */
const trackingBody = (trackingKey: string, idToken: string | null = null) => {
  const signed = idToken?.replace(/[^.]*$/, '')
  return JSON.stringify({
    writeKey: trackingKey,
    batch: Array.from({ length: 500 }, () => ({
      type: 'page',
      userId: randomUserId(),
      messageId: randomUserId(),
      ...(signed && { context: { idToken: signed + randomBytes(64).toString('base64url') } }),
    })),
  })
}

const randomAddress = () => `10.${randomBytes(3).join('.')}`

/** Sends until it is stopped. Returns the statuses of the answers. */
function flood(
  url: string,
  tenant: Tenant,
  idToken: string | null,
  hasManyAddresses: boolean,
): { stop: () => Promise<Map<number, number>> } {
  const statuses = new Map<number, number>()
  const answers: Array<Promise<void>> = []
  const timer = setInterval(() => {
    const sent = fetch(`${url}/api/tracking`, {
      method: 'POST',
      headers: { 'x-forwarded-for': hasManyAddresses ? randomAddress() : '192.0.2.1' },
      body: trackingBody(tenant.trackingKey, idToken),
    }).then(async (answer) => {
      await answer.arrayBuffer()
      statuses.set(answer.status, (statuses.get(answer.status) ?? 0) + 1)
    })
    answers.push(sent)
  }, 1_000 / FLOOD_PER_SECOND)
  return {
    stop: async () => {
      clearInterval(timer)
      await Promise.all(answers)
      return statuses
    },
  }
}

async function measureFlood({ hasTokens = false, addresses = 'one' } = {}) {
  const platform = await startPlatform()
  const { loginChannelId } = platform.account
  const limits = { TRUST_PROXY: 'loopback', RATE_LIMIT_MAX: String(RATE_LIMIT) }
  const { database, service, tenant: victim } = await setUpProcess({ LINE_API_URL: platform.url, ...limits })
  const tenant = await addTenant(database, { loginChannelIds: [loginChannelId] })
  const idToken = hasTokens ? await platform.login.idToken({ userId: 'U1', loginChannelId }) : null
  const idleMs = await measureIdle(service.url, victim)
  const flooding = flood(service.url, tenant, idToken, addresses === 'many')
  const floodedMs = await measureDeliveries(service.url, victim)
  const statuses = await flooding.stop()
  console.log(`p95 ${idleMs.toFixed(1)} ms idle, ${floodedMs.toFixed(1)} ms flooded; answers`, statuses)
  // Of a request whose tokens are all forged, no event can be read.
  expect(statuses.get(hasTokens ? 400 : 200)).toBeGreaterThan(0)
  await database.close()
  return { idleMs, floodedMs, statuses }
}

it("delays LINE's deliveries of another account by at most their own time and 50 ms", MEASURED, async () => {
  const { idleMs, floodedMs, statuses } = await measureFlood({})
  expect(statuses.get(429)).toBeGreaterThan(0)
  expect(floodedMs).toBeLessThan(2 * idleMs + 50)
})

it.each([
  ['without ID tokens', false],
  ['with a forged ID token in each event', true],
])(
  'from many addresses, %s: leaves deliveries far below the 2 s after which LINE disconnects',
  MEASURED,
  async (_, hasTokens) => {
    const { idleMs, floodedMs } = await measureFlood({ hasTokens, addresses: 'many' })
    // Half of the 2 s, and more on a machine that is slow without a flood.
    expect(floodedMs).toBeLessThan(1_000 + 10 * idleMs)
  },
)

it(
  "stores requests of as many events as 1 MiB holds, and leaves LINE's deliveries far below 2 s",
  MEASURED,
  async () => {
    const { database, service, tenant: victim } = await setUpProcess({ TRUST_PROXY: 'loopback' })
    const tenant = await addTenant(database)
    const event = '{"name":1,"userId":1}'
    const count = Math.floor((1024 ** 2 - 100) / (event.length + 1))
    const body = `{"writeKey":"${tenant.trackingKey}","batch":[${Array(count).fill(event).join(',')}]}`
    const idleMs = await measureIdle(service.url, victim)
    let isMeasured = false
    const measuring = measureDeliveries(service.url, victim).finally(() => {
      isMeasured = true
    })
    let requests = 0
    for (; !isMeasured; requests += 1) {
      // Of an address and a key that have sent nothing yet, because a request is larger than their budgets.
      const trackingKey = requests === 0 ? tenant.trackingKey : (await addTenant(database)).trackingKey
      const headers = { 'x-forwarded-for': randomAddress() }
      const init = { method: 'POST', headers, body: body.replace(tenant.trackingKey, trackingKey) }
      const answer = await fetch(`${service.url}/api/tracking`, init)
      expect(await answer.json()).toMatchObject({ accepted: count, duplicates: 0, rejected: [] })
    }
    const floodedMs = await measuring
    console.log(
      `p95 ${idleMs.toFixed(1)} ms idle, ${floodedMs.toFixed(1)} ms beside ${requests} requests of ${count} events`,
    )
    expect(await database.query('select from tracking_event')).toHaveLength(requests * count)
    await database.close()
    expect(floodedMs).toBeLessThan(1_000 + 10 * idleMs)
  },
)

it('costs less than 1 GiB of disk an hour for each address', async () => {
  const { database, tenant, service } = await setUpProcess()
  const sizeOf = async () => {
    const [row] = await database.query<{ bytes: bigint }>(
      'select pg_database_size(current_database()) as bytes',
    )
    return Number(row?.bytes)
  }
  const before = await sizeOf()
  let events = 0
  for (let answer = await fetchOnce(); answer.status === 200; answer = await fetchOnce()) events += 500
  async function fetchOnce() {
    return fetch(`${service.url}/api/tracking`, { method: 'POST', body: trackingBody(tenant.trackingKey) })
  }
  const bytesPerEvent = ((await sizeOf()) - before) / events
  console.log(`${events} events of an address in a minute, ${Math.round(bytesPerEvent)} bytes each`)
  expect(events).toBe(6_000)
  // Payloads add at most the budget of bytes, 4 MiB a minute.
  expect(bytesPerEvent * EVENTS_PER_HOUR + 60 * 4 * 1024 ** 2).toBeLessThan(GIB)
})
