/** Another program holds rows or tables, or the events of one account take too long: nobody else waits for it. */
import { expect, it } from 'vitest'
import { queueChanged } from '../../src/observability/facts.ts'
import { lineEvent, randomUserId, textMessage } from '../../tools/simulator/events.ts'
import { addTenant, type Tenant } from '../support/database.ts'
import { holdTransaction } from '../support/locks.ts'
import { type Answer, type Service, setUpService } from '../support/service.ts'

const list = (service: Service, { headers }: Tenant) => service.call('GET', '/api/audience', { headers })
const messages = (service: Service, tenant: Tenant, userIds: string[]) =>
  userIds.map((userId) => service.deliver(tenant, [lineEvent('message', userId)]))
const statusesOf = async (answers: Array<Promise<Answer>>) =>
  (await Promise.all(answers)).map(({ status }) => status)

it('answers 503 for what needs a locked table, after it has answered what does not', async () => {
  const { database, service, tenant } = await setUpService()
  const release = await holdTransaction(database, 'lock table audience_member in access exclusive mode')
  const answered: string[] = []
  const note = (name: string) => (answer: Answer) => {
    answered.push(name)
    return answer
  }
  const answers = [
    service.deliver(tenant, [lineEvent('follow', 'U2')]).then(note('delivery')),
    list(service, tenant).then(note('list')),
    service.deliver(tenant, []).then(note('empty delivery')),
    service.call('GET', '/api').then(note('name')),
  ]
  // All are answered while the table is still locked.
  expect(await statusesOf(answers)).toEqual([503, 503, 200, 200])
  expect(answered.slice(0, 2).sort()).toEqual(['empty delivery', 'name'])
  await release()
  await expect
    .poll(() => service.deliver(tenant, [lineEvent('follow', randomUserId())]))
    .toMatchObject({ status: 200 })
})

it('tries the events of one account that take too long at most twice a batch, and stores those of others', async () => {
  const { database, service, tenant } = await setUpService()
  const other = await addTenant(database)
  await database.query('create sequence attempt')
  await database.query(
    `create function too_long() returns trigger language plpgsql as
       $$ begin perform nextval('attempt'); perform pg_sleep(30); return new; end $$`,
  )
  await database.query(
    `create trigger too_long before insert on audience_member for each row
       when (new.channel_oa_id = ${tenant.accountId}) execute function too_long()`,
  )
  // Fewer than 32 events: no second batch is pipelined behind the first and cancelled with it.
  const tenants = Array.from({ length: 24 }, (_, no) => (no % 2 === 0 ? tenant : other))
  const answers = tenants.flatMap((each, no) => messages(service, each, [`U${no}`]))
  expect(await statusesOf(answers)).toEqual(tenants.map((each) => (each === tenant ? 503 : 200)))
  // A sequence counts attempts that were rolled back, too. Two batches: each fails with all accounts, then with this one.
  const [attempts] = await database.query<{ count: bigint }>('select last_value as count from attempt')
  expect(Number(attempts?.count)).toBeLessThanOrEqual(4)
})

it('a delivery is answered 503 only if it needs a row that the other program holds, and can be sent again', async () => {
  const { database, service } = await setUpService()
  const [slow, other] = [await addTenant(database), await addTenant(database)]
  const release = await holdTransaction(
    database,
    `insert into audience_member (channel_oa_id, organization_id, user_id) values ($1, $2, 'Uheld')`,
    [slow.accountId, slow.organizationId],
  )
  const event = textMessage('Uheld', 'held')
  const answers = await Promise.all([
    service.deliver(slow, [event]),
    service.deliver(slow, [textMessage('Uheld', 'held too')]),
    service.deliver(other, [lineEvent('follow', 'U1')]),
  ])
  expect(answers.map(({ status }) => status)).toEqual([503, 503, 200])
  await release()
  expect((await service.deliver(slow, [event])).json).toEqual({ accepted: 1, duplicates: 0 })
  expect(await service.member(slow, 'Uheld')).toMatchObject({ eventCount: 1 })
})

it('an account with a locked row is flushed apart, without the others, until it can be stored', async () => {
  const { database, service } = await setUpService()
  const deliver = (to: Tenant) => service.deliver(to, [lineEvent('follow', randomUserId())])
  const [locked, other] = [await addTenant(database), await addTenant(database)]
  await database.session(async (session) => {
    await session.query('begin')
    await session.query('select from official_account where id = $1 for update', [locked.accountId])
    expect((await deliver(locked)).status).toBe(503)
    let queued = 0
    let isOver = false
    const unsubscribe = queueChanged.subscribe(({ queuedEvents }) => {
      queued = queuedEvents
    })
    // It waits for the lock.
    const waiting = deliver(locked).finally(() => {
      isOver = true
    })
    const second = deliver(locked)
    for (let sent = 0; sent < 2; sent += 1) expect((await deliver(other)).status).toBe(200)
    expect(isOver).toBe(false)
    // The second one waits behind the first, and the metric counts it.
    expect(queued).toBe(1)
    expect((await waiting).status).toBe(503)
    expect((await second).status).toBe(503)
    expect(queued).toBe(0)
    unsubscribe()
    await session.query('rollback')
  })
  expect((await deliver(locked)).status).toBe(200)
  expect(await service.members(locked)).toHaveLength(1)
})
