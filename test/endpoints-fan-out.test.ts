/** Accounts with more endpoints than a flush stores rows for: their deliveries reach the endpoints after the commit. */
import { expect, it, onTestFinished } from 'vitest'
import { Sender } from '../src/endpoints/sender.ts'
import { textMessage } from '../tools/simulator/events.ts'
import type { TextQueryable } from '../tools/text-database.ts'
import type { Tenant } from './support/database.ts'
import { startReceiver, startSending } from './support/endpoints.ts'
import { setUpService, startApp } from './support/service.ts'

const MANY = 60

/** Adds paused endpoints of the tenant, which receive nothing, and whose rows stay. */
const addPaused = (database: TextQueryable, tenant: Tenant, count: number) =>
  database.query(
    `insert into endpoint (channel_oa_id, url, status, allow_private_network)
     select $1, 'http://127.0.0.1:9/', 'paused', true from generate_series(1, $2::int)`,
    [tenant.accountId, count],
  )

const rowsPerEndpoint = (database: TextQueryable) =>
  database.query<{ rows: number; endpoints: number }>(
    `select rows, count(*)::int as endpoints
       from (select count(d.id)::int as rows from endpoint p
               left join endpoint_delivery d on d.channel_oa_id = p.channel_oa_id and d.endpoint_id = p.id
              group by p.id) counted
      group by rows order by rows`,
  )

it('sends a delivery to each of many endpoints once, with the event types and reply tokens of each', async () => {
  const sending = await startSending()
  const { url, received } = await startReceiver()
  for (let no = 0; no < MANY; no += 1) await sending.addEndpoint(`${url}/${no}`, { replies: no === 30 })
  await sending.addEndpoint(`${url}/follows`, { events: ['follow'] })
  const event = { ...textMessage('Umany', 'hello'), replyToken: 'token' }
  expect((await sending.service.deliver(sending.tenant, [event])).status).toBe(200)
  await sending.becomesQuiet()
  const sent = received.map(({ path, body }) => [path, JSON.parse(body).events[0].replyToken])
  expect(sent.sort()).toEqual(
    Array.from({ length: MANY }, (_, no) => [`/webhook/${no}`, no === 30 ? 'token' : undefined]).sort(),
  )
  expect(await sending.database.query('select from endpoint_delivery')).toEqual([])
})

/** An instance that is killed before it sends anything: it has no sender until `startSender`. */
async function startWithoutSender() {
  const { database, tenant } = await setUpService()
  const service = await startApp(database)
  const startSender = () => {
    const sender = new Sender(database, () => false)
    sender.start()
    onTestFinished(() => sender.stop())
  }
  const becomesQuiet = () => expect.poll(() => database.query('select from endpoint_fan_out')).toHaveLength(0)
  return { database, tenant, service, startSender, becomesQuiet }
}

it('stores one row per delivery in the flush, and any process makes the rows of the endpoints', async () => {
  const { database, tenant, service, startSender, becomesQuiet } = await startWithoutSender()
  await addPaused(database, tenant, MANY)
  for (const text of ['first', 'second']) {
    expect((await service.deliver(tenant, [textMessage('Umany', text)])).status).toBe(200)
  }
  expect(await database.query('select cardinality(endpoint_ids) as endpoints from endpoint_fan_out')).toEqual(
    [{ endpoints: MANY }, { endpoints: MANY }],
  )
  expect(await database.query('select from endpoint_delivery')).toEqual([])
  startSender()
  await becomesQuiet()
  expect(await rowsPerEndpoint(database)).toEqual([{ rows: 2, endpoints: MANY }])
  const [row] = await database.query(
    `select count(distinct keys)::int as orders
       from (select array_agg(event_keys order by id) as keys from endpoint_delivery group by endpoint_id) ordered`,
  )
  expect(row).toEqual({ orders: 1 })
})

it('sends what an instance stored and did not send, also to an endpoint whose id is 0 or negative', async () => {
  const { database, tenant, service, startSender } = await startWithoutSender()
  const { url, received } = await startReceiver()
  await database.query(
    `insert into endpoint (id, channel_oa_id, url, allow_private_network)
     select unnest('{0,-7}'::bigint[]), $1, $2, true`,
    [tenant.accountId, url],
  )
  await service.deliver(tenant, [textMessage('Uann', 'hello')])
  startSender()
  await expect.poll(() => received).toHaveLength(2)
})

it('leaves out endpoints that were added later or removed, and contents that were erased', async () => {
  const { database, tenant, service, startSender, becomesQuiet } = await startWithoutSender()
  const { url, received } = await startReceiver()
  await addPaused(database, tenant, MANY)
  const events = [textMessage('Uerased', 'a secret'), textMessage('Umany', 'hello')]
  await service.deliver(tenant, events)
  await database.query('delete from endpoint where id = (select min(id) from endpoint)')
  await database.query(
    `update endpoint set url = $1, status = 'active' where id = (select max(id) from endpoint)`,
    [url],
  )
  await addPaused(database, tenant, 1)
  const [member] = await database.query<{ id: bigint }>(
    `select id from audience_member where user_id = 'Uerased'`,
  )
  const erased = await service.erase(tenant, member?.id)
  expect(erased.status).toBe(204)
  startSender()
  await becomesQuiet()
  await expect
    .poll(() => received.map(({ body }) => JSON.parse(body).events))
    .toSatisfy((sent) => sent.length === 1 && sent[0].length === 1 && sent[0][0].message.text === 'hello')
  // The receiver's row is deleted, too. The removed endpoint and its row are gone.
  await expect
    .poll(() => rowsPerEndpoint(database))
    .toSatisfy((rows) => rows[0]?.endpoints === 2 && rows[1]?.endpoints === MANY - 2)
})

it('serves accounts of any id, because other programs choose theirs', async () => {
  const { database, tenant, startSender, becomesQuiet } = await startWithoutSender()
  const ids = [0n, -5n, -(2n ** 63n), 2n ** 63n - 1n]
  for (const accountId of ids) {
    await database.query(`insert into official_account (id, organization_id, name) values ($1, $2, 'any')`, [
      accountId,
      tenant.organizationId,
    ])
    await addPaused(database, { ...tenant, accountId }, 1)
  }
  await database.query(
    `insert into endpoint_fan_out (channel_oa_id, endpoint_ids, event_keys, kinds)
     select channel_oa_id, array[id], array[gen_random_uuid()], '{message}' from endpoint`,
  )
  startSender()
  await becomesQuiet()
  expect(await rowsPerEndpoint(database)).toEqual([{ rows: 1, endpoints: ids.length }])
})
