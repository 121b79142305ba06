/** Another program holds rows or tables, or the events of one account take too long: nobody else waits for it. */
import { expect, it } from 'vitest'
import { lineEvent, randomUserId } from '../../tools/simulator/events.ts'
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
