/** The console under load: watchers that do not read, searches that find nothing, and what both cost the intake of events. */
import { request as sendRequest } from 'node:http'
import type { Socket } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import { expect, it, onTestFinished } from 'vitest'
import { lineEvent, randomUserId } from '../../tools/simulator/events.ts'
import { type Operator, type RunningConsole, signedIn, startConsole } from '../support/console.ts'
import { load, loadMembers } from '../support/load.ts'
import { setUpService } from '../support/service.ts'

/** As many as an instance accepts. */
const WATCHERS = 20
/** The backlog of a slow reader, 256 KiB, and a frame of 500 events that was written just before. */
const UNREAD_MAX_BYTES = 512 * 1024
/** Without the limit, 20 frames of 500 events, 150 KB each, would wait for every watcher: 3 MB. */
const FLOODED_EVENTS = 10_000

const { database, service, tenant } = await setUpService()

/** Opens a live tail. `isRead` false: its bytes stay in the connection. */
async function watch({ url, cookie }: Operator, isRead: boolean): Promise<void> {
  await new Promise<void>((resolve, reject) => {
    const request = sendRequest(`${url}/api/live`, { headers: { cookie }, agent: false }, (response) => {
      if (isRead) response.resume()
      else response.pause()
      resolve()
    })
    request.on('error', reject).end()
    onTestFinished(() => void request.destroy())
  })
}

function socketsOf({ app }: RunningConsole): Set<Socket> {
  const sockets = new Set<Socket>()
  app.server.on('connection', (socket) => {
    sockets.add(socket)
    socket.once('close', () => sockets.delete(socket))
  })
  return sockets
}

const flood = (count: number) =>
  load(
    database,
    `insert into event (channel_oa_id, source, kind, key, occurred_at, user_id)
     select $1, 'line', 'message', gen_random_uuid(), now(), repeat('U', 200) from generate_series(1, $2::int)`,
    [tenant.accountId, count],
  )

it('holds little memory for watchers that do not read', async () => {
  const running = await startConsole(database)
  const sockets = socketsOf(running)
  const operator = await signedIn(running.url)
  for (let i = 0; i < WATCHERS; i += 1) await watch(operator, false)
  const unread = () => [...sockets].map(({ writableLength }) => writableLength)
  let most = 0
  for (let sent = 0; sent < FLOODED_EVENTS * 4; sent += 500) {
    await flood(500)
    await sleep(500)
    most = Math.max(most, ...unread())
  }
  expect(unread().length).toBeGreaterThanOrEqual(WATCHERS)
  expect(most).toBeGreaterThan(0)
  expect(most).toBeLessThan(UNREAD_MAX_BYTES)
  expect((await operator.get('/api/clients')).status).toBe(200)
})

/** The 95th percentile of deliveries that are sent one every 20 ms. */
async function measureIntake(): Promise<number> {
  const latenciesMs: number[] = []
  for (let i = 0; i < 200; i += 1) {
    const startedAtMs = performance.now()
    const answer = await service.deliver(tenant, [lineEvent('message', randomUserId())])
    latenciesMs.push(performance.now() - startedAtMs)
    expect(answer.status).toBe(200)
    await sleep(20)
  }
  return latenciesMs.toSorted((a, b) => a - b)[Math.floor(latenciesMs.length * 0.95)] as number
}

it('delays no delivery by searches and watchers', async () => {
  await loadMembers(database, tenant, 300_000, { display_name: `'Ann ' || i`, profile_due_at: 'null' })
  const { url } = await startConsole(database)
  const operator = await signedIn(url)
  await measureIntake()
  const aloneMs = await measureIntake()
  for (let i = 0; i < WATCHERS; i += 1) await watch(operator, true)
  let isOver = false
  let searches = 0
  const search = async () => {
    for (let cursor = ''; !isOver; ) {
      const path = `/api/accounts/${tenant.accountId}/members?q=nobody${cursor && `&cursor=${cursor}`}`
      cursor = (await operator.get(path)).json.nextCursor ?? ''
      await operator.get('/api/fleet')
      searches += 1
    }
  }
  const searching = [search(), search(), search(), search()]
  await expect.poll(() => searches).toBeGreaterThan(20)
  const loadedMs = await measureIntake()
  isOver = true
  await Promise.all(searching)
  console.log(
    `intake, 95th percentile: ${aloneMs.toFixed(1)} ms alone, ${loadedMs.toFixed(1)} ms beside ${searches} searches and ${WATCHERS} watchers`,
  )
  // A delivery shares the processor with the console, but no connection and no lock.
  expect(loadedMs).toBeLessThan(5 * aloneMs + 50)
})
