/** The list of all stored events, the way of an event, and failed events that are set aside. */
import { expect, it } from 'vitest'
import { listAllEvents } from '../../src/intake/list-events.ts'
import { findFleetAccount } from '../../src/watch/fleet-facts.ts'
import { lineEvent, randomUserId, textMessage, ulid } from '../../tools/simulator/events.ts'
import { runCommand } from '../support/command.ts'
import { addSignedIn, type Operator, startSignedIn } from '../support/console.ts'
import { addTenant, createTestDatabase, type Tenant } from '../support/database.ts'
import { endOf, startJobRunner } from '../support/jobs.ts'
import { addFailedEvent, load } from '../support/load.ts'
import { setUpService } from '../support/service.ts'

const { database, service, tenant, env } = await setUpService()
const { url, operator: owner } = await startSignedIn(database, { onJob: startJobRunner(database).wake })

type Event = { id: string; kind: string; userId: string; accountName: string; setAside: string | null }
type Page = { events: Event[]; next: string | null }

const read = async (query: string, operator: Operator = owner): Promise<Page> =>
  (await operator.get(`/api/events?${query}`)).json
const people = async (query: string, operator?: Operator) =>
  (await read(query, operator)).events.map(({ userId }) => userId)
const addEvents = ({ accountId }: Pick<Tenant, 'accountId'>, kind: string, count: number) =>
  load(
    database,
    `insert into event (channel_oa_id, source, kind, key, occurred_at)
     select $1, 'line', $2, gen_random_uuid(), now() from generate_series(1, $3::int)`,
    [accountId, kind, count],
  )

it('the list of events has all of them, the newest first, by account, kind, person and time', async () => {
  const other = await addTenant(database)
  const [ann, ben] = [randomUserId(), randomUserId()]
  await service.deliver(other, [lineEvent('follow', ann), textMessage(ben, 'hello')])
  await service.deliver(tenant, [lineEvent('follow', ann)])
  await service.track(other, [{ type: 'page', userId: ann, messageId: 'm-1' }])
  const account = `account=${other.accountId}`
  const all = await read(account)
  expect(all.events.map(({ kind }) => kind)).toEqual(['page', 'message', 'follow'])
  expect(all.next).toBeNull()
  expect(all.events[0]).toMatchObject({ accountName: 'test', userId: ann })
  expect(await people(`${account}&kind=message`)).toEqual([ben])
  expect((await read(`user=${ann}`)).events.map(({ kind }) => kind)).toEqual(['page', 'follow', 'follow'])
  expect(await people(`user=${ann}&${account}&kind=follow`)).toEqual([ann])
  const hour = 3_600_000
  const [before, after] = [-hour, hour].map((ms) => new Date(Date.now() + ms).toISOString())
  for (const filter of [account, `user=${ann}`, '']) {
    expect(await people(`${filter}&from=${before}&to=${after}`)).toContain(ann)
    expect(await people(`${filter}&to=${before}`)).toEqual([])
    expect(await people(`${filter}&from=${after}`)).toEqual([])
  }
})

it.each(['', 'account', 'kind=beacon', 'user=Upaged', 'status=failed'])(
  'the list of events has pages that stay where they are while events arrive: %s',
  async (filter) => {
    const other = await addTenant(database)
    const query = filter === 'account' ? `account=${other.accountId}` : filter
    const add = (count: number) =>
      load<{ id: bigint }>(
        database,
        `insert into event (channel_oa_id, source, kind, key, occurred_at, user_id, failure)
         select $1, 'line', 'beacon', gen_random_uuid(), now(), 'Upaged', $2 from generate_series(1, $3::int) returning id`,
        [other.accountId, filter === 'status=failed' ? 'broken' : null, count],
      )
    const ids = (await add(60)).map(({ id }) => String(id)).reverse()
    const first = await read(query)
    await add(1)
    const second = await read(`${query}&after=${first.next}`)
    const read60 = [...first.events, ...second.events].slice(0, 60)
    expect(read60.map(({ id }) => id)).toEqual(ids)
  },
)

it('the list of events examines a part of the events for a page, and continues with the next one', async () => {
  const other = await addTenant(database)
  await addEvents(other, 'rare', 1)
  await addEvents(other, 'beacon', 25_000)
  for (const filter of ['kind=rare', `kind=rare&account=${other.accountId}`]) {
    const first = await read(filter)
    expect(first).toEqual({ events: [], next: expect.any(String) })
    expect((await read(`${filter}&after=${first.next}`)).events).toHaveLength(1)
  }
})

it('the list of events skips missing ids, and times without an account', async () => {
  const { database: own } = await createTestDatabase()
  const { accountId } = await addTenant(own)
  const add = (id: bigint, age: string) =>
    load(
      own,
      `insert into event (id, channel_oa_id, source, kind, key, occurred_at, received_at)
       values ($1, $2, 'line', 'follow', gen_random_uuid(), now(), now() - $3::interval)`,
      [id, accountId, age],
    )
  await add(5n, '30 days')
  await add(3_000_000_000n, '2 days')
  await load(own, `select setval(pg_get_serial_sequence('event', 'id'), 90000000000)`)
  const list = (filter: object) => listAllEvents(own, null, filter, { before: null, limit: 50 })
  expect(await list({})).toMatchObject({ events: [{ id: 3_000_000_000n }, { id: 5n }], next: null })
  const to = new Date(Date.now() - 10 * 86_400_000).toISOString()
  expect(await list({ to })).toMatchObject({ events: [{ id: 5n }], next: null })
  expect(await list({ kind: 'none' })).toEqual({ events: [], next: null })
})

it('the list of events finds an event by its webhook event id, also without its account', async () => {
  const key = ulid(Date.now() - 3_600_000)
  await service.deliver(tenant, [textMessage('Ukey', 'late', { webhookEventId: key })])
  for (const filter of ['', `&account=${tenant.accountId}`])
    expect(await people(`key=${key}${filter}`)).toEqual(['Ukey'])
  expect(await people(`key=${key}&kind=follow`)).toEqual([])
  expect(await read(`key=${ulid(Date.now())}`)).toEqual({ events: [], next: null })
})

it('the list of events includes an event that commits after one with a greater id', async () => {
  const [slow, fast] = [randomUserId(), randomUserId()]
  const insert = `insert into event (channel_oa_id, source, kind, key, occurred_at, user_id)
                  values ($1, 'line', 'follow', gen_random_uuid(), now(), $2)`
  await database.session(async (session) => {
    await session.query('begin')
    await session.query(insert, [tenant.accountId, slow])
    await database.query(insert, [tenant.accountId, fast])
    expect((await people(''))[0]).toBe(fast)
    await session.query('commit')
  })
  expect((await people('')).slice(0, 2)).toEqual([fast, slow])
})

it('the list of events shows operators of many accounts what they see, and nothing of an organization that was taken from them', async () => {
  const other = await addTenant(database)
  for (let i = 0; i < 25; i += 1) await addTenant(database, { organizationId: other.organizationId })
  const organizationIds = [tenant.organizationId, other.organizationId]
  const operator = await addSignedIn({ url, database }, { role: 'viewer', organizationIds })
  const foreign = await addTenant(database)
  const key = ulid(Date.now())
  await service.deliver(other, [textMessage('Usecret', 'hidden', { webhookEventId: key })])
  await service.deliver(foreign, [textMessage('Usecret', 'hidden', { webhookEventId: key })])
  await addFailedEvent(database, other, 'a secret failure')
  await addFailedEvent(database, foreign, 'a secret failure')
  const filters = ['', 'user=Usecret', 'kind=message', `key=${key}`, 'failure=a+secret+failure']
  const seen = async () => {
    const pages = await Promise.all(filters.map((filter) => read(filter, operator)))
    return pages.map(({ events }) => {
      const ofOthers = events.filter(({ userId, kind }) => userId === 'Usecret' || kind === 'follow')
      return ofOthers.length
    })
  }
  expect((await seen()).map((count) => count > 0)).toEqual([true, true, true, true, true])
  expect((await seen()).slice(3)).toEqual([1, 1])
  await database.query('update operator set organization_ids = $2 where id = $1', [
    operator.id,
    [(await addTenant(database)).organizationId],
  ])
  expect(await seen()).toEqual([0, 0, 0, 0, 0])
  expect((await operator.get(`/api/events?account=${other.accountId}`)).status).toBe(404)
})

it('an event names its account and its person', async () => {
  const own = await addTenant(database)
  const ann = randomUserId()
  await service.deliver(own, [lineEvent('follow', ann)])
  await addEvents(own, 'join', 1)
  const names = { accountName: 'test', userId: ann, displayName: null as string | null }
  const named = async () => {
    const { events } = await read(`account=${own.accountId}&kind=follow`)
    const { event } = (await owner.get(`/api/events/${events[0]?.id}`)).json
    for (const each of [events[0], event]) expect(each).toMatchObject(names)
  }
  await named()
  await load(database, `update audience_member set display_name = 'Ann' where user_id = $1`, [ann])
  names.displayName = 'Ann'
  await named()
  const { events } = await read(`account=${own.accountId}&kind=join`)
  expect(events).toEqual([expect.objectContaining({ userId: null, displayName: null })])
})

it('an event shows what each endpoint made of it', async () => {
  const own = await addTenant(database)
  const endpoint = { account: String(own.accountId), url: 'https://tool.example/', format: 'line' }
  const add = (fields: object = {}) => owner.post('/api/endpoints', { ...endpoint, ...fields })
  for (const fields of [{}, { events: ['message'] }, { format: 'members' }])
    expect((await add(fields)).status).toBe(200)
  await service.deliver(own, [lineEvent('follow', randomUserId())])
  await add()
  const { events } = await read(`account=${own.accountId}`)
  const outcomes = async () => {
    const { json } = await owner.get(`/api/events/${events[0]?.id}`)
    return json.deliveries.map(({ outcome, attempts }: Record<string, unknown>) => [outcome, attempts])
  }
  const others = ['excluded', 'members', 'added_later'].map((outcome) => [outcome, null])
  const change = (set: string) =>
    load(
      database,
      `update endpoint_delivery set ${set} where channel_oa_id = $1 and event_keys is not null`,
      [own.accountId],
    )
  await change(`leased_until = '-infinity', attempts = 2`)
  expect(await outcomes()).toEqual([['pending', 2], ...others])
  await change('failed_at = now(), attempts = 9')
  expect(await outcomes()).toEqual([['failed', 9], ...others])
  await load(database, 'delete from endpoint_delivery where channel_oa_id = $1', [own.accountId])
  expect(await outcomes()).toEqual([['accepted', null], ...others])
  await load(database, 'update event set payload = null where id = $1', [events[0]?.id])
  expect((await outcomes())[0]).toEqual(['unknown', null])
})

const unapplied = async ({ accountId }: Tenant) =>
  (await findFleetAccount(database, null, accountId))?.unapplied

it('a failed event that is set aside no longer counts, is listed with the reason, and can be retried', async () => {
  const own = await addTenant(database)
  const userId = randomUserId()
  const id = await addFailedEvent(database, own, 'broken once', lineEvent('follow', userId))
  await addFailedEvent(database, own, 'broken')
  expect((await owner.post(`/api/events/${id}/set-aside`, { reason: 'a test' })).status).toBe(204)
  const list = async (status: string) => (await read(`status=${status}&account=${own.accountId}`)).events
  expect(await list('set-aside')).toMatchObject([{ id, setAside: 'a test' }])
  expect(await list('failed')).toHaveLength(1)
  expect((await read('status=set-aside')).events.map((event) => event.id)).toContain(id)
  expect((await owner.get(`/api/events/reasons?account=${own.accountId}`)).json.reasons).toEqual([
    { failure: 'broken', count: 1 },
  ])
  expect(await unapplied(own)).toBe(1)
  expect((await owner.post(`/api/events/${id}/set-aside`, { reason: null })).status).toBe(204)
  expect(await unapplied(own)).toBe(2)
  await runCommand(['events', 'set-aside', id, '--reason', 'a test'], env)
  expect((await owner.post(`/api/events/${id}/retry`)).json.outcome).toBe('applied')
  expect((await owner.post(`/api/events/${id}/set-aside`, { reason: 'gone' })).status).toBe(404)
})

it('a failed event is set aside with all that match, and those of other accounts stay', async () => {
  const own = await addTenant(database)
  for (let i = 0; i < 45; i += 1) await addFailedEvent(database, own, 'unreadable')
  await addFailedEvent(database, own, 'broken')
  const elsewhere = await addFailedEvent(database, tenant, 'unreadable')
  const { status, json } = await owner.post('/api/events/set-aside-all', {
    ...{ account: String(own.accountId), failure: 'unreadable', reason: 'a broken device' },
  })
  expect([status, json.job.total]).toEqual([202, '45'])
  expect(await endOf(owner, json.job)).toMatchObject({ status: 'done', done: '45' })
  expect(await unapplied(own)).toBe(1)
  expect((await owner.get(`/api/events/${elsewhere}`)).json.event.setAside).toBeNull()
})
