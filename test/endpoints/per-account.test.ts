/** An account has at most 20 endpoints. The database enforces this for every program that adds them. */
import { expect, it } from 'vitest'
import type { TextQueryable } from '../../tools/text-database.ts'
import { runCommand } from '../support/command.ts'
import { signedIn, startConsole } from '../support/console.ts'
import { addTenant, createTestDatabase, type Tenant } from '../support/database.ts'
import { holdTransaction, waitForBlocked } from '../support/locks.ts'

const MAX = 20
const REFUSAL = 'the account already has 20 endpoints, which is the limit. Remove one that nobody needs.'

const addEndpoints = (database: TextQueryable, { accountId }: Tenant, count: number) =>
  database.query(
    `insert into endpoint (channel_oa_id, url) select $1, 'https://tool.example/' from generate_series(1, $2::int)`,
    [accountId, count],
  )

const countEndpoints = async (database: TextQueryable, { accountId }: Tenant) =>
  (await database.query('select from endpoint where channel_oa_id = $1', [accountId])).length

it('refuses one endpoint more from a command, the console and another program, with one sentence', async () => {
  const { database, env } = await createTestDatabase()
  const tenant = await addTenant(database)
  await addEndpoints(database, tenant, MAX)
  await expect(addEndpoints(database, tenant, 1)).rejects.toThrow(/has 20 endpoints already/)
  const account = String(tenant.accountId)
  const command = await runCommand(
    ['endpoints', 'add', '--account', account, '--url', 'https://a.example/'],
    env,
  )
  expect(command).toMatchObject({ status: 1, stdout: '' })
  expect(command.stderr).toContain(REFUSAL)
  const operator = await signedIn((await startConsole(database)).url)
  const settings = { account, url: 'https://a.example/', format: 'members' }
  const response = await operator.post('/api/endpoints', settings)
  expect(response.status).toBe(400)
  expect(response.json.details).toEqual([{ path: '', message: REFUSAL }])
  expect(await countEndpoints(database, tenant)).toBe(MAX)
})

it('counts the endpoint of a transaction that has not committed yet', async () => {
  const { database } = await createTestDatabase()
  const tenant = await addTenant(database)
  await addEndpoints(database, tenant, MAX - 1)
  const commit = await holdTransaction(
    database,
    `insert into endpoint (channel_oa_id, url) values ($1, 'https://tool.example/')`,
    [tenant.accountId],
  )
  const refused = expect(addEndpoints(database, tenant, 1)).rejects.toThrow(/has 20 endpoints already/)
  await waitForBlocked(database, 1)
  await commit()
  await refused
})
