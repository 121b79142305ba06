/** One API key sends the most expensive requests that it can, and nobody else notices. */
import { expect, it } from 'vitest'
import { lineEvent } from '../../tools/simulator/events.ts'
import { addTenant, openDatabase, type Tenant } from '../support/database.ts'
import { load, loadMembers } from '../support/load.ts'
import { setUpProcess } from '../support/process.ts'
import { sendDelivery } from '../support/service.ts'

const MEMBERS = 800_000
const PARALLEL = 24
/** At least, and until each attacker has been answered twice. */
const PROBES = 12

it('serves health checks, other accounts and new accounts during 24 parallel searches of 800,000 members', async () => {
  const { database, connection, service, tenant: loud } = await setUpProcess()
  const direct = openDatabase(connection)
  const quiet = await addTenant(database)
  // Triggers would take longer than the test itself, and no request of it needs what they store.
  await load(database, 'alter table audience_member disable trigger user')
  await loadMembers(database, loud, MEMBERS)
  await load(database, 'alter table audience_member enable trigger user')
  await loadMembers(database, quiet, 1)
  const [member] = await direct.query<{ id: bigint }>('select max(id) as id from audience_member')

  let isOver = false
  let attacks = 0
  const attackers = Array.from({ length: PARALLEL }, async () => {
    while (!isOver) {
      const path = '/api/audience?updatedSince=2020-01-01T00:00:00Z&tag=nobody'
      await (await fetch(service.url + path, { headers: loud.headers })).arrayBuffer()
      attacks += 1
    }
  })
  const statuses = new Set<number>()
  let slowestMs = 0
  const measure = async (sent: Promise<Response>) => {
    const startedAtMs = performance.now()
    const response = await sent
    await response.arrayBuffer()
    statuses.add(response.status)
    slowestMs = Math.max(slowestMs, performance.now() - startedAtMs)
  }
  for (let probe = 0; probe < PROBES || attacks < 2 * PARALLEL; probe += 1) {
    const uncached = await addTenant(direct)
    await Promise.all([
      measure(fetch(`${service.url}/api/health`)),
      measure(fetch(`${service.url}/api/audience`, { headers: quiet.headers })),
      measure(update(service.url, quiet, member?.id as bigint, probe)),
      measure(sendDelivery(service.url, uncached, [lineEvent('follow', `U${probe}`)])),
    ])
  }
  isOver = true
  await Promise.all(attackers)
  console.log(`${attacks} searches of ${MEMBERS} members; others: at most ${Math.round(slowestMs)} ms`)
  expect([...statuses]).toEqual([200])
})

function update(url: string, { headers }: Tenant, id: bigint, probe: number): Promise<Response> {
  return fetch(`${url}/api/audience/${id}`, {
    method: 'PUT',
    headers: { ...headers, 'content-type': 'application/json' },
    body: JSON.stringify({ tags: [`tag ${probe}`] }),
  })
}
