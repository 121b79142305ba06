/** What holds for every operation that changes something: one row of the activity log, and none after a rollback. */
import { describe, expect, it } from 'vitest'
import { OPERATIONS } from '../src/operations/all.ts'
import type { Operation } from '../src/operations/operation.ts'
import type { Transactions } from '../src/postgres/statement.ts'
import { confirmStatus } from '../src/watch/store-statuses.ts'
import { INPUTS, type Objects } from './support/console-routes.ts'
import { addTenant } from './support/database.ts'
import { insertRow, load } from './support/load.ts'
import { addObjects } from './support/objects.ts'
import { runOperation } from './support/operations.ts'
import { setUpService } from './support/service.ts'

const { database, service } = await setUpService()

const MARK = 'Strangers'
const CHANGES = OPERATIONS.filter(({ records }) => records !== null)

/** What makes an operation possible. */
const BEFORE: Record<string, string> = {
  'client.finish-rotation': 'client.rotate',
  'client.discard-rotation': 'client.rotate',
  'endpoint.finish-rotation': 'endpoint.rotate',
  'endpoint.discard-rotation': 'endpoint.rotate',
  'operator.enable': 'operator.disable',
  'account.unmute': 'account.mute',
}
/** Its row says that a job was started: the job writes the other one. */
const STARTS_JOB = 'account.followers'

const operationOf = (name: string) => OPERATIONS.find((operation) => operation.name === name) as Operation

/** Returns the rows of the activity log that `work` writes. */
async function rowsOf(work: () => Promise<unknown>) {
  const [last] = await load<{ id: bigint }>(database, 'select coalesce(max(id), 0) as id from activity')
  await work()
  return load(
    database,
    `select action, actor_kind, object_kind, object_id, organization_id, changes from activity where id > $1`,
    [last?.id],
  )
}

/** A database whose transactions fail at their end, as if the connection was lost. */
const failing = (broken: Transactions): Transactions => ({
  ...broken,
  transaction: (work) =>
    database.transaction(async (transaction) => {
      await work(transaction)
      throw new Error('a fault')
    }),
})

async function prepare(operation: Operation) {
  const tenant = await addTenant(database)
  const objects = await addObjects({ database, service }, tenant, {
    mark: `${MARK}${tenant.accountId}`,
  })
  await load(database, 'update official_account set name = $2 where id = $1', [tenant.accountId, MARK])
  await confirmStatus(database, tenant.accountId, Date.now())
  if (operation.noun.word === 'organization')
    objects.organization = String(await insertRow(database, 'organization', { name: MARK }))
  const endpointTester = { test: async () => ({ response: { status: 200 } }) } as never
  const channelTester = { test: async () => ({ status: 200, durationMs: 1 }) } as never
  const counted = (_actor: unknown, count: () => Promise<unknown>) => count() as never
  const line = { lineApi: null, baseUrl: 'https://oa.example.com', counted }
  const tests = { endpointTester, channelTester, canEmail: true }
  const services = { now: Date.now, ownUrls: () => [], ...tests, ...line }
  const targetOf = ({ noun }: Operation) => objects[noun.word as keyof Objects]
  const run = async (operation: Operation, on: Transactions = database) => {
    // A replay needs an endpoint that receives events.
    if (operation.name.endsWith('replay'))
      await load(database, `update endpoint set format = 'line', secret = null where id = $1`, [
        objects.endpoint,
      ])
    return runOperation(on, operation, {
      ...{ services, input: INPUTS[operation.name]?.(objects) ?? {} },
      ...(operation.hasTarget && { id: BigInt(targetOf(operation)) }),
    })
  }
  const before = BEFORE[operation.name]
  if (before !== undefined) await run(operationOf(before))
  return { target: targetOf(operation), run }
}

describe('a read', async () => {
  const reads = OPERATIONS.filter(({ records }) => records === null)
  const { run } = await prepare(operationOf('account.contents'))

  it.each(reads.map((operation) => [operation.name, operation] as const))(
    '%s locks and changes nothing',
    async (_, operation) => {
      // PostgreSQL refuses changes and locks of rows then, as a standby does.
      await database.session(async (session) => {
        await session.query('set default_transaction_read_only = on')
        await run(operation, session as never)
      })
    },
  )
})

const objectIdOf = ({ name, hasTarget, way }: Operation, target: string) =>
  hasTarget ? target : way === 'add' || name === 'account.add' ? expect.stringMatching(/^\d+$/) : null

describe.each(CHANGES.map((operation) => [operation.name, operation] as const))('%s', (_, operation) => {
  it('writes one row, and none if it fails', async () => {
    const { target, run } = await prepare(operation)
    if (operation.way !== 'call')
      expect(
        await rowsOf(() => expect(run(operation, failing(database))).rejects.toThrow('a fault')),
      ).toEqual([])
    const rows = await rowsOf(() => run(operation))
    const row = rows.find(({ object_kind }) => object_kind === operation.noun.kind)
    // A client may be added with its first key.
    expect(rows.filter((each) => each !== row && each.action !== 'key.added')).toEqual([])
    expect(row).toMatchObject({
      action: operation.name === STARTS_JOB ? 'job.started' : operation.records,
      actor_kind: 'command',
      object_kind: operation.noun.kind,
      object_id: objectIdOf(operation, target),
    })
    expect(JSON.stringify(row?.changes)).not.toMatch(/whsec_|secret_/)
  })
})
