/** One API key sends the most expensive requests that it can, and nobody else notices. */
import { expect, it } from 'vitest'
import { lineEvent } from '../../tools/simulator/events.ts'
import { addTenant, createTestDatabase, openDatabase, type Tenant, urlOf } from '../support/database.ts'
import { load, loadMembers } from '../support/load.ts'
import { becomesWell, spawnService } from '../support/process.ts'
import { signedDelivery } from '../support/service.ts'

const MEMBERS = 800_000
const PARALLEL = 24
/** At least, and until each attacker has been answered twice. */
const PROBES = 12

it('serves health checks, other accounts and new accounts during 24 parallel searches of 800,000 members', async () => {
  const { database, connection } = await createTestDatabase()
  const direct = openDatabase(connection)
  const [loud, quiet] = [await addTenant(database), await addTenant(database)]
  // Triggers would take longer than the test itself, and no request of it needs what they store.
  await load(database, 'alter table audience_member disable trigger user')
  await loadMembers(database, loud, MEMBERS)
  await load(database, 'alter table audience_member enable trigger user')
  await loadMembers(database, quiet, 1)
  const [member] = await direct.query<{ id: bigint }>('select max(id) as id from audience_member')
  const service = await spawnService({
    DATABASE_URL: urlOf(connection),
    RATE_LIMIT_MAX: '0',
  })
  await becomesWell(service.url)

  let isOver = false
  const attack = new Figures()
  const attackers = Array.from({ length: PARALLEL }, async () => {
    while (!isOver) {
      await attack.of('attack', () =>
        fetch(`${service.url}/api/audience?updatedSince=2020-01-01T00:00:00Z&tag=nobody`, {
          headers: loud.headers,
        }),
      )
    }
  })
  const others = new Figures()
  for (let probe = 0; probe < PROBES || attack.count < 2 * PARALLEL; probe += 1) {
    const uncached = await addTenant(direct)
    await Promise.all([
      others.of('health', () => fetch(`${service.url}/api/health`)),
      others.of('list', () => fetch(`${service.url}/api/audience`, { headers: quiet.headers })),
      others.of('update', () => update(service.url, quiet, member?.id as bigint, probe)),
      others.of('new account', () => {
        const { path, init } = signedDelivery(uncached, [lineEvent('follow', `U${probe}`)])
        return fetch(service.url + path, init)
      }),
    ])
  }
  isOver = true
  await Promise.all(attackers)
  console.log(`${PARALLEL} searches of ${MEMBERS} members: ${attack.text()}\nmeanwhile: ${others.text()}`)
  expect([...others.statuses()]).toEqual([200])
})

function update(url: string, { headers }: Tenant, id: bigint, probe: number): Promise<Response> {
  return fetch(`${url}/api/audience/${id}`, {
    method: 'PUT',
    headers: { ...headers, 'content-type': 'application/json' },
    body: JSON.stringify({ tags: [`tag ${probe}`] }),
  })
}

/** Statuses and times of requests by kind. */
class Figures {
  readonly #answers: Array<{ kind: string; status: number; ms: number }> = []

  async of(kind: string, send: () => Promise<Response>): Promise<void> {
    const startedAtMs = performance.now()
    const response = await send()
    await response.arrayBuffer()
    this.#answers.push({ kind, status: response.status, ms: performance.now() - startedAtMs })
  }

  get count(): number {
    return this.#answers.length
  }

  statuses(): Set<number> {
    return new Set(this.#answers.map(({ status }) => status))
  }

  text(): string {
    const kinds = [...new Set(this.#answers.map(({ kind }) => kind))]
    return kinds.map((kind) => `${kind} ${this.#textOf(kind)}`).join('; ')
  }

  #textOf(kind: string): string {
    const answers = this.#answers.filter((answer) => answer.kind === kind)
    const counts = new Map<number, number>()
    for (const { status } of answers) counts.set(status, (counts.get(status) ?? 0) + 1)
    const slowest = Math.max(...answers.map(({ ms }) => ms))
    const statuses = [...counts].map(([status, count]) => `${count} × ${status}`).join(', ')
    return `${statuses}, at most ${Math.round(slowest)} ms`
  }
}
