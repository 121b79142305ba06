/** ERASURE_LEDGER when a reapply is interrupted, and when files of it are damaged, lost or replaced. */
import { cpSync, mkdirSync, readdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, it } from 'vitest'
import { ErasureLedger } from '../../src/audience/erasure/erasure-ledger.ts'
import { listLedgerFiles } from '../../src/audience/erasure/ledger-files.ts'
import { unnamed } from '../../src/postgres/statement.ts'
import { addTenant, createTestDatabase, type Tenant } from '../support/database.ts'
import { operateLedger } from '../support/ledger.ts'
import { load, loadMembers } from '../support/load.ts'
import { temporaryDirectory } from '../support/process.ts'
import { startApp } from '../support/service.ts'

async function setUp(accounts = 1) {
  const directory = join(temporaryDirectory(), 'ledger')
  mkdirSync(directory)
  const { database, env } = await createTestDatabase()
  const tenants: Tenant[] = []
  for (let no = 1; no <= accounts; no += 1) tenants.push(await addTenant(database))
  /** Records erasures of `people` of the account, `hours` ago, in a file of their own. */
  const record = async ({ accountId }: Tenant, hours: number, people: string[]) => {
    await load(
      database,
      `insert into erased_person (channel_oa_id, person_hash, erased_at, member_id)
       select a.id, person_hash(a.person_key, p.user_id), now() - $2::int * interval '1 hour', m.id
         from official_account a cross join unnest($3::text[]) p (user_id)
         left join audience_member m on m.channel_oa_id = a.id and m.user_id = p.user_id
        where a.id = $1`,
      [accountId, hours, people],
    )
  }
  const write = async () => {
    await new ErasureLedger(directory).recordAll(database)
  }
  const membersOf = async ({ accountId }: Tenant) =>
    (await load(database, 'select from audience_member where channel_oa_id = $1', [accountId])).length
  return { directory, database, tenants, ...operateLedger(env, directory), record, write, membersOf }
}

const people = (count: number, prefix = 'U') => Array.from({ length: count }, (_, at) => `${prefix}${at + 1}`)

/** The session keeps it, as a frozen sender does. */
const lockSending = unnamed('select pg_advisory_lock(7302, account_lock($1))')

/** Replaces one character in the middle of a line. */
function damageLine(path: string, line: number): void {
  const lines = readFileSync(path, 'latin1').split('\n')
  const text = lines[line - 1] ?? ''
  lines[line - 1] = `${text.slice(0, 40)}!${text.slice(41)}`
  writeFileSync(path, lines.join('\n'), 'latin1')
}

function removeLine(path: string, line: number): void {
  const lines = readFileSync(path, 'latin1').split('\n')
  writeFileSync(path, lines.toSpliced(line - 1, 1).join('\n'), 'latin1')
}

it('a start is refused while a reapply of two accounts is interrupted between them, and passes when it is complete', async () => {
  const { database, tenants, erasures, start, doctor, record, write, membersOf } = await setUp(2)
  const [first, second] = tenants as [Tenant, Tenant]
  await loadMembers(database, first, 3)
  await loadMembers(database, second, 20)
  await record(first, 3, ['U1'])
  await record(second, 2, people(20))
  await write()
  await load(database, 'delete from erased_person')
  await database.session(async (session) => {
    await session.query(lockSending, [second.accountId])
    expect((await erasures('reapply')).stderr).toMatch(
      /^oa-audience: account \d+ is in use by another process .* run the command again\.\n$/m,
    )
  })
  expect([await membersOf(first), await membersOf(second)]).toEqual([2, 20])
  await expect(start()).rejects.toThrow(/have not all been reapplied\. Run "oa-audience erasures reapply"/)
  expect((await erasures('status')).json).toMatchObject({ unknown: 20, mustReapply: true })
  expect(await doctor()).toEqual([expect.stringMatching(/^error: the database lacks 20 erasures/)])
  expect((await erasures('reapply')).json).toMatchObject({ erasures: 20, members: 20 })
  expect(await membersOf(second)).toBe(0)
  await start()
  expect(await doctor()).toEqual(['ok: ERASURE_LEDGER has every erasure'])
})

it('a start after a restore is refused until a reapply, even if the database has every erasure', async () => {
  const { database, erasures, start, doctor } = await setUp()
  await load(database, `select record_restore(now() - interval '1 hour', change_limit())`)
  await expect(start()).rejects.toThrow(/^The database was restored/)
  expect(await doctor()).toEqual([expect.stringMatching(/^error: the database was restored/)])
  expect((await erasures('reapply')).json).toMatchObject({ lines: 0, erasures: 0 })
  await start()
})

it('one damaged byte in the middle of an old file does not keep a reapply from applying all other lines, but the start waits for a decision about the line', async () => {
  const { directory, database, tenants, erasures, start, record, write, membersOf } = await setUp()
  const [tenant] = tenants as [Tenant]
  await loadMembers(database, tenant, 100)
  await record(tenant, 2, people(100))
  await write()
  await load(database, 'delete from erased_person')
  await load(database, 'insert into pending_reapply default values')
  const [path = ''] = await listLedgerFiles(directory)
  damageLine(path, 51)
  const { status, stderr } = await erasures('reapply')
  expect([status, stderr.slice(stderr.indexOf('oa-audience: '))]).toEqual([
    1,
    `oa-audience: ${path}, line 51 is not a line of an erasure ledger. All other lines are applied. Restore the file from a copy, ` +
      'or remove the lines if their erasures are not needed. Then run the command again.\n',
  ])
  expect(await membersOf(tenant)).toBe(1)
  await expect(start()).rejects.toThrow('have not all been reapplied')
  removeLine(path, 51)
  expect((await erasures('reapply')).json).toMatchObject({ lines: 99, erasures: 0 })
  await start()
  expect((await erasures('status')).json).toMatchObject({ unreadable: 0, mustReapply: false })
})

it('one damaged byte in the middle of an old file does not prevent a start of a database that was not restored, and its erasure can be recorded again', async () => {
  const { directory, database, tenants, start, doctor, erasures, record, write } = await setUp()
  const [tenant] = tenants as [Tenant]
  await record(tenant, 2, people(10))
  await write()
  const [path = ''] = await listLedgerFiles(directory)
  damageLine(path, 6)
  await start()
  expect((await erasures('status')).json).toMatchObject({ ledger: 9, lost: 1, unreadable: 1, unknown: 0 })
  expect(await doctor()).toEqual([
    expect.stringMatching(/^error: \S+, line 6 is not a line of an erasure ledger\. Restore the file/),
    expect.stringMatching(/^warning: ERASURE_LEDGER \S+ lacks 1 recorded erasure/),
  ])
  await load(database, 'update erased_person set in_ledger = false')
  await write()
  rmSync(path)
  expect(await doctor()).toEqual(['ok: ERASURE_LEDGER has every erasure'])
})

it.each([
  ['an empty directory, as after an unmount', (_: string, now: string) => mkdirSync(now)],
  ['a copy', (before: string, now: string) => cpSync(before, now, { recursive: true })],
])('no DELETE is confirmed while %s has the place of the ledger', async (_, replace) => {
  const { directory, database, tenants } = await setUp()
  const [tenant] = tenants as [Tenant]
  await loadMembers(database, tenant, 2)
  const ledger = new ErasureLedger(directory)
  const service = await startApp(database, { erasureLedger: ledger })
  const [one, two] = (await service.members(tenant)).map(({ id }) => id)
  expect((await service.erase(tenant, one)).status).toBe(204)
  renameSync(directory, `${directory}.before`)
  replace(`${directory}.before`, directory)
  const files = readdirSync(directory)
  for (const _ of [1, 2]) expect((await service.erase(tenant, two)).status).toBe(500)
  expect(readdirSync(directory)).toEqual(files)
  rmSync(directory, { recursive: true })
  renameSync(`${directory}.before`, directory)
  expect((await service.erase(tenant, two)).status).toBe(404)
  expect(await load(database, 'select from erased_person where not in_ledger')).toEqual([])
})
