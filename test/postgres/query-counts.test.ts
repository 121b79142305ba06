/** The cost of each request in statements and round trips to the database. */
import { expect, it } from 'vitest'
import { importEntries } from '../../src/audience/update-members.ts'
import { ENDPOINTS } from '../../src/operations/endpoints.ts'
import { perform, type Services } from '../../src/operations/operation.ts'
import { commandActor } from '../../src/operators/actor.ts'
import { lineEvent } from '../../tools/simulator/events.ts'
import { atEnd } from '../support/at-end.ts'
import { addTenant, createTestDatabase, markUsed, openDatabase } from '../support/database.ts'
import { insertRow, load } from '../support/load.ts'
import { startApp } from '../support/service.ts'
import { startWireLog } from '../support/wire-log.ts'

const { database: direct, connection } = await createTestDatabase()
const log = await startWireLog(connection)
const database = openDatabase(log.connection)
const service = await startApp(database)
const tenant = await addTenant(direct)
await markUsed(direct)
atEnd(() => log.close())

const list = (query: string) => service.call('GET', `/api/audience${query}`, { headers: tenant.headers })

const deliver = () => service.deliver(tenant, [lineEvent('message', 'U1')])

const put = (id: string, tag: string) => service.put(tenant, id, { tags: [tag] })

async function costOf(request: () => Promise<{ status: number }>) {
  Object.assign(log, { statements: [], roundTrips: 0 })
  expect((await request()).status).toBe(200)
  return { statements: log.statements.length, roundTrips: log.roundTrips }
}

async function addPausable() {
  const url = 'https://tool.example.com'
  const id = await insertRow(direct, 'endpoint', { channel_oa_id: tenant.accountId, url })
  const pause = async () => {
    await perform(ENDPOINTS.pause, { database, actor: commandActor(), services: {} as Services, id })
    return { status: 200 }
  }
  const status = async () => {
    const [row] = await load<{ status: string }>(direct, 'select status from endpoint where id = $1', [id])
    return row?.status
  }
  return { pause, status }
}

// The first request of each kind opens its session. The statements of that are not counted.
await deliver()
const { id } = (await list('')).json.data[0]
await put(id, 'a')

it.each(['', '?limit=1', '?userId=U1', '?tag=a&tag=b&q=ann', '?q=a', '?updatedSince=2020-01-01T00:00:00Z'])(
  'the cost of a request is a lookup and one statement for GET /api/audience%s',
  async (query) => {
    expect(await costOf(() => list(query))).toEqual({ statements: 2, roundTrips: 2 })
  },
)

it('the cost of a request is a lookup and one statement for an update', async () => {
  expect(await costOf(() => put(id, 'b'))).toEqual({ statements: 2, roundTrips: 2 })
})

it('the cost of a request is one lookup more for the first delivery to another account of a module channel', async () => {
  const { organizationId, channelSecret } = tenant
  const { botUserId } = await addTenant(direct, { organizationId, channelSecret })
  const deliverByModule = () => service.deliver({ ...tenant, botUserId }, [lineEvent('message', 'U1')])
  expect(await costOf(deliverByModule)).toEqual({ statements: 2, roundTrips: 2 })
  expect(await costOf(deliverByModule)).toEqual({ statements: 1, roundTrips: 1 })
})

it('the cost of a request is one round trip for a delivery', async () => {
  expect(await costOf(deliver)).toEqual({ statements: 1, roundTrips: 1 })
})

it('the cost of a request is three round trips for a change by an operator: begin and target, change, record and commit', async () => {
  await (await addPausable()).pause()
  const { pause, status } = await addPausable()
  expect(await costOf(pause)).toEqual({ statements: 5, roundTrips: 3 })
  expect(await status()).toBe('paused')
})

it('the cost of a request fails and changes nothing if the record, which is sent with the commit, cannot be written', async () => {
  const { pause, status } = await addPausable()
  await load(
    direct,
    "alter table activity add constraint refuse check (action <> 'endpoint.paused') not valid",
  )
  await expect(pause()).rejects.toThrow()
  expect(await status()).toBe('active')
})

it('the cost of a request is the same for a delivery to a misconfigured account, after the first one for the same bot', async () => {
  const deliverForOther = () =>
    service.deliver({ ...tenant, botUserId: 'Uother' }, [lineEvent('message', 'U1')])
  const deliverForThird = () =>
    service.deliver({ ...tenant, botUserId: 'Uthird' }, [lineEvent('message', 'U1')])
  // A lookup, the flush, and the flag.
  expect(await costOf(deliverForOther)).toEqual({ statements: 3, roundTrips: 3 })
  expect(await costOf(deliverForThird)).toEqual({ statements: 3, roundTrips: 3 })
  for (const deliverAgain of [deliverForOther, deliverForThird])
    expect(await costOf(deliverAgain)).toEqual({ statements: 1, roundTrips: 1 })
})

it('the cost of a request is the same for a delivery of each kind that is noted once, although a forged one comes before each', async () => {
  const forged = { ...tenant, channelSecret: 'forged', botUserId: 'Uforged' }
  const forge = () => service.deliver(forged, [lineEvent('message', 'U1')])
  const again = { deliveryContext: { isRedelivery: true } }
  const kinds = [
    () => service.deliver(tenant, [lineEvent('message', 'U1', again)]),
    () => service.deliver({ ...tenant, botUserId: 'Ufourth' }, [lineEvent('message', 'U1')]),
  ]
  for (const deliverKind of kinds) {
    await deliverKind()
    expect((await forge()).status).toBe(403)
    expect(await costOf(deliverKind)).toEqual({ statements: 1, roundTrips: 1 })
  }
})

it('the cost of a request is one lookup and one transaction for a batch of an import', async () => {
  const { accountId, organizationId } = tenant
  const entries = [
    { userId: 'U1', tags: ['c'] },
    { id: '404', tags: ['c'] },
  ]
  const importBatch = async () => {
    const [refusal] = await importEntries(
      database,
      database.pipeline,
      { keyId: null, accountId, organizationId },
      entries,
    )
    return { status: refusal instanceof Error ? 500 : 200 }
  }
  await importBatch()
  // begin, lock, editor, updates, commit: pg sends them without waiting for responses.
  expect((await costOf(importBatch)).statements).toBe(6)
})
