/** Runs every statement over members and their events for one tenant, beside a twin that has the same data. */
import { beforeAll, describe, expect, it } from 'vitest'
import { statementsSent } from '../../src/observability/facts.ts'
import { addTenant } from '../support/database.ts'
import { addMembers, FORMATS, LISTS, useEverything, useUpAccount } from '../support/everything.ts'
import { load } from '../support/load.ts'
import { startPlatform } from '../support/platform.ts'
import { setUpService } from '../support/service.ts'
import {
  FOR_ALL_ACCOUNTS,
  loadStatements,
  missingTenantStatements,
  TENANT_TABLES,
} from '../support/statements.ts'

const { database, service } = await setUpService()
const platform = await startPlatform()
const credentials = { channelAccessToken: platform.account.channelAccessToken }
const tenant = await addTenant(database, credentials)
const twin = await addTenant(database)

const executed = new Set<string>()
const record = ({ statements }: { statements: string[] }) => {
  for (const name of statements) executed.add(name)
}

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

describe('the statements over members and events', () => {
  let answers: string[]
  let before: string[]

  beforeAll(async () => {
    await addMembers({ service, direct: database }, tenant)
    await addMembers({ service, direct: database }, twin)
    before = await rowsOfTwin()
    const stopRecording = statementsSent.subscribe(record)
    answers = await useEverything({ service, database, direct: database, platform, tenant })
    await useUpAccount({ database, tenant })
    stopRecording()
  })

  it('are all executed by this test', async () => {
    expect(await missingTenantStatements(({ name }) => executed.has(name))).toEqual(FOR_ALL_ACCOUNTS)
    const lists = [...executed].filter((name) => /^audience-.*(?<!-ids)$/.test(name))
    expect(lists).toHaveLength(LISTS.length * FORMATS.length)
  })

  it('never change a row of another tenant with the same ids', async () => {
    expect(await rowsOfTwin()).toEqual(before)
  })

  it('never return a member of another tenant', async () => {
    const foreign = (await service.members(twin)).map(({ id }) => id)
    expect(foreign).toHaveLength(4)
    const ids = new RegExp(`("id":"|^)(${foreign.join('|')})[",]`, 'm')
    for (const answer of answers) {
      expect(answer).not.toMatch(ids)
      expect(answer).not.toBe(`account ${twin.accountId}`)
    }
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
