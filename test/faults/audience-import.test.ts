/** An import beside deliveries about the same people. */
import { expect, it } from 'vitest'
import { PostgresDatabase } from '../../src/postgres/pool/postgres-database.ts'
import { textMessage } from '../../tools/simulator/events.ts'
import { load, loadMembers } from '../support/load.ts'
import { runProgramAsync, writeTemporaryFile } from '../support/process.ts'
import { setUpService } from '../support/service.ts'

const PEOPLE = Array.from({ length: 200 }, (_, index) => `U${index + 1}`)
/** Enough batches that an import in the order of the file deadlocks with a flush on any machine. */
const ROUNDS = 40

it('neither loses an event nor deadlocks with a flush', async () => {
  const { database, connection, service, tenant, env } = await setUpService()
  await loadMembers(database, tenant, PEOPLE.length)
  // PostgreSQL looks for a deadlock after 1 s, but a statement waits for a lock only 600 ms.
  await load(database, `alter database ${connection.database} set deadlock_timeout = '20ms'`)
  const rounds = Array.from({ length: ROUNDS }, (_, round) =>
    PEOPLE.toReversed().map((userId) => JSON.stringify({ userId, tags: [`${round}`] })),
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
    const events = PEOPLE.map((userId) => textMessage(userId, 'hello'))
    statuses.add((await service.deliver(tenant, events)).status)
    deliveries += 1
  }

  expect(JSON.parse((await imported).stdout)).toMatchObject({ changed: PEOPLE.length * ROUNDS, refused: 0 })
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
