/** A row that another program has locked delays the other accounts once. */
import { expect, it } from 'vitest'
import { queueChanged } from '../src/observability/facts.ts'
import { lineEvent, randomUserId } from '../tools/simulator/events.ts'
import { addTenant, type Tenant } from './support/database.ts'
import { load } from './support/load.ts'
import { setUpService } from './support/service.ts'

const { database, service } = await setUpService()

const deliver = (tenant: Tenant) => service.deliver(tenant, [lineEvent('follow', randomUserId())])

it('an account with a locked row is flushed apart, without the others, until it can be stored', async () => {
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
  const members = await load(database, 'select from audience_member where channel_oa_id = $1', [
    locked.accountId,
  ])
  expect(members).toHaveLength(1)
})
