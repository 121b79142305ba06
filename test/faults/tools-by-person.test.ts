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
/** SEED=… repeats the choices of a run. */
const SEED = Number(process.env.SEED ?? Date.now() % 2 ** 31)
let state = SEED
/** Mulberry32. */
function random(): number {
  state = (state + 0x6d2b79f5) | 0
  let mixed = Math.imul(state ^ (state >>> 15), 1 | state)
  mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed
  return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32
}
const pick = <T>(items: readonly T[]): T => items[Math.floor(random() * items.length)] as T
const someTags = () => TAGS.filter(() => random() < 0.5)

interface Tool {
  id: bigint
  condition: { tagsAny?: string[]; tagsNone?: string[] } | null
  replies: boolean
  priority: number
}

const randomSettings = (): Omit<Tool, 'id'> => ({
  condition: pick([null, { tagsAny: [pick(TAGS)] }, { tagsNone: [pick(TAGS)] }, { tagsAny: TAGS }]),
  replies: random() < 0.7,
  priority: pick([-1, 0, 0, 1]),
})

async function addTool(tenant: Tenant, settings: Omit<Tool, 'id'>): Promise<Tool> {
  const row = { channel_oa_id: tenant.accountId, url: 'https://tool.example', ...settings }
  return { ...settings, id: await insertRow(database, 'endpoint', row) }
}

const setTags = (tenant: Tenant, user: string, tags: string[]) =>
  database.query('update audience_member set tags = $3 where channel_oa_id = $1 and user_id = $2', [
    tenant.accountId,
    user,
    tags,
  ])

const message = (user: string) => ({ ...textMessage(user, 'hello'), replyToken: 'token' })

type Delivery = {
  endpoint_id: bigint
  event_keys: string[]
  replies: boolean
  reply_keys: string[] | null
}

/**
 * By event: the endpoints that receive it, and those that have its token. Joined here, because the planner expects one row of an account
 * that it has no statistics of, and joins 25,000 events with 75,000 keys row by row.
 */
async function routesOf(tenant: Tenant) {
  const events = await load<{ key: string; user_id: string }>(
    database,
    'select key, user_id from event where channel_oa_id = $1 and user_id is not null order by id',
    [tenant.accountId],
  )
  const deliveries = await load<Delivery>(
    database,
    'select endpoint_id, event_keys, replies, reply_keys from endpoint_delivery where channel_oa_id = $1 order by endpoint_id',
    [tenant.accountId],
  )
  const routes = events.map((event) => ({ ...event, receivers: [] as bigint[], repliers: [] as bigint[] }))
  const routeOf = new Map(routes.map((route) => [route.key, route]))
  for (const { endpoint_id, event_keys, replies, reply_keys } of deliveries) {
    const withToken = new Set(reply_keys ?? event_keys)
    for (const key of event_keys) {
      const route = routeOf.get(key)
      route?.receivers.push(endpoint_id)
      if (replies && withToken.has(key)) route?.repliers.push(endpoint_id)
    }
  }
  return routes
}

it('gives 40,000 reply tokens once each, while people, endpoints and sessions change and deliveries repeat', async () => {
  const tenants = await Promise.all(Array.from({ length: 4 }, () => addTenant(database)))
  const tools = new Map<Tenant, Tool[]>()
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
    while (sent < 40_000) {
      const events = Array.from({ length: 1 + Math.floor(random() * 100) }, () => message(pick(PEOPLE)))
      sent += events.length
      await Promise.all([deliver(tenant, events), deliver(tenant, random() < 0.3 ? last : events)])
      last = events
    }
  }
  const change = async (tenant: Tenant) => {
    while (!isOver) {
      await setTags(tenant, pick(PEOPLE), someTags())
      const { condition, replies, priority } = randomSettings()
      await database.query('update endpoint set condition = $2, replies = $3, priority = $4 where id = $1', [
        pick(tools.get(tenant) as Tool[]).id,
        condition && JSON.stringify(condition),
        replies,
        priority,
      ])
    }
  }
  const kill = async () => {
    for (let killed = 0; !isOver; ) {
      if (sent < (killed + 1) * 4_000) await new Promise((resolve) => setTimeout(resolve, 10))
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
    const routes = await routesOf(tenant)
    expect(routes.length).toBeGreaterThan(4_000)
    expect(routes.filter(({ repliers }) => repliers.length !== 1)).toEqual([])
  }
})
