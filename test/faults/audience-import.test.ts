/** An import beside deliveries about the same people, and one that is interrupted. */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, it, onTestFinished } from 'vitest'
import { PostgresDatabase } from '../../src/postgres/pool/postgres-database.ts'
import { textMessage } from '../../tools/simulator/events.ts'
import { urlOf } from '../support/database.ts'
import { load, loadMembers } from '../support/load.ts'
import { MAIN, runProgramAsync, temporaryDirectory } from '../support/process.ts'
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
  const file = join(temporaryDirectory(), 'members.ndjson')
  writeFileSync(file, rounds.flat().join('\n'))

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

  expect(JSON.parse((await imported).stdout)).toEqual({ changed: PEOPLE.length * ROUNDS, refused: 0 })
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

it('prints the tally when Ctrl-C interrupts it', async () => {
  const { database, connection, tenant } = await setUpService()
  await loadMembers(database, tenant, 150)
  const args = ['audience', 'import', '--account', String(tenant.accountId), '-', '--json']
  const child = spawn(process.execPath, [MAIN, ...args], {
    env: { PATH: process.env.PATH, DATABASE_URL: urlOf(connection) },
  })
  onTestFinished(() => void child.kill('SIGKILL'))
  const printed = { stdout: '', stderr: '' }
  child.stdout.on('data', (chunk) => {
    printed.stdout += chunk
  })
  child.stderr.on('data', (chunk) => {
    printed.stderr += chunk
  })
  const closed = once(child, 'close')
  // The input stays open, so the last lines wait for a full batch.
  for (const userId of PEOPLE.slice(0, 150)) child.stdin.write(`${JSON.stringify({ userId, tags: ['a'] })}\n`)
  await expect.poll(() => load(database, `select from audience_member where tags = '{a}'`)).toHaveLength(100)
  await expect.poll(() => printed.stderr).toContain('lines 100')
  child.kill('SIGINT')
  expect(await closed).toEqual([130, null])
  expect(printed.stderr).toMatch(/the import stopped after line 100: it was interrupted\. It is safe to run/)
  expect(JSON.parse(printed.stdout)).toEqual({ changed: 100, refused: 0 })
})
