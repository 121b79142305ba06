/** A tracking key or oa_hash of one organization is never another's, because pages and support chats still use it. */
import { expect, it } from 'vitest'
import { removeAccount } from '../../tools/remove-account.ts'
import { runCommand } from '../support/command.ts'
import { addTenant, createTestDatabase } from '../support/database.ts'
import { insertRow, load } from '../support/load.ts'
import { holdTransaction, waitForBlocked } from '../support/locks.ts'

const { database, env } = await createTestDatabase()
const [owner, other] = [await addTenant(database), await addTenant(database)]
const sister = await addTenant(database, { organizationId: owner.organizationId })

const COLUMNS = [
  { column: 'tracking_key', option: '--tracking-key', used: /web pages may still have it/ },
  { column: 'oa_hash', option: '--oa-hash', used: /a support chat may still call it/ },
] as const
type Column = (typeof COLUMNS)[number]['column']

const setOf = (column: Column) => `update official_account set ${column} = $2 where id = $1`
const set = (accountId: bigint, column: Column, value: string) =>
  load(database, setOf(column), [accountId, value])

/** Gives an account a value, and replaces it. */
async function retire(column: Column, accountId = owner.accountId): Promise<string> {
  const value = `retired-${Math.random()}`
  await set(accountId, column, value)
  await set(accountId, column, `current-${Math.random()}`)
  return value
}

it.each(COLUMNS)('a replaced $column is refused to other organizations by every writer', async (of) => {
  const { column, option, used } = of
  const value = await retire(column)
  const add = ['accounts', 'add', '--organization', String(other.organizationId), '--name', 'x']
  for (const args of [add, ['accounts', 'update', String(other.accountId)]]) {
    const { status, stderr } = await runCommand([...args, option, value], env)
    expect([status, stderr.trim().split('\n').length]).toEqual([1, 1])
    expect(stderr).toMatch(used)
  }
  await expect(set(other.accountId, column, value)).rejects.toThrow(/another organization has had/)
})

it.each(COLUMNS)(
  'a replaced $column stays usable in its organization, and is stored as a hash',
  async ({ column }) => {
    const value = await retire(column)
    await set(sister.accountId, column, value)
    await set(sister.accountId, column, `next-${Math.random()}`)
    await expect(set(other.accountId, column, value)).rejects.toThrow(/another organization has had/)
    const rows = await load<{ row: string }>(database, 'select r::text as row from retired_address r')
    expect(JSON.stringify(rows)).not.toContain(value)
  },
)

it('the addresses of a removed account are refused to other organizations', async () => {
  const removed = await addTenant(database)
  await removeAccount(database, removed.accountId)
  for (const [column, value] of [
    ['tracking_key', removed.trackingKey],
    ['oa_hash', removed.oaHash],
  ] as const)
    await expect(set(other.accountId, column, value)).rejects.toThrow(/another organization has had/)
  // As another program deletes an account.
  const columns = { organization_id: owner.organizationId, name: 'x', tracking_key: 'deleted-key' }
  const id = await insertRow(database, 'official_account', columns)
  await load(database, 'delete from official_account where id = $1', [id])
  await expect(set(other.accountId, 'tracking_key', 'deleted-key')).rejects.toThrow(/another organization/)
})

it('an organization that waits for the replacement of a value does not get it', async () => {
  await set(owner.accountId, 'tracking_key', 'contended')
  const commit = await holdTransaction(database, setOf('tracking_key'), [owner.accountId, 'another'])
  const taken = expect(set(other.accountId, 'tracking_key', 'contended')).rejects.toThrow(
    /another organization/,
  )
  await waitForBlocked(database, 1)
  await commit()
  await taken
})
