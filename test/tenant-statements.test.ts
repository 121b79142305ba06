/** Runs every statement over members and their events for one tenant, beside a twin that has the same data. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { statementsSent } from '../src/observability/facts.ts'
import { simulatePlatform } from '../tools/simulator/platform.ts'
import { addTenant } from './support/database.ts'
import { addMembers, FORMATS, LISTS, useEverything, useUpAccount } from './support/everything.ts'
import { load } from './support/load.ts'
import { setUpService } from './support/service.ts'
import {
  FOR_ALL_ACCOUNTS,
  loadStatements,
  missingTenantStatements,
  TENANT_TABLES,
} from './support/statements.ts'

const { database, service } = await setUpService()
const platform = await simulatePlatform()
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
    answers.push(...(await useUpAccount({ database, tenant })))
    stopRecording()
  })
  afterAll(() => platform.close())

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
