/** Client libraries for Node work unmodified, with the settings of docs/api.md. */
import { describe, expect, it } from 'vitest'
import { randomUserId } from '../../tools/simulator/events.ts'
import { installedVersion, listedLibraries, settingFor } from '../support/client-libraries.ts'
import { addTenant } from '../support/database.ts'
import { setUpService } from '../support/service.ts'
import { trackedEvents } from '../support/tracked.ts'

const { database, service } = await setUpService()
const libraries = listedLibraries()

/** The value of a setting, with the exports of the library in scope. */
function evaluate<T>(setting: string, scope: Record<string, unknown>): T {
  return new Function(...Object.keys(scope), `return ${setting}`)(...Object.values(scope)) as T
}

/** The client of Segment's and RudderStack's library. */
interface ServerClient {
  identify(call: { userId: string; traits: object }): unknown
  track(call: { userId: string; event: string; properties: object }): unknown
  page(call: { userId: string; name: string }): unknown
  screen(call: { userId: string; name: string }): unknown
  group(call: { userId: string; groupId: string; traits: object }): unknown
  alias(call: { userId: string; previousId: string }): unknown
}
const SERVER_CALLS = ['identify', 'track', 'page', 'screen', 'group', 'alias']

function makeServerCalls(client: ServerClient, userId: string): void {
  client.identify({ userId, traits: { plan: 'gold' } })
  client.track({ userId, event: 'Ordered', properties: { value: 120 } })
  client.page({ userId, name: 'Menu' })
  client.screen({ userId, name: 'Menu' })
  client.group({ userId, groupId: 'g-1', traits: { employees: 4 } })
  client.alias({ userId, previousId: 'a-1' })
}

type Driver = (setting: string, TRACKING_KEY: string, userId: string) => Promise<string[]>

/** Each makes calls with a library and returns their names. It rejects if the library reports an error. */
const DRIVERS: Record<string, Driver> = {
  '@segment/analytics-node': async (setting, TRACKING_KEY, userId) => {
    const { Analytics } = await import('@segment/analytics-node')
    const client = evaluate<InstanceType<typeof Analytics>>(setting, { Analytics, TRACKING_KEY })
    const errors: unknown[] = []
    client.on('error', (error) => errors.push(error))
    makeServerCalls(client, userId)
    await client.closeAndFlush()
    expect(errors).toEqual([])
    return SERVER_CALLS
  },

  '@rudderstack/rudder-sdk-node': async (setting, TRACKING_KEY, userId) => {
    const { default: Analytics } = await import('@rudderstack/rudder-sdk-node')
    const client = evaluate<ServerClient & { flush(): Promise<unknown> }>(setting, {
      Analytics,
      TRACKING_KEY,
    })
    makeServerCalls(client, userId)
    await client.flush()
    return SERVER_CALLS
  },

  '@jitsu/js': async (setting, TRACKING_KEY, userId) => {
    const { jitsuAnalytics } = await import('@jitsu/js')
    const client = evaluate<ReturnType<typeof jitsuAnalytics>>(setting, { jitsuAnalytics, TRACKING_KEY })
    await client.identify(userId, { plan: 'gold' })
    await client.track('Ordered', { value: 120 })
    await client.page({ name: 'Menu' })
    await client.group('g-1', { employees: 4 })
    return ['identify', 'track', 'page', 'group']
  },
}

it('the table of client libraries lists exactly the libraries for Node that are tested here', () => {
  const listed = libraries.filter(({ runsIn }) => runsIn === 'Node').map(({ library }) => library)
  expect(listed.toSorted()).toEqual(Object.keys(DRIVERS).sort())
})

it('the table of client libraries lists the installed versions', () => {
  const listed = libraries.map(({ library, version }) => `${library} ${version}`)
  expect(listed).toEqual(libraries.map(({ library }) => `${library} ${installedVersion(library)}`))
})

describe.each(libraries.filter(({ runsIn }) => runsIn === 'Node'))('$library', (listed) => {
  it('delivers each of its calls once', async () => {
    const userId = randomUserId()
    const tenant = await addTenant(database)
    const calls = await DRIVERS[listed.library]?.(settingFor(listed, service), tenant.trackingKey, userId)
    const events = await trackedEvents(database, tenant, calls?.length ?? 1)
    expect(events.map(({ kind }) => kind).sort()).toEqual(calls?.toSorted())
    for (const event of events) expect(event.userId).toBe(userId)
    expect(new Set(events.map(({ payload }) => payload.messageId)).size).toBe(events.length)
  })
})

it('a batch of 1,000 small events of @segment/analytics-node arrives whole', async () => {
  const tenant = await addTenant(database)
  const { Analytics } = await import('@segment/analytics-node')
  const client = new Analytics({
    ...{ writeKey: tenant.trackingKey, host: service.url, path: '/api/tracking/v1/batch', flushAt: 1_000 },
  })
  const errors: unknown[] = []
  client.on('error', (error) => errors.push(error))
  for (let no = 0; no < 1_000; no += 1) client.track({ userId: 'U1', event: `e${no}` })
  await client.closeAndFlush()
  expect(errors).toEqual([])
  expect(await trackedEvents(database, tenant, 1_000)).toHaveLength(1_000)
})
