/** A large job of the console, and what it costs the intake of events. */
import { randomUUID } from 'node:crypto'
import { expect, it } from 'vitest'
import { signedIn, startConsole } from '../support/console.ts'
import { addTenant } from '../support/database.ts'
import { measureDeliveries } from '../support/delivery-latency.ts'
import { startJobRunner } from '../support/jobs.ts'
import { load, loadMembers } from '../support/load.ts'
import { MEASURED } from '../support/measured.ts'
import { setUpService } from '../support/service.ts'

/** Changing them takes longer than the deliveries that are measured. */
const MEMBERS = 100_000
/** The 95th percentile is 12 ms on a quiet machine, with and without the job. */
const BESIDE_MAX_MS = 500

const { database, service, tenant } = await setUpService()
await loadMembers(database, tenant, MEMBERS, {
  ...{ display_name: `'Ann ' || i`, relationship: `'following'`, profile_due_at: 'null' },
})
const operator = await signedIn((await startConsole(database)).url)

it('delays no delivery of the same or of another account by a change of many members', MEASURED, async () => {
  const other = await addTenant(database)
  await load(database, 'vacuum analyze audience_member')
  const { json } = await operator.post(`/api/accounts/${tenant.accountId}/tag-members`, {
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
