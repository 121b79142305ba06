/** The console under load: watchers, searches that find nothing, a large task, and what they cost the intake of events. */
import { randomUUID } from 'node:crypto'
import { setTimeout as sleep } from 'node:timers/promises'
import { expect, it } from 'vitest'
import { signedIn, startConsole } from '../support/console.ts'
import { addTenant } from '../support/database.ts'
import { measureDeliveries, measureIdle } from '../support/delivery-latency.ts'
import { startJobRunner } from '../support/jobs.ts'
import { load, loadMembers } from '../support/load.ts'
import { MEASURED } from '../support/measured.ts'
import { setUpService } from '../support/service.ts'

const WATCHERS = 20

/** Changing them takes longer than the deliveries that are measured. */
const MEMBERS = 100_000
/** The 95th percentile is 12 ms on a quiet machine, with and without the task. */
const BESIDE_MAX_MS = 500

const { database, service, tenant } = await setUpService()
await loadMembers(database, tenant, MEMBERS, {
  ...{ display_name: `'Ann ' || i`, relationship: `'following'`, profile_due_at: 'null' },
})
const operator = await signedIn((await startConsole(database)).url)

it('delays no delivery by searches and watchers', async () => {
  const aloneMs = await measureIdle(service.url, tenant)
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
  const loadedMs = await measureDeliveries(service.url, tenant)
  isOver = true
  await Promise.all(running)
  console.log(
    `intake, 95th percentile: ${aloneMs.toFixed(1)} ms alone, ${loadedMs.toFixed(1)} ms beside ${searches} searches and ${WATCHERS} watchers`,
  )
  // A delivery shares the processor with the console, but no connection and no lock.
  expect(loadedMs).toBeLessThan(5 * aloneMs + 50)
})

it('delays no delivery of the same or of another account by a change of many members', MEASURED, async () => {
  const other = await addTenant(database)
  await load(database, 'vacuum analyze audience_member')
  const { json } = await operator.post(`/api/accounts/${tenant.accountId}/audience/tag`, {
    ...{
      filters: { relationship: 'following' },
      addTags: [randomUUID()],
      removeTags: [],
      expectedCount: MEMBERS,
    },
  })
  const runner = startJobRunner(database)
  const beside = [await measureDeliveries(service.url, tenant), await measureDeliveries(service.url, other)]
  await operator.post(`/api/jobs/${json.job.id}/cancel`)
  await runner.stop()
  for (const ms of beside) expect(ms).toBeLessThan(BESIDE_MAX_MS)
})
