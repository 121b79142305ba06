/** The live tail of the console. */
import { request as sendRequest } from 'node:http'
import { expect, it, onTestFinished } from 'vitest'
import { lineEvent, randomUserId, textMessage } from '../../tools/simulator/events.ts'
import { addSignedIn, endSessions, Operator, signedIn, startConsole } from '../support/console.ts'
import { addTenant, createTestDatabase, openDatabase } from '../support/database.ts'
import { setUpService } from '../support/service.ts'

const { database, service, tenant } = await setUpService()

interface Watch {
  status: Promise<number>
  /** the kinds of the events so far */
  events: Array<{ id: string; kind: string; userId: string; accountName: string }>
  skipped: () => number
  isOver: () => boolean
}

function watch({ url, cookie }: Operator, query = ''): Watch {
  const events: Watch['events'] = []
  let skipped = 0
  let isOver = false
  let pending = ''
  const status = new Promise<number>((resolve, reject) => {
    const request = sendRequest(`${url}/api/live${query}`, { headers: { cookie } }, (response) => {
      response.setEncoding('utf8')
      response.on('data', (chunk: string) => {
        pending += chunk
        const blocks = pending.split('\n\n')
        pending = blocks.pop() ?? ''
        for (const block of blocks.filter((text) => text.startsWith('data: '))) {
          const frame = JSON.parse(block.slice('data: '.length))
          events.push(...frame.events)
          skipped += frame.skipped
        }
      })
      response.on('close', () => {
        isOver = true
      })
      resolve(response.statusCode ?? 0)
    })
    request.on('error', reject).end()
    onTestFinished(() => void request.destroy())
  })
  return { status, events, skipped: () => skipped, isOver: () => isOver }
}

/** Sends until an event arrives. */
async function untilWatching({ events }: Watch): Promise<void> {
  await expect
    .poll(async () => {
      await service.deliver(tenant, [lineEvent('beacon', randomUserId())])
      return events.length
    })
    .toBeGreaterThan(0)
}

it('shows what is committed, once, to all who watch, by their filters', async () => {
  const { url } = await startConsole(database)
  const operator = await signedIn(url)
  const all = watch(operator)
  const follows = watch(operator, `?kind=follow&account=${tenant.accountId}&source=line`)
  const others = watch(operator, '?account=1234567')
  expect(await all.status).toBe(200)
  await untilWatching(all)
  const userId = randomUserId()
  await service.deliver(tenant, [lineEvent('follow', userId), textMessage(userId, 'hello')])
  await service.track(tenant, [{ type: 'page', userId, messageId: 'm-1' }])
  await expect.poll(() => all.events.filter((event) => event.userId === userId)).toHaveLength(3)
  expect(follows.events.map(({ kind }) => kind)).toEqual(['follow'])
  expect(others.events).toEqual([])
  const ids = all.events.map(({ id }) => id)
  expect(new Set(ids).size).toBe(ids.length)
  expect(all.events[0]?.accountName).toBe('test')
})

it('shows an event that committed after one with a greater id', async () => {
  const { url } = await startConsole(database)
  const tail = watch(await signedIn(url))
  await untilWatching(tail)
  const insert = `insert into event (channel_oa_id, source, kind, key, occurred_at, user_id)
                  values ($1, 'line', 'follow', gen_random_uuid(), now(), $2)`
  const [slow, fast] = [randomUserId(), randomUserId()]
  await database.session(async (session) => {
    await session.query('begin')
    await session.query(insert, [tenant.accountId, slow])
    await database.query(insert, [tenant.accountId, fast])
    await expect.poll(() => tail.events.some(({ userId }) => userId === fast)).toBe(true)
    await session.query('commit')
  })
  await expect.poll(() => tail.events.some(({ userId }) => userId === slow)).toBe(true)
})

it('says how many events were not shown', async () => {
  const { url } = await startConsole(database)
  const tail = watch(await signedIn(url))
  await untilWatching(tail)
  await database.query(
    `insert into event (channel_oa_id, source, kind, key, occurred_at)
     select $1, 'line', 'message', gen_random_uuid(), now() from generate_series(1, 1200)`,
    [tenant.accountId],
  )
  await expect.poll(() => tail.skipped()).toBeGreaterThanOrEqual(600)
  expect(tail.events.length).toBeLessThanOrEqual(600)
})

it('ends with a sign-out on another instance, and leaves the streams of others open', async () => {
  const timed = await startConsole(database)
  const operator = await signedIn(timed.url)
  const [ending, other] = [watch(operator), watch(await signedIn(timed.url))]
  expect(await Promise.all([ending.status, other.status])).toEqual([200, 200])
  const elsewhere = new Operator((await startConsole(database)).url)
  elsewhere.cookie = operator.cookie
  await elsewhere.post('/sign-out')
  await expect.poll(() => ending.isOver()).toBe(true)
  expect(other.isOver()).toBe(false)
})

it('ends with the session, and with the console', async () => {
  const timed = await startConsole(database)
  const ending = watch(await signedIn(timed.url))
  expect(await ending.status).toBe(200)
  await endSessions(database)
  await expect.poll(() => ending.isOver()).toBe(true)

  const closing = await startConsole(database)
  const open = watch(await signedIn(closing.url))
  expect(await open.status).toBe(200)
  await closing.app.close()
  await expect.poll(() => open.isOver()).toBe(true)
})

it('refuses the 21st page that watches', async () => {
  const { url } = await startConsole(database)
  const operator = await signedIn(url)
  const statuses = await Promise.all(Array.from({ length: 21 }, () => watch(operator).status))
  expect(statuses.toSorted()).toEqual([...Array(20).fill(200), 503])
})

it('reads over one connection of its own, which opens when it is used', async () => {
  const { connection } = await createTestDatabase()
  const own = openDatabase(connection)
  await addTenant(own)
  const openConnections = () => own.connectionStates().find(({ pool }) => pool === 'console')?.total
  expect(openConnections()).toBe(0)
  const { url } = await startConsole(own)
  const operator = await signedIn(url)
  await Promise.all(['fleet', 'clients', 'events', 'endpoints'].map((name) => operator.get(`/api/${name}`)))
  expect(openConnections()).toBe(1)
})

it('shows nothing of an organization that was taken from the operator, and nothing once the operator is disabled', async () => {
  const { url } = await startConsole(database)
  const other = await addTenant(database)
  const organizationIds = [tenant.organizationId, other.organizationId]
  const operator = await addSignedIn({ url, database }, { role: 'viewer', organizationIds })
  const tail = watch(operator)
  await untilWatching(tail)
  await database.query('update operator set organization_ids = $2 where id = $1', [
    operator.id,
    [tenant.organizationId],
  ])
  await service.deliver(other, [textMessage('Usecret', 'hidden')])
  await service.deliver(tenant, [textMessage('Ushown', 'shown')])
  await expect.poll(() => tail.events.some(({ userId }) => userId === 'Ushown')).toBe(true)
  expect(tail.events.map(({ userId }) => userId)).not.toContain('Usecret')
  await database.query(`update operator set status = 'disabled' where id = $1`, [operator.id])
  await service.deliver(tenant, [textMessage('Ulate', 'late')])
  await expect.poll(() => tail.isOver()).toBe(true)
  expect(tail.events.map(({ userId }) => userId)).not.toContain('Ulate')
})

it('leaves half of all streams to operators of other organizations', async () => {
  const { url } = await startConsole(database)
  const organizationIds = [tenant.organizationId]
  const crowd = await Promise.all(
    [1, 2, 3].map(() => addSignedIn({ url, database }, { role: 'viewer', organizationIds })),
  )
  const statuses = await Promise.all(crowd.flatMap((one) => [1, 2, 3, 4].map(() => watch(one).status)))
  expect(statuses.toSorted()).toEqual([...Array(10).fill(200), 503, 503])
  expect(await watch(await signedIn(url)).status).toBe(200)
})
