/** Runs every statement over members and their events for one tenant, beside a twin that has the same data. */
import { readdirSync, readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { databaseQuery } from '../src/observability/facts.ts'
import { simulatePlatform } from '../tools/simulator/platform.ts'
import { addTenant } from './support/database.ts'
import { addMembers, FORMATS, LISTS, useEverything } from './support/everything.ts'
import { load } from './support/load.ts'
import { setUpFile } from './support/service.ts'

/** Tables whose rows belong to one account. */
const TABLES = [
  'audience_member',
  'audience_tag',
  'erased_member',
  'erased_person',
  'event',
  'event_key',
  'member_edit',
  'pending_erasure',
  'tracked_activity',
  'tracking_event',
  'unsent_message',
]

/** Statements that serve all accounts on purpose: background work of the service itself, and what operators see of all accounts. */
const FOR_ALL_ACCOUNTS = [
  'take-due-profiles',
  'count-due-profiles',
  'select-all-pending-erasures',
  'take-uncounted-audience',
  'select-fleet',
  'last-event-id',
]

const { database, service } = await setUpFile()
const platform = await simulatePlatform()
const credentials = { channelAccessToken: platform.account.channelAccessToken }
const tenant = await addTenant(database, credentials)
const twin = await addTenant(database)

const executed = new Set<string>()
const record = (message: unknown) => {
  for (const name of (message as { statements: string[] }).statements) executed.add(name)
}

/** The names of the statements in src/ that mention one of the tables, except those of maintenance. */
function namesInSources(): string[] {
  const root = fileURLToPath(new URL('../src', import.meta.url))
  const files = readdirSync(root, { recursive: true, encoding: 'utf8' })
  const sources = files.filter((name) => name.endsWith('.ts') && !name.startsWith('maintenance/'))
  const statement = /name: '([a-z-]+)',\s*text:\s*(?:`([^`]*)`|'([^']*)')/g
  const mentionsTable = new RegExp(`\\b(${TABLES.join('|')})\\b|flush_events`)
  return sources.flatMap((name) =>
    [...readFileSync(`${root}/${name}`, 'utf8').matchAll(statement)].flatMap(
      ([, found = '', block = '', line = '']) => (mentionsTable.test(block + line) ? [found] : []),
    ),
  )
}

/** Every row of the twin, except times of reading. */
async function rowsOfTwin(): Promise<string[]> {
  const rows = await Promise.all(
    TABLES.map((table) =>
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
    databaseQuery.channels.start.subscribe(record)
    answers = await useEverything({ service, database, direct: database, platform, tenant })
    databaseQuery.channels.start.unsubscribe(record)
  })
  afterAll(() => platform.close())

  it('are all executed by this test', () => {
    const untested = namesInSources().filter((name) => !executed.has(name))
    expect(untested.filter((name) => !FOR_ALL_ACCOUNTS.includes(name))).toEqual([])
    const lists = [...executed].filter((name) => name.startsWith('audience-'))
    expect(lists).toHaveLength(LISTS.length * FORMATS.length)
  })

  it('never change a row of another tenant with the same ids', async () => {
    expect(await rowsOfTwin()).toEqual(before)
  })

  it('never return a member of another tenant', async () => {
    const foreign = (await service.members(twin)).map(({ id }) => id)
    expect(foreign).toHaveLength(4)
    const ids = new RegExp(`("id":"|^)(${foreign.join('|')})[",]`, 'm')
    for (const answer of answers) expect(answer).not.toMatch(ids)
  })
})
