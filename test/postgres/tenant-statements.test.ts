/** Runs every statement over members and their events for one tenant, beside a twin that has the same data. */
import pg from 'pg'
import { beforeAll, describe, expect, it, vi } from 'vitest'
import { addTenant } from '../support/database.ts'
import { addPeopleAndObjects, replaceAccount, useEverything } from '../support/everything.ts'
import { load } from '../support/load.ts'
import { startPlatform } from '../support/platform.ts'
import { setUpService } from '../support/service.ts'
import {
  FOR_ALL_ACCOUNTS,
  loadStatements,
  missingTenantStatements,
  TENANT_TABLES,
} from '../support/statements.ts'

const { database, env, service } = await setUpService()
const platform = await startPlatform()
const credentials = { channelAccessToken: platform.account.channelAccessToken }
// No id of another kind is equal to that of the organization.
await load(database, `select setval(pg_get_serial_sequence('organization', 'id'), 1000)`)
const tenant = await addTenant(database, credentials)
const twin = await addTenant(database)

/** Every row of the twin, except times of reading. */
async function rowsOfTwin(): Promise<string[]> {
  const rows = await Promise.all(
    TENANT_TABLES.map((table) =>
      load<{ row: string }>(
        database,
        `select t::text as row from ${table} t where channel_oa_id = $1 order by 1`,
        [twin.accountId],
      ),
    ),
  )
  return rows.flat().map(({ row }) => row)
}

type Sent = { name?: string; text: string; values?: unknown[] }

/** Names of executed statements. */
const executed = new Set<string>()
/** Of statements with the organizations of an operator: whether they found something, for this operator and for a stranger. */
const found = { own: new Set<string>(), strange: new Set<string>() }
/** A count of 0, or a position alone, is nothing. */
const isSomething = ({ rows }: pg.QueryResult) =>
  rows.some((row) => Object.values(row).some((value) => value !== null && value !== 0))

/** The index of the value that has the organizations of an operator, also in a statement that ignores it; -1: none has. */
function organizationsOf({ name, text, values = [] }: Sent): number {
  const [, parameter] = /visible\(.*?, \$(\d+)\)/s.exec(text) ?? []
  // A column of this name is stored.
  if (!name || text.includes('organization_ids')) return -1
  if (parameter !== undefined) return Number(parameter) - 1
  return values.findIndex(
    (value) => typeof value === 'object' && String(value) === String(tenant.organizationId),
  )
}

/** Sends each statement with organizations first as an operator of an organization that has nothing. */
function watchStatements() {
  const query = pg.Client.prototype.query as (sent: Sent) => Promise<pg.QueryResult>
  return vi.spyOn(pg.Client.prototype, 'query').mockImplementation(async function (
    this: pg.Client,
    sent: Sent,
  ) {
    const { name = '', values = [] } = sent
    executed.add(name)
    const at = organizationsOf(sent)
    if (at === -1) return query.call(this, sent)
    const strange = values.with(at, '{0}')
    const [other, own] = [query.call(this, { ...sent, values: strange }), query.call(this, sent)]
    if (isSomething(await other)) found.strange.add(name)
    if (isSomething(await own)) found.own.add(name)
    return own
  } as never)
}

describe('the statements over members and events', () => {
  let answers: string[]
  let before: string[]

  beforeAll(async () => {
    const objects = await addPeopleAndObjects({ service, direct: database }, tenant, 'Friends')
    await addPeopleAndObjects({ service, direct: database }, twin, 'Strangers')
    before = await rowsOfTwin()
    const spy = watchStatements()
    answers = await useEverything({ service, database, direct: database, env, platform, tenant, objects })
    await replaceAccount({ env, tenant })
    spy.mockRestore()
  })

  it('are all executed by this test', async () => {
    expect(await missingTenantStatements(({ name }) => executed.has(name))).toEqual(FOR_ALL_ACCOUNTS)
  })

  it('never change a row of another tenant with the same ids', async () => {
    expect(await rowsOfTwin()).toEqual(before)
  })

  it('never return a member of another tenant', async () => {
    const foreign = (await service.members(twin)).map(({ id }) => id)
    expect(foreign).toHaveLength(5)
    const ids = new RegExp(`("id":"|^)(${foreign.join('|')})[",]|Strangers`, 'm')
    for (const answer of answers) expect(answer).not.toMatch(ids)
  })

  it('that filter organizations find something for an operator of one, and nothing for others', async () => {
    const filtered = (await loadStatements()).filter(({ text }) => text.includes('visible('))
    expect(filtered.map(({ name }) => name).filter((name) => !found.own.has(name))).toEqual([])
    // Whether a client also concerns others is its purpose.
    expect([...found.strange]).toEqual(['select-foreign-key-of-client'])
  })
})

/**
 * Whether a job or a client also concerns organizations that its operator does not see, the organizations of a file, and a statement for
 * operators of some organizations alone.
 */
const OTHER_PREDICATES = [
  'account-ids-of-organizations',
  'lock-job',
  'select-failure-reasons-of-organizations',
  'select-foreign-key-of-client',
  'select-stored-accounts',
]

it('operators see rows by visible(), which the planner inlines, and by no predicate of one statement', async () => {
  const statements = await loadStatements()
  const byHand = statements.filter(({ text }) => /organization_id (=|<>|!=) (any|all) \(/.test(text))
  expect(byHand.map(({ name }) => name).sort()).toEqual(OTHER_PREDICATES)
  const filtered = statements.filter(({ text }) => text.includes('visible('))
  expect(filtered.length).toBeGreaterThan(25)
  for (const { name, text } of filtered) {
    const plan = await load(database, `explain (generic_plan, verbose) ${text}`, [])
    expect([name, JSON.stringify(plan)]).toEqual([name, expect.not.stringContaining('visible(')])
  }
})

it('all statements of the service are valid on the schema', async () => {
  const invalid: string[] = []
  await database.session(async (session) => {
    for (const { name, text } of await loadStatements()) {
      if (!/^\s*(select|with|insert|update|delete)\b/.test(text)) continue
      await session.query(`prepare "${name}" as ${text}`).catch((error) => invalid.push(`${name}: ${error}`))
    }
  })
  expect(invalid).toEqual([])
})
