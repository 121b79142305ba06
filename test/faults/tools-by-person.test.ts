/** Random endpoints with conditions: who receives an event, and that its reply token is given exactly once under kills and changes. */
import { expect, it } from 'vitest'
import { textMessage } from '../../tools/simulator/events.ts'
import { addTenant, createTestDatabase, type Tenant } from '../support/database.ts'
import { insertRow, load } from '../support/load.ts'
import { startApp } from '../support/service.ts'

/** No sender runs, so the rows of deliveries stay as the flush has written them. */
const { database } = await createTestDatabase()
const service = await startApp(database)

const TAGS = ['a', 'b', 'c']
const PEOPLE = Array.from({ length: 40 }, (_, no) => `U${String(no).padStart(32, '0')}`)
const pick = <T>(items: readonly T[]): T => items[Math.floor(Math.random() * items.length)] as T
const someTags = () => TAGS.filter(() => Math.random() < 0.5)

const randomSettings = () => ({
  condition: pick([null, { tagsAny: [pick(TAGS)] }, { tagsNone: [pick(TAGS)] }, { tagsAny: TAGS }]),
  replies: Math.random() < 0.7,
  priority: pick([-1, 0, 0, 1]),
})

type Settings = ReturnType<typeof randomSettings>

const addTool = ({ accountId }: Tenant, settings: Settings): Promise<bigint> =>
  insertRow(database, 'endpoint', { channel_oa_id: accountId, url: 'https://tool.example', ...settings })

const setTags = (tenant: Tenant, user: string, tags: string[]) =>
  database.query('update audience_member set tags = $3 where channel_oa_id = $1 and user_id = $2', [
    tenant.accountId,
    user,
    tags,
  ])

const message = (user: string) => ({ ...textMessage(user, 'hello'), replyToken: 'token' })

/**
 * By event: the number of endpoints that have its token. Counted here, because the planner expects one row of an account that it has no
 * statistics of, and joins the events with their keys row by row.
 */
async function repliersOf({ accountId }: Tenant): Promise<number[]> {
  const events = await load<{ key: string }>(
    database,
    'select key from event where channel_oa_id = $1 and user_id is not null',
    [accountId],
  )
  const replied = await load<{ key: string }>(
    database,
    'select unnest(coalesce(reply_keys, event_keys)) as key from endpoint_delivery where replies and channel_oa_id = $1',
    [accountId],
  )
  const counts = new Map(events.map(({ key }) => [key, 0]))
  for (const { key } of replied) if (counts.has(key)) counts.set(key, (counts.get(key) ?? 0) + 1)
  return [...counts.values()]
}

it('gives 20,000 reply tokens once each, while people, endpoints and sessions change and deliveries repeat', async () => {
  const tenants = await Promise.all(Array.from({ length: 4 }, () => addTenant(database)))
  const tools = new Map<Tenant, bigint[]>()
  for (const tenant of tenants) {
    // Everybody matches this one, so no event is without an endpoint that may reply.
    await addTool(tenant, { condition: null, replies: true, priority: 5 })
    tools.set(tenant, await Promise.all(Array.from({ length: 3 }, () => addTool(tenant, randomSettings()))))
  }
  let sent = 0
  let isOver = false
  const deliver = async (tenant: Tenant, events: object[]) => {
    while ((await service.deliver(tenant, events)).status !== 200);
  }
  const sender = async (tenant: Tenant) => {
    let last: object[] = []
    while (sent < 20_000) {
      const events = Array.from({ length: 1 + Math.floor(Math.random() * 100) }, () => message(pick(PEOPLE)))
      sent += events.length
      await Promise.all([deliver(tenant, events), deliver(tenant, Math.random() < 0.3 ? last : events)])
      last = events
    }
  }
  const change = async (tenant: Tenant) => {
    while (!isOver) {
      await setTags(tenant, pick(PEOPLE), someTags())
      const { condition, replies, priority } = randomSettings()
      await database.query('update endpoint set condition = $2, replies = $3, priority = $4 where id = $1', [
        pick(tools.get(tenant) as bigint[]),
        condition && JSON.stringify(condition),
        replies,
        priority,
      ])
    }
  }
  const kill = async () => {
    for (let killed = 0; !isOver; ) {
      if (sent < (killed + 1) * 2_000) await new Promise((resolve) => setTimeout(resolve, 10))
      else {
        killed += 1
        await database.query(`select pg_terminate_backend(pid) from pg_stat_activity
                               where datname = current_database() and pid <> pg_backend_pid() and query ~ 'flush_events'`)
      }
    }
  }
  const changes = Promise.all([...tenants.map(change), kill()])
  await Promise.all(tenants.flatMap((tenant) => [sender(tenant), sender(tenant)]))
  isOver = true
  await changes
  for (const tenant of tenants) {
    const repliers = await repliersOf(tenant)
    expect(repliers.length).toBeGreaterThan(2_000)
    expect(repliers.filter((count) => count !== 1)).toEqual([])
  }
})
