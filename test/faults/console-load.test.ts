/** The console under load: watchers, searches that find nothing, and what both cost the intake of events. */
import { setTimeout as sleep } from 'node:timers/promises'
import { expect, it } from 'vitest'
import { lineEvent, randomUserId } from '../../tools/simulator/events.ts'
import { signedIn, startConsole } from '../support/console.ts'
import { loadMembers } from '../support/load.ts'
import { setUpService } from '../support/service.ts'

const WATCHERS = 20

const { database, service, tenant } = await setUpService()

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
  let isOver = false
  const watch = async () => {
    for (; !isOver; await sleep(1_000)) await operator.get('/api/events')
  }
  let searches = 0
  const search = async () => {
    for (let cursor = ''; !isOver; ) {
      const path = `/api/accounts/${tenant.accountId}/members?q=nobody${cursor && `&cursor=${cursor}`}`
      cursor = (await operator.get(path)).json.nextCursor ?? ''
      await operator.get('/api/fleet')
      searches += 1
    }
  }
  const running = [search(), search(), search(), search(), ...Array.from({ length: WATCHERS }, watch)]
  await expect.poll(() => searches).toBeGreaterThan(20)
  const loadedMs = await measureIntake()
  isOver = true
  await Promise.all(running)
  console.log(
    `intake, 95th percentile: ${aloneMs.toFixed(1)} ms alone, ${loadedMs.toFixed(1)} ms beside ${searches} searches and ${WATCHERS} watchers`,
  )
  // A delivery shares the processor with the console, but no connection and no lock.
  expect(loadedMs).toBeLessThan(5 * aloneMs + 50)
})
