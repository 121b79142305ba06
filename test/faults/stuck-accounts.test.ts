/** All that one account or others may keep busy is stuck: everybody else is served or told why not. */
import { expect, it } from 'vitest'
import { lineEvent } from '../../tools/simulator/events.ts'
import { addTenant, type Tenant } from '../support/database.ts'
import { holdTransaction } from '../support/locks.ts'
import type { Answer, Service } from '../support/service.ts'
import { health, list, makeStuck, search, setUpTenants, waitForStuck } from '../support/stuck.ts'

const update = (service: Service, tenant: Tenant, id: string) => service.put(tenant, id, { tags: ['new'] })

it('serves everybody else while all searches and updates of one account are stuck', async () => {
  const { direct, service, metrics, tenants } = await setUpTenants(2)
  const [loud, quiet] = tenants
  const member = (await service.member(loud, 'U1'))?.id as string
  const quietIds = (await service.members(quiet)).map(({ id }) => id) as [string, string]
  const uncached = await addTenant(direct)
  await direct.query(`alter table audience_member add constraint refused check (user_id <> 'Urefused')`)
  const release = await makeStuck(direct, [loud])

  const attack = Array.from({ length: 24 }, (_, no) =>
    no % 2 === 0 ? search(service, loud) : update(service, loud, member),
  )
  await waitForStuck(direct, 2)
  const answers = await Promise.all([
    health(service),
    list(service, quiet),
    search(service, quiet),
    update(service, quiet, quietIds[0]),
    service.erase(quiet, quietIds[1]),
    service.deliver(uncached, [lineEvent('follow', 'U1')]),
    // The database refuses this batch, and it is split.
    service.deliver(loud, [lineEvent('message', 'U3'), lineEvent('message', 'Urefused')]),
    service.call('POST', '/api/line-oa/verify', { headers: quiet.headers }),
  ])
  expect(answers.map(({ status }) => status)).toEqual([200, 200, 200, 200, 204, 200, 200, 200])

  // The others wait 2 s for the two that run, and are refused while these are still stuck.
  expect((await Promise.any(attack)).status).toBe(429)
  expect((await health(service)).json).toEqual({ status: 'ok', database: 'up' })
  await release()
  const refused = (await Promise.all(attack)).filter(({ status }) => status === 429)
  for (const { headers, json } of refused) {
    expect(json.message).toBe('Too many concurrent requests for this account; try again later')
    expect(headers.get('retry-after')).toBe('1')
  }
  const text = await metrics.registry.metrics()
  expect(text).toContain(`oa_audience_database_busy_total{pool="clients",reason="account"} ${refused.length}`)
  expect(text).toContain('oa_audience_database_busy_total{pool="clients",reason="pool"} 0')
  expect(text).toContain('oa_audience_database_state{state="up"} 1')
})

it('answers 503 with its own message, and stays healthy, while other accounts use every connection', async () => {
  const { direct, service, metrics, tenants } = await setUpTenants(4)
  const [quiet, ...loud] = tenants
  const release = await makeStuck(direct, loud)
  const attack = [0, 0, 1, 1, 2].map((no) => search(service, loud[no] as Tenant))
  await waitForStuck(direct, 5)
  const busy = await list(service, quiet)
  expect(busy.status).toBe(503)
  expect(busy.json.message).toBe('Too many concurrent requests; try again later')
  expect(busy.headers.get('retry-after')).toBe('1')
  expect((await health(service)).json).toEqual({ status: 'ok', database: 'up' })
  expect((await service.deliver(quiet, [lineEvent('message', 'U1')])).status).toBe(200)
  await release()
  await Promise.all(attack)
  expect((await list(service, quiet)).status).toBe(200)
  const text = await metrics.registry.metrics()
  expect(text).toContain('oa_audience_database_busy_total{pool="clients",reason="pool"} 1')
})

it('authenticates callers whose lookup is pipelined behind one that failed before it was prepared', async () => {
  const { direct, service } = await setUpTenants(0)
  const tenant = await addTenant(direct)
  const release = await holdTransaction(direct, 'lock table api_client in access exclusive mode')
  const callers: Array<Promise<Answer>> = Array.from({ length: 6 }, () => list(service, tenant))
  // The first one's statement waits for the lock while it is prepared, until its lock timeout.
  expect((await Promise.any(callers)).status).toBe(500)
  await release()
  expect((await (callers.at(-1) as Promise<Answer>)).status).toBe(200)
})
