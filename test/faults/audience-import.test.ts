/** `oa-audience audience import` applies entries in batches, with the result of its entries one after the other, beside deliveries too. */
import fc from 'fast-check'
import { expect, it } from 'vitest'
import type { Member } from '../../src/audience/member.ts'
import { PostgresDatabase } from '../../src/postgres/pool/postgres-database.ts'
import { textMessage } from '../../tools/simulator/events.ts'
import { runCommand } from '../support/command.ts'
import { createTestDatabase, type Tenant, urlOf } from '../support/database.ts'
import { load, loadMembers, tenantWithMembers } from '../support/load.ts'
import { holdTransaction } from '../support/locks.ts'
import { runProgramAsync, writeTemporaryFile } from '../support/process.ts'
import { setUpService, startApp } from '../support/service.ts'

interface Entry {
  userId?: string
  id?: string
  externalId?: string | null
  tags?: string[] | null
  attributes?: Record<string, unknown> | null
}

const { database, connection } = await createTestDatabase()

async function importFile(tenant: Tenant, entries: unknown[], to = connection) {
  const file = writeTemporaryFile('members.ndjson', entries.map((entry) => JSON.stringify(entry)).join('\n'))
  const args = ['audience', 'import', '--account', String(tenant.accountId), file, '--json']
  const { stdout, stderr, status } = await runCommand(args, { DATABASE_URL: urlOf(to) })
  const faults = stderr.split('\n').filter((line) => line.startsWith('oa-audience: '))
  return { tally: JSON.parse(stdout), faults, status }
}

const numbered = (count: number, fields: (no: number) => Entry): Entry[] =>
  Array.from({ length: count }, (_, index) => ({ userId: `U${index + 1}`, ...fields(index + 1) }))

/** The fields that clients set, in the order of the members' ids. */
const stored = (tenant: Tenant) =>
  load(
    database,
    `select user_id, external_id, tags, attributes::text, version from audience_member
      where channel_oa_id = $1 order by id`,
    [tenant.accountId],
  )

it('changes members with tags and attributes of any content and size', async () => {
  const tenant = await tenantWithMembers(database, 120)
  const tags = ['a "b"', 'c\\d', '{e,f}', 'null', ' ', '名前', '\n']
  const entries = numbered(120, (no) => ({ tags, attributes: { no, pad: '"\\'.repeat(3_900) } }))
  expect((await importFile(tenant, entries)).tally).toMatchObject({ changed: 120, refused: 0 })
  for (const [index, member] of (await stored(tenant)).entries()) {
    expect(member).toMatchObject({ tags, version: 2n })
    expect(JSON.parse(String(member.attributes))).toEqual(entries[index]?.attributes)
  }
})

it('refuses only the line of a member that another transaction has locked', async () => {
  const tenant = await tenantWithMembers(database, 150)
  const [locked] = await load<{ id: bigint }>(
    database,
    `select id from audience_member where channel_oa_id = $1 and user_id = 'U30'`,
    [tenant.accountId],
  )
  const release = await holdTransaction(database, 'select from audience_member where id = $1 for update', [
    locked?.id,
  ])
  const { tally, faults } = await importFile(
    tenant,
    numbered(150, () => ({ tags: ['a'] })),
  )
  await release()
  expect(tally).toMatchObject({ changed: 149, refused: 1 })
  expect(faults).toEqual([expect.stringMatching(/line 30: another transaction has locked this member/)])
})

it('goes on after the last batch that was committed when the connection is lost', async () => {
  const { database: own, connection: to, tenant } = await setUpService()
  await loadMembers(own, tenant, 250)
  await load(own, 'create sequence losses')
  await load(
    own,
    `create function end_session() returns trigger language plpgsql as
       $$ begin if nextval('losses') = 1 then perform pg_terminate_backend(pg_backend_pid()); end if; return new; end $$`,
  )
  await load(
    own,
    `create trigger end_session before update on audience_member for each row
       when (new.tags = '{end}') execute function end_session()`,
  )
  const entries: unknown[] = numbered(250, (no) => ({ tags: [no === 150 ? 'end' : 'a'] }))
  entries[120] = 'refused'
  const { tally, faults, status } = await importFile(tenant, entries, to)
  expect({ tally, faults, status }).toMatchObject({
    tally: { changed: 249, refused: 1 },
    faults: ['oa-audience: line 121: the entry is not a JSON object'],
    status: 1,
  })
  const versions = await load(
    own,
    `select version, count(*)::int as members from audience_member group by version order by version`,
  )
  expect(versions).toEqual([
    { version: 1n, members: 1 },
    { version: 2n, members: 249 },
  ])
  expect(await load(own, 'select last_value > 1 as "isLost" from losses')).toEqual([{ isLost: true }])
})

const PEOPLE = 8
const fields = {
  externalId: fc.option(fc.constantFrom('a', 'b', 'c', 'd', 'e', 'f', 'g', 'h', 'i', 'j', 'k', 'l')),
  tags: fc.option(fc.subarray(['x', 'y', 'z'])),
  attributes: fc.option(fc.record({ cups: fc.nat({ max: 2 }) })),
}
const entry = fc
  .tuple(fc.integer({ min: 1, max: PEOPLE + 1 }), fc.record(fields, { requiredKeys: [] }))
  .map(([no, update]) => ({ userId: `U${no}`, ...update }))

it('changes members exactly like the same updates one after the other (property)', async () => {
  const service = await startApp(database)
  const put = (tenant: Tenant, { userId, ...update }: { userId: string }, members: Member[]) => {
    const id = members.find((member) => member.userId === userId)?.id ?? '404'
    return service.put(tenant, id, update)
  }
  const property = fc.asyncProperty(fc.array(entry, { minLength: 150, maxLength: 220 }), async (entries) => {
    const [imported, updated] = [
      await tenantWithMembers(database, PEOPLE),
      await tenantWithMembers(database, PEOPLE),
    ]
    const { tally, faults } = await importFile(imported, entries)
    const members = await service.members(updated)
    const refused: number[] = []
    for (const [index, each] of entries.entries())
      if ((await put(updated, each, members)).status !== 200) refused.push(index + 1)
    expect(await stored(imported)).toEqual(await stored(updated))
    expect(tally.changed + tally.unchanged).toBe(entries.length - refused.length)
    expect(tally.refused).toBe(refused.length)
    const lines = faults.map((fault) => Number(fault.match(/line (\d+)/)?.[1])).filter(Number.isInteger)
    expect(lines).toEqual(refused.slice(0, 20))
  })
  await fc.assert(property, { numRuns: 3, endOnFailure: true })
})

const CROWD = Array.from({ length: 200 }, (_, index) => `U${index + 1}`)
/** Enough batches that an import in the order of the file deadlocks with a flush on any machine. */
const ROUNDS = 40

it('neither loses an event nor deadlocks with a flush', async () => {
  const { database, connection, service, tenant, env } = await setUpService()
  await loadMembers(database, tenant, CROWD.length)
  // PostgreSQL looks for a deadlock after 1 s, but a statement waits for a lock only 600 ms.
  await load(database, `alter database ${connection.database} set deadlock_timeout = '20ms'`)
  const rounds = Array.from({ length: ROUNDS }, (_, round) =>
    CROWD.toReversed().map((userId) => JSON.stringify({ userId, tags: [`${round}`] })),
  )
  const file = writeTemporaryFile('members.ndjson', rounds.flat().join('\n'))

  let isImporting = true
  const args = ['audience', 'import', '--account', String(tenant.accountId), file, '--json']
  const imported = runProgramAsync(args, env).finally(() => {
    isImporting = false
  })
  const statuses = new Set<number>()
  let deliveries = 0
  while (isImporting) {
    const events = CROWD.map((userId) => textMessage(userId, 'hello'))
    statuses.add((await service.deliver(tenant, events)).status)
    deliveries += 1
  }

  expect(JSON.parse((await imported).stdout)).toMatchObject({ changed: CROWD.length * ROUNDS, refused: 0 })
  expect(statuses).toEqual(new Set([200]))
  for (const member of await service.members(tenant))
    expect(member).toMatchObject({ eventCount: deliveries, tags: [`${ROUNDS - 1}`] })
  await service.app.close()
  // A session reports its statistics when it ends.
  await database.close()
  const later = new PostgresDatabase(connection, () => undefined)
  const counted = await load(
    later,
    'select deadlocks from pg_stat_database where datname = current_database()',
  )
  await later.close()
  expect(counted).toEqual([{ deadlocks: 0n }])
})
