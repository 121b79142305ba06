/** One account's load takes no connection from health checks, deliveries and other accounts. */
import { expect, it } from 'vitest'
import { addAccount } from '../../src/accounts/provisioning.ts'
import { lineEvent } from '../../tools/simulator/events.ts'
import type { TextDatabase } from '../../tools/text-database.ts'
import { addCredentials, addTenant, type Tenant } from '../support/database.ts'
import { holdTransaction, waitForBlocked } from '../support/locks.ts'
import { health, list, makeStuck, search, setUpTenants, waitForStuck } from '../support/stuck.ts'

/** Another account of the tenant's organization, with a client and key of its own. */
async function addSister(direct: TextDatabase, tenant: Tenant): Promise<Tenant> {
  const columns = { name: 'sister', channel_secret: tenant.channelSecret }
  const { id } = await addAccount(direct, tenant.organizationId, columns)
  return { ...tenant, accountId: id, ...(await addCredentials(direct, id, tenant.organizationId)) }
}

it('serves other organizations while several accounts of one organization are stuck', async () => {
  const { direct, service, tenants } = await setUpTenants(2)
  const [loud, quiet] = tenants
  const sisters = [loud, await addSister(direct, loud), await addSister(direct, loud)]
  const release = await makeStuck(direct, sisters)
  const attack = [...sisters, ...sisters].map((each) => search(service, each))
  await waitForStuck(direct, 4)
  expect((await list(service, quiet)).status).toBe(200)
  expect((await list(service, quiet)).status).toBe(200)
  await release()
  await Promise.all(attack)
})

it('accepts deliveries of accounts that are not cached while another program locks api_client', async () => {
  const { direct, service } = await setUpTenants(0)
  const tenants = [await addTenant(direct), await addTenant(direct)] as const
  const release = await holdTransaction(direct, 'lock table api_client in access exclusive mode')
  const callers = Array.from({ length: 5 }, () => list(service, tenants[0]))
  await waitForBlocked(direct, 1)
  const answers = await Promise.all([
    health(service),
    ...tenants.map((tenant) => service.deliver(tenant, [lineEvent('follow', 'U1')])),
  ])
  expect(answers.map(({ status }) => status)).toEqual([200, 200, 200])
  await release()
  await Promise.all(callers)
})
