/**
 * What holds for every operation that changes something: wherever it is interrupted, its change and its row of the activity log are both
 * stored or both not, and what changes nothing writes no row.
 */
import { describe, expect, it } from 'vitest'
import { OPERATIONS } from '../../src/operations/all.ts'
import { type Operation, routeOf } from '../../src/operations/operation.ts'
import { commandActor } from '../../src/operators/actor.ts'
import type { Queryable, Transactions } from '../../src/postgres/statement.ts'
import { confirmStatus } from '../../src/watch/store-statuses.ts'
import { randomAccount } from '../../tools/simulator/state.ts'
import { startSignedIn } from '../support/console.ts'
import { INPUTS, type Objects, ROUTES } from '../support/console-routes.ts'
import { addTenant, type Tenant } from '../support/database.ts'
import type { EditingForm } from '../support/forms.ts'
import { insertRow, load } from '../support/load.ts'
import { addObjects } from '../support/objects.ts'
import { runOperation } from '../support/operations.ts'
import { startPlatform, verifierOn } from '../support/platform.ts'
import { setUpService } from '../support/service.ts'

const { database, service } = await setUpService()
const platform = await startPlatform()

const MARK = 'Strangers'
/** An import of members is recorded with the last piece of its file, which the test of POST /jobs/:/file sends. */
const CHANGES = OPERATIONS.filter(
  ({ name, records }) => records !== null && name !== 'account.import-members',
)

/** What makes an operation possible. */
const BEFORE: Record<string, string> = {
  'client.finish-rotation': 'client.rotate',
  'client.discard-rotation': 'client.rotate',
  'endpoint.finish-rotation': 'endpoint.rotate',
  'endpoint.discard-rotation': 'endpoint.rotate',
  'endpoint.resume': 'endpoint.pause',
  'channel.resume': 'channel.pause',
  'operator.enable': 'operator.disable',
  'account.unmute': 'account.mute',
}
/** Of operations whose row says that a job was started, or concerns a member: action and object of the row. */
const OTHER_ROWS: Record<string, [action: string, kind: string]> = {
  'account.followers': ['job.started', 'account'],
  'account.update-member': ['member.updated', 'member'],
  'account.erase-member': ['member.erased', 'member'],
  'account.erase-person': ['job.started', 'job'],
  'account.erase-members': ['job.started', 'job'],
}

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

/** The database, with what happens before and after each statement. A commit counts as a statement. */
function around(before: () => void, after: () => Promise<void> = async () => undefined): Transactions {
  const on = ({ secretKeys, query }: Queryable): Queryable => ({
    secretKeys,
    query: async (statement, values) => {
      before()
      const rows = await query(statement, values)
      await after()
      return rows as never
    },
  })
  return {
    ...on({ secretKeys: database.secretKeys, query: (...given) => database.query(...given) }),
    pipeline: async (statements) => {
      before()
      return database.pipeline(statements)
    },
    transaction: (work) =>
      database.transaction(async (transaction) => {
        const result = await work(on(transaction))
        before()
        return result
      }),
  }
}

/** An erasure reports every fault in the same way. */
const ENDED = /has ended|Step 3: the erasure failed/

/** The database of a process that ends after `count` statements: no further one is sent, and no open transaction commits. */
function endingAfter(count: number) {
  let sent = 0
  const ending = around(() => {
    sent += 1
    if (sent > count) throw new Error('the process has ended')
  })
  return { ending, sent: () => sent }
}

await load(
  database,
  `create function refuse_activity() returns trigger language plpgsql as $$ begin raise exception 'no activity'; end $$`,
)
async function withoutActivity(work: () => Promise<void>): Promise<void> {
  await load(
    database,
    'create trigger refused before insert on activity for each row execute function refuse_activity()',
  )
  await work().finally(() => load(database, 'drop trigger refused on activity'))
}

/** The rows of all tables. The service writes its counts of deliveries at any time. */
const [tables] = await load<{ text: string }>(
  database,
  `select 'select ' || string_agg(format('(select md5(coalesce(string_agg(t::text, '','' order by t::text), '''')) from %I t) as %I',
                                         relname, relname), ', ') as text
     from pg_class where relnamespace = 'public'::regnamespace and relkind in ('r', 'p') and not relispartition
      and relname <> 'delivery_hour'`,
)
const stored = async () => (await database.query(tables?.text ?? ''))[0]

/** What a second run with the same input does. A refusal is its message. */
type Repetition = 'nothing' | 'the same again' | RegExp
const GONE = /unknown_item/
const REPEATED: Record<string, Repetition> = {
  'organization.add': 'the same again',
  'organization.rename': 'nothing',
  'organization.remove': GONE,
  'account.add': 'the same again',
  'account.update': 'nothing',
  'account.callback-address': 'the same again',
  'account.verify': 'the same again',
  'account.set-webhook': 'the same again',
  'account.followers': 'nothing',
  'account.mute': 'nothing',
  'account.unmute': 'nothing',
  'account.remove': 'nothing',
  'account.update-member': /stale/,
  'account.erase-member': GONE,
  'account.erase-person': 'the same again',
  'account.tag-members': 'the same again',
  'account.erase-members': 'the same again',
  'endpoint.add': 'the same again',
  'endpoint.update': 'nothing',
  'endpoint.test': 'the same again',
  'endpoint.pause': 'nothing',
  'endpoint.resume': 'nothing',
  'endpoint.retry': 'the same again',
  'endpoint.rotate': /still rotating/,
  'endpoint.finish-rotation': /not rotating/,
  'endpoint.discard-rotation': /not rotating/,
  'endpoint.remove': GONE,
  'endpoint.replay': /replay/,
  'endpoint.resend': /replay/,
  'segment.add': /name/,
  'segment.update': 'nothing',
  'segment.sync': 'nothing',
  'segment.remove': GONE,
  'client.add': 'the same again',
  'client.rotate': /previous secret/,
  'client.finish-rotation': /not rotating/,
  'client.discard-rotation': /not rotating/,
  'client.revoke': 'nothing',
  'client.remove': GONE,
  'key.add': 'the same again',
  'key.revoke': 'nothing',
  'event.retry': 'the same again',
  'event.retry-all': 'the same again',
  'event.set-aside': 'nothing',
  'event.set-aside-all': 'the same again',
  'job.cancel': 'nothing',
  'job.verify-accounts': 'the same again',
  'job.mute-accounts': 'the same again',
  'job.unmute-accounts': 'the same again',
  'job.change-endpoints': 'the same again',
  'job.add-endpoints': 'the same again',
  'job.add-keys': 'the same again',
  'job.secrets': 'nothing',
  'channel.add': 'the same again',
  'channel.update': 'nothing',
  'channel.test': 'the same again',
  'channel.pause': 'nothing',
  'channel.resume': 'nothing',
  'channel.remove': GONE,
  'operator.add': /another operator/,
  'operator.update': 'nothing',
  'operator.disable': 'nothing',
  'operator.enable': 'nothing',
  'operator.invite': 'the same again',
}

async function prepare(operation: Operation) {
  const account = randomAccount(MARK)
  const { settings } = platform.addAccount(account)
  const tenant = await addTenant(database, account)
  const { accountId, keyId } = tenant
  const objects = await addObjects({ database, service }, tenant, { mark: `${MARK}${accountId}` })
  await load(database, 'update official_account set name = $2 where id = $1', [accountId, MARK])
  await confirmStatus(database, accountId, Date.now())
  if (operation.noun.word === 'organization')
    objects.organization = String(await insertRow(database, 'organization', { name: MARK }))
  if (operation.name === 'job.secrets') objects.job = await addJobWithSecret(tenant, keyId)
  const endpointTester = { test: async () => ({ response: { status: 200 } }) } as never
  const channelTester = { test: async () => ({ status: 200, durationMs: 1 }) } as never
  const counted = (_actor: unknown, count: () => Promise<unknown>) => count() as never
  const verifier = verifierOn(platform, 'https://oa.example.com')
  const line = { lineApi: null, verifier, baseUrl: 'https://oa.example.com', counted }
  const tests = { endpointTester, channelTester, canEmail: true }
  const services = { now: Date.now, ownUrls: () => [], erasureLedger: async () => null, ...tests, ...line }
  const targetOf = ({ noun }: Operation) => objects[noun.word as keyof Objects]
  const input = INPUTS[operation.name]?.(objects)
  const makePossible = async ({ name }: Operation) => {
    // LINE keeps the URL that an interrupted run has set.
    if (name === 'account.set-webhook') settings.webhook = null
    // A replay needs an endpoint that receives events.
    if (name.endsWith('replay'))
      await database.query(`update endpoint set format = 'line', secret = null where id = $1`, [
        objects.endpoint,
      ])
  }
  await makePossible(operation)
  const run = async (each: Operation, on: Transactions = database, given?: object) => {
    await makePossible(each)
    const usual = (each === operation ? input : INPUTS[each.name]?.(objects)) ?? {}
    const id = each.hasTarget ? { id: BigInt(targetOf(each)) } : {}
    return runOperation(on, each, { services, input: given ?? usual, ...id })
  }
  const before = BEFORE[operation.name]
  if (before !== undefined) await run(operationOf(before))
  return { target: targetOf(operation), objects, run }
}

/** A job that has ended and added a key, which nobody has seen. */
async function addJobWithSecret({ accountId }: Tenant, keyId: bigint): Promise<string> {
  const started = { actor_kind: 'command', actor: commandActor().name, parameters: '{"change":"key"}' }
  const ended = { status: 'done', finished_at: new Date() }
  const id = await insertRow(database, 'job', { kind: 'accounts.change', ...started, ...ended })
  const values = [id, accountId, keyId]
  await load(
    database,
    'insert into changed_account (job_id, channel_oa_id, object_id) values ($1, $2, $3)',
    values,
  )
  return String(id)
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

/** The id in the row of the activity log. */
function objectIdOf({ noun, name, hasTarget, way }: Operation, kind: string, objects: Objects) {
  if (kind === 'member') return objects.member
  const isNewJob = kind === 'job' && (kind !== noun.kind || !hasTarget)
  if (isNewJob) return expect.stringMatching(/^\d+$/)
  if (kind !== noun.kind) return null
  if (hasTarget) return objects[noun.word as keyof Objects]
  return way === 'add' || name === 'account.add' ? expect.stringMatching(/^\d+$/) : null
}

describe.each(CHANGES.map((operation) => [operation.name, operation] as const))('%s', (name, operation) => {
  it('stores its change with one row, or neither, and writes no row for what is so already', async () => {
    const { objects, run } = await prepare(operation)
    const before = await stored()
    const whole = endingAfter(Number.POSITIVE_INFINITY)
    await withoutActivity(() => expect(run(operation, whole.ending)).rejects.toThrow())
    for (let count = 1; count < whole.sent(); count += 1)
      await expect(run(operation, endingAfter(count).ending), `after ${count}`).rejects.toThrow(ENDED)
    expect(await stored()).toEqual(before)

    const rows = await rowsOf(() => run(operation))
    const [action, kind] = OTHER_ROWS[name] ?? [operation.records, operation.noun.kind]
    const row = rows.find((each) => each.action === action)
    // A client may be added with its first key.
    expect(rows.filter((each) => each !== row && each.action !== 'key.added')).toEqual([])
    expect(row).toMatchObject({
      actor_kind: 'command',
      object_kind: kind,
      object_id: objectIdOf(operation, kind, objects),
    })
    expect(JSON.stringify(row?.changes)).not.toMatch(/whsec_|secret_/)

    const repetition = REPEATED[name]
    let refusal = ''
    const again = await rowsOf(() =>
      run(operation).catch(({ code, message, details }) => {
        refusal = JSON.stringify({ code, message, details })
      }),
    )
    expect(refusal).toMatch(repetition instanceof RegExp ? repetition : /^$/)
    expect(again).toHaveLength(repetition === 'the same again' ? rows.length : 0)
  })
})

/** Of the operations that change fields: their table, and what two operators change, as their forms send it. */
const FIELDS: Record<
  Exclude<EditingForm, 'account.update-member'>,
  [table: string, first: object, second: object]
> = {
  'organization.rename': ['organization', { name: 'first' }, { name: 'second' }],
  'account.update': ['official_account', { basicId: '@first' }, { name: 'second' }],
  'endpoint.update': ['endpoint', { priority: 7 }, { name: 'second' }],
  'segment.update': ['segment', { condition: { language: 'ja' } }, { name: 'second' }],
  'channel.update': ['notification_channel', { language: 'ja' }, { name: 'second' }],
  'operator.update': ['operator', { role: 'manager' }, { name: 'second' }],
}
const WAITING = `select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'`
const columnOf = (field: string) => field.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`)

it.each(Object.entries(FIELDS))('two changes of %s at the same time are both kept', async (name, fields) => {
  const [table, first, second] = fields
  const operation = operationOf(name)
  // The second one begins after one or two statements of the first one, and ends, or waits for its lock.
  for (const count of [1, 2]) {
    const { target, run } = await prepare(operation)
    let [sent, isDone, other] = [0, false, Promise.resolve({})]
    const meet = async () => {
      sent += 1
      if (sent !== count) return
      other = run(operation, database, second).finally(() => {
        isDone = true
      })
      await expect.poll(async () => isDone || (await load(database, WAITING)).length > 0).toBe(true)
    }
    await run(
      operation,
      around(() => undefined, meet),
      first,
    )
    await other
    const [row] = await load<{ row: object }>(
      database,
      `select to_jsonb(t) as row from ${table} t where id = $1`,
      [target],
    )
    const kept = Object.entries({ ...first, ...second }).map(([field, value]) => [columnOf(field), value])
    expect(row?.row).toMatchObject(Object.fromEntries(kept))
  }
})

/** Bodies of the routes without an operation, or the reason why one is not tried. */
const PLAIN: Record<string, ((of: Objects) => Promise<string>) | { reason: string }> = {
  'POST /fleet-file/preview': { reason: 'It changes nothing.' },
  'POST /accounts/:/import-members': { reason: 'It is recorded with the last piece of its file.' },
  'POST /fleet-file/apply': async ({ account: id }) =>
    `organization,name,channel_id,channel_secret\n${MARK}${id},New,165${id.padStart(7, '0')},${'0'.repeat(32)}\n`,
  'POST /jobs/:/file': async ({ job }) => {
    await load(database, `update job set actor_kind = 'token', actor = 'token', total = 2 where id = $1`, [
      job,
    ])
    return '{}'
  },
}

const { url, operator } = await startSignedIn(database)
const ofOperations = CHANGES.map((each) => `POST ${routeOf(each).path.replace(':id', ':')}`)
const names = Object.keys(ROUTES).filter((name) => name.startsWith('POST') && !ofOperations.includes(name))

it.each(names)('a change of the console by %s is stored with one row, or neither', async (name) => {
  const bodyOf = PLAIN[name]
  if (bodyOf === undefined) throw new Error('add a row to PLAIN')
  if (typeof bodyOf === 'object') return
  // The number of running jobs is limited.
  await load(database, `update job set status = 'done', finished_at = now() where finished_at is null`)
  const tenant = await addTenant(database)
  const objects = await addObjects({ database, service }, tenant, { mark: `${MARK}${tenant.accountId}` })
  const path = ROUTES[name]?.request(objects).path
  const body = await bodyOf(objects)
  const headers = { ...operator.headers, 'content-type': 'text/csv' }
  const post = async () => (await fetch(`${url}/api${path}`, { method: 'POST', headers, body })).status
  const before = await stored()
  await withoutActivity(async () => expect(await post()).toBe(500))
  expect(await stored()).toEqual(before)
  const rows = await rowsOf(async () => expect(await post()).toBeLessThan(300))
  expect(rows).toHaveLength(name === 'POST /fleet-file/apply' ? 2 : 1)
  expect(await stored()).not.toEqual(before)
})
