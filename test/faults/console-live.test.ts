/** The newest events, as the page Live asks for them. */
import { expect, it } from 'vitest'
import { lineEvent, randomUserId, textMessage } from '../../tools/simulator/events.ts'
import { addSignedIn, type Operator, signedIn, startConsole } from '../support/console.ts'
import { addTenant, createTestDatabase, openDatabase } from '../support/database.ts'
import { setUpService } from '../support/service.ts'

const { database, service, tenant } = await setUpService()
const { url } = await startConsole(database)

type Event = { id: string; kind: string; userId: string; accountName: string }

const read = async (operator: Operator, query = ''): Promise<Event[]> =>
  (await operator.get(`/api/live${query}`)).json.events
const peopleIn = (events: Event[]) => events.map(({ userId }) => userId)

it('are shown to everybody who watches, by their filters', async () => {
  const operator = await signedIn(url)
  const userId = randomUserId()
  await service.deliver(tenant, [lineEvent('follow', userId), textMessage(userId, 'hello')])
  await service.track(tenant, [{ type: 'page', userId, messageId: 'm-1' }])
  const of = async (query?: string) =>
    (await read(operator, query)).filter((event) => event.userId === userId)
  await expect.poll(() => of()).toHaveLength(3)
  expect((await of())[0]?.accountName).toBe('test')
  const follows = await of(`?kind=follow&account=${tenant.accountId}&source=line`)
  expect(follows.map(({ kind }) => kind)).toEqual(['follow'])
  expect(await read(operator, '?account=1234567')).toEqual([])
})

it('include an event that committed after one with a greater id', async () => {
  const operator = await signedIn(url)
  const insert = `insert into event (channel_oa_id, source, kind, key, occurred_at, user_id)
                  values ($1, 'line', 'follow', gen_random_uuid(), now(), $2)`
  const [slow, fast] = [randomUserId(), randomUserId()]
  await database.session(async (session) => {
    await session.query('begin')
    await session.query(insert, [tenant.accountId, slow])
    await database.query(insert, [tenant.accountId, fast])
    await expect.poll(async () => peopleIn(await read(operator))).toContain(fast)
    await session.query('commit')
  })
  await expect.poll(async () => peopleIn(await read(operator))).toContain(slow)
})

it('are at most 100 of the last 500', async () => {
  const operator = await signedIn(url)
  await database.query(
    `insert into event (channel_oa_id, source, kind, key, occurred_at)
     select $1, 'line', 'beacon', gen_random_uuid(), now() from generate_series(1, 1200)`,
    [tenant.accountId],
  )
  await expect.poll(async () => (await read(operator, '?kind=beacon')).length).toBe(100)
})

it('show nothing of an organization that was taken from the operator, and nothing once the operator is disabled', async () => {
  const other = await addTenant(database)
  const organizationIds = [tenant.organizationId, other.organizationId]
  const operator = await addSignedIn({ url, database }, { role: 'viewer', organizationIds })
  await service.deliver(other, [textMessage('Usecret', 'hidden')])
  await expect.poll(async () => peopleIn(await read(operator))).toContain('Usecret')
  await database.query('update operator set organization_ids = $2 where id = $1', [
    operator.id,
    [tenant.organizationId],
  ])
  expect(peopleIn(await read(operator))).not.toContain('Usecret')
  await database.query(`update operator set status = 'disabled' where id = $1`, [operator.id])
  expect((await operator.get('/api/live')).status).toBe(401)
})

it('is read over one connection of the console, which opens when it is used', async () => {
  const { connection } = await createTestDatabase()
  const own = openDatabase(connection)
  await addTenant(own)
  const openConnections = () => own.connectionStates().find(({ pool }) => pool === 'console')?.total
  expect(openConnections()).toBe(0)
  const operator = await signedIn((await startConsole(own)).url)
  await Promise.all(['fleet', 'clients', 'events', 'endpoints'].map((name) => operator.get(`/api/${name}`)))
  expect(openConnections()).toBe(1)
})
