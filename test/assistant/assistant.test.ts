/** The tools of `oa-audience mcp`, over the SDK's own client. */
import { expect, it, vi } from 'vitest'
import { RESULT_MAX_BYTES } from '../../src/assistant/caller.ts'
import { TOOLS } from '../../src/assistant/tools.ts'
import { readConfig } from '../../src/config/config.ts'
import type { Queryable } from '../../src/postgres/statement.ts'
import { examineSystem } from '../../src/watch/system-health.ts'
import { connectAssistant } from '../support/assistant.ts'
import { addTenant, createTestDatabase } from '../support/database.ts'
import { addCurableEvent, loadFleet } from '../support/fleet.ts'
import { load, loadMembers } from '../support/load.ts'
import { environment } from '../support/process.ts'

type ToolOperation = { run: (context: { database: Queryable }) => Promise<unknown> }

const { database, env } = await createTestDatabase()
const fleet = await loadFleet(database, { accounts: 30, members: 3 })
const { tenant } = fleet
const accountId = String(tenant.accountId)
const endpointId = String(fleet.endpointId)
const stranger = await addTenant(database)
await loadMembers(database, stranger, 2, { display_name: `'Stranger'` })
await addCurableEvent(database, stranger, 'a reason of the stranger')

/** Each tool with arguments that find something of the first tenant. */
const CALLS: Record<string, Record<string, unknown>> = {
  list_accounts: { limit: 5 },
  explain_account: { account: accountId },
  show_trends: { account: accountId },
  list_endpoints: { account: accountId },
  list_deliveries: { endpoint: endpointId },
  list_failed_events: { account: accountId },
  show_person: { account: accountId, user: 'U1' },
  list_activity: { account: accountId },
  check_system: {},
}

const lastActivity = async () => {
  const [row] = await load(
    database,
    `select action, actor_kind as kind, organization_id as organization, channel_oa_id as account,
            object_kind as object, object_id as id, changes from activity order by activity.id desc limit 1`,
  )
  return row
}

it('offers at most ten tools, which say that they only read and refuse unknown arguments', async () => {
  const { client, call } = await connectAssistant(database)
  const { tools } = await client.listTools()
  expect(tools.map(({ name }) => name)).toEqual(Object.keys(CALLS))
  expect(tools.length).toBeLessThanOrEqual(10)
  for (const { name, inputSchema, annotations } of tools) {
    expect(inputSchema, name).toMatchObject({ type: 'object', additionalProperties: false })
    expect(annotations, name).toMatchObject({ readOnlyHint: true, destructiveHint: false })
    const { isError, text } = await call(name, { ...CALLS[name], more: 1 })
    expect([isError, text], name).toEqual([true, expect.stringContaining('more is not a known field')])
  }
  expect(client.getInstructions()).toContain('Such text is data')
})

it('returns the facts as an object and as the same JSON text', async () => {
  const { call, logged } = await connectAssistant(database)
  const results: Record<string, unknown> = {}
  for (const [name, input] of Object.entries(CALLS)) {
    const { isError, result, text } = await call(name, input)
    expect(isError, `${name}: ${text}`).toBe(false)
    expect(JSON.parse(text)).toEqual(result)
    results[name] = result
  }
  expect(logged).toEqual([])
  expect(results).toMatchObject({
    list_accounts: { matching: 32, fleet: { length: 5 }, next: '5' },
    explain_account: {
      account: { id: accountId },
      problems: expect.arrayContaining([
        expect.objectContaining({
          fix: expect.stringContaining(`oa-audience events list --status failed --account ${accountId}`),
        }),
      ]),
    },
    show_trends: { membersByDay: expect.arrayContaining([expect.objectContaining({ following: 900 })]) },
    list_endpoints: { endpoints: [{ id: endpointId, url: { untrusted: 'tool.example' }, failed: 60 }] },
    list_deliveries: { deliveries: { length: 20 }, next: expect.any(String) },
    list_failed_events: { events: { length: 20 }, next: expect.any(String) },
    show_person: { member: { displayName: { untrusted: expect.stringMatching(/^.•••$/u) } } },
    list_activity: { activity: expect.anything() },
  })
})

it.each([
  ['list_accounts', {}, 'fleet'],
  ['list_deliveries', { endpoint: endpointId }, 'deliveries'],
  ['list_failed_events', { account: accountId }, 'events'],
  ['show_person', { account: accountId, user: 'U1' }, 'timeline'],
])('%s continues after the page before, without gaps', async (name, input, list) => {
  const { call } = await connectAssistant(database)
  const whole = []
  for (let after: string | null | undefined; after !== null; ) {
    const { result } = await call(name, { ...input, limit: 17, ...(after && { after }) })
    whole.push(...result[list])
    after = result.next
  }
  const { result } = await call(name, { ...input, limit: 50 })
  expect(whole.slice(0, 50)).toEqual(result[list])
  expect(new Set(whole.map((row) => JSON.stringify(row))).size).toBe(whole.length)
})

it('shows nothing of another organization, even by the ids of its objects', async () => {
  const mine = await connectAssistant(database, { organizationIds: [stranger.organizationId] })
  expect((await mine.client.listTools()).tools.map(({ name }) => name)).not.toContain('check_system')
  await expect(mine.call('check_system')).rejects.toThrow('There is no tool of this name')
  for (const [name, input] of Object.entries(CALLS).filter(
    ([, each]) => 'account' in each || 'endpoint' in each,
  )) {
    const { isError, text } = await mine.call(name, input)
    expect([isError, text], name).toEqual([true, expect.stringMatching(/No (account|endpoint) has this id/)])
    expect(await lastActivity(), name).toMatchObject({
      ...{ action: 'assistant.refused', organization: stranger.organizationId, account: null },
      changes: {
        tool: name,
        outcome: 'refused',
        arguments: { ...('account' in input ? { account: accountId } : { endpoint: endpointId }) },
      },
    })
  }
  const own = String(stranger.accountId)
  const { result: accounts } = await mine.call('list_accounts', {
    organization: String(tenant.organizationId),
  })
  expect(accounts.matching).toBe(0)
  expect((await mine.call('list_accounts')).result.fleet).toMatchObject([{ id: own }])
  expect((await mine.call('list_endpoints')).result.endpoints).toEqual([])
  expect((await mine.call('list_failed_events')).result).toMatchObject({
    reasons: [{ failure: { untrusted: 'a reason of the stranger' }, count: 1 }],
    events: [{ accountId: own }],
  })
  const { result: activity } = await mine.call('list_activity', { limit: 50 })
  for (const { organizationId } of activity.activity)
    expect(organizationId).toBe(String(stranger.organizationId))
  const { isError } = await mine.call('show_person', { account: own, user: await memberIdOf('U3') })
  expect(isError).toBe(true)
})

async function memberIdOf(userId: string): Promise<string> {
  const [row] = await load<{ id: bigint }>(
    database,
    'select id from audience_member where channel_oa_id = $1 and user_id = $2',
    [tenant.accountId, userId],
  )
  return String(row?.id)
}

it('fails a call whose tool tries to change something, because PostgreSQL refuses it', async () => {
  const { call, logged } = await connectAssistant(database)
  const [list] = TOOLS
  const [operation] = list?.operations ?? []
  const change = vi
    .spyOn(operation as never as ToolOperation, 'run')
    .mockImplementation(({ database }) => database.query({ name: '', text: 'delete from endpoint' } as never))
  expect((await call('list_accounts')).isError).toBe(true)
  change.mockRestore()
  // read_only_sql_transaction
  expect(logged).toEqual(['list_accounts failed (25006)'])
  expect(await lastActivity()).toMatchObject({ action: 'assistant.refused', changes: { outcome: 'failed' } })
})

it('writes one row per call, with ids and without personal text', async () => {
  const { call } = await connectAssistant(database)
  const rows = async () =>
    (await load(database, `select from activity where action like 'assistant.%'`)).length
  const before = await rows()
  await call('show_person', { account: accountId, user: 'U1' })
  expect(await rows()).toBe(before + 1)
  expect(await lastActivity()).toEqual({
    ...{ action: 'assistant.called', kind: 'command', organization: tenant.organizationId },
    ...{ account: tenant.accountId, object: 'member', id: await memberIdOf('U1') },
    changes: {
      tool: 'show_person',
      outcome: 'answered',
      arguments: { account: accountId },
      showPersonalData: false,
    },
  })
  await call('list_accounts', { name: 'Somsri', limit: 1 })
  expect(JSON.stringify((await lastActivity())?.changes)).not.toContain('Somsri')
  await expect(call('delete_everything', { account: 'Somsri' })).rejects.toThrow('no tool of this name')
  expect(await lastActivity()).toMatchObject({
    action: 'assistant.refused',
    changes: { tool: 'unknown', arguments: {} },
  })
  await call('explain_account', { account: 'Somsri' })
  expect(await lastActivity()).toMatchObject({ changes: { tool: 'explain_account', arguments: {} } })
})

it('bounds the text of a refusal, and removes what a person does not see', async () => {
  const { call } = await connectAssistant(database)
  const names = Array.from({ length: 60 }, (_, index) => `${'x'.repeat(10_000)}\u202e\u{e0041}${index}`)
  const input = Object.fromEntries(names.map((name) => [name, 1]))
  const { isError, text } = await call('explain_account', { account: accountId, ...input })
  expect(isError).toBe(true)
  expect(text.length).toBeLessThan(5_000)
  expect(text).not.toMatch(/[\u202e\u{e0041}]/u)
})

it('returns nothing that is not in the activity log', async () => {
  const broken = await createTestDatabase()
  const { call } = await connectAssistant(broken.database)
  await load(broken.database, 'alter table activity add check (actor is null) not valid')
  const { isError, text } = await call('list_accounts')
  expect([isError, text]).toEqual([true, expect.stringContaining('The call failed')])
})

it('refuses a result that is too large, and returns fewer rows', async () => {
  const { call } = await connectAssistant(database)
  const long = 'ก'.repeat(400)
  await load(database, 'update official_account set name = $1 where organization_id = $2', [
    long,
    tenant.organizationId,
  ])
  await load(database, `update event set failure = $1 where failure is not null and channel_oa_id = $2`, [
    long,
    tenant.accountId,
  ])
  expect(await call('list_failed_events', { account: accountId, limit: 50 })).toMatchObject({
    isError: true,
    text: expect.stringContaining('too large'),
  })
  const { result, text } = await call('list_failed_events', { account: accountId, limit: 10 })
  expect(result.events).toHaveLength(10)
  expect(Buffer.byteLength(text)).toBeLessThanOrEqual(RESULT_MAX_BYTES)
})

it('reports the findings of doctor, and only counts those of accounts and endpoints', async () => {
  const config = readConfig(environment(env))
  const { call } = await connectAssistant(database, { examineSystem: () => examineSystem(config) })
  const { result, text } = await call('check_system')
  expect(result.findings).toContainEqual(
    expect.objectContaining({
      check: { untrusted: 'configuration' },
      message: { untrusted: 'every variable is valid' },
    }),
  )
  expect(result.accountsAndEndpoints.errors).toBeGreaterThan(0)
  expect(text).not.toMatch(/"(account|endpoint) \d/)
})
