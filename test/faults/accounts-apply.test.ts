/** `oa-audience accounts apply`: a fleet of accounts from a CSV file into service, on the simulated platform. */
import { beforeEach, expect, it } from 'vitest'
import { addAccount, addOrganization } from '../../src/accounts/provisioning.ts'
import { fileSource } from '../../src/cli/io.ts'
import { applyAccounts } from '../../src/jobs/apply-accounts.ts'
import { readFleet } from '../../src/jobs/fleet-file.ts'
import { commandActor } from '../../src/operators/actor.ts'
import { addPeople } from '../../tools/simulator/deliveries.ts'
import { MISBEHAVIOURS, type Misbehaviour } from '../../tools/simulator/misbehaviour.ts'
import type { SimulatedPlatform } from '../../tools/simulator/platform.ts'
import { randomAccount, type SimulatedAccount } from '../../tools/simulator/state.ts'
import { runCommand } from '../support/command.ts'
import { createTestDatabase } from '../support/database.ts'
import { load } from '../support/load.ts'
import { startPlatform } from '../support/platform.ts'
import { writeTemporaryFile } from '../support/process.ts'
import { startApp } from '../support/service.ts'

const PUBLIC_URL = 'https://oa.example.com'
const PUT = 'PUT /v2/bot/channel/webhook/endpoint'
const TEST = 'POST /v2/bot/channel/webhook/test'
const VERIFIED = expect.objectContaining({ verified: true })

const { database, ...created } = await createTestDatabase()
const service = await startApp(database)
const env: Record<string, string> = { ...created.env, PUBLIC_URL }
let platform: SimulatedPlatform
let fleet: Array<ReturnType<SimulatedPlatform['addAccount']>>
let organizationId: bigint

beforeEach(async () => {
  platform = await startPlatform()
  env.LINE_API_URL = platform.url
  fleet = [platform, ...['Second', 'Third'].map((name) => platform.addAccount(randomAccount(name)))]
  for (const account of fleet) {
    account.settings.testOrigin = service.url
    account.settings.webhook = { endpoint: 'https://chat.example.com/webhooks/line/1', active: true }
    addPeople(account, 3)
  }
  organizationId = await addOrganization(database, `Agency ${Math.random()}`)
})

const lineOf = ({ channelId, channelSecret, channelAccessToken, displayName }: SimulatedAccount) =>
  [organizationId, displayName, channelId, channelSecret, channelAccessToken].join(',')
const csv = (lines = fleet.map(({ account }) => lineOf(account))) =>
  ['organization,name,channel_id,channel_secret,channel_access_token', ...lines, ''].join('\n')

function fileOf(content: string): string {
  const file = writeTemporaryFile('fleet.csv', content)
  return file
}

async function apply(content: string, options: string[] = [], variables = {}) {
  const args = ['accounts', 'apply', fileOf(content), ...options]
  const result = await runCommand(args, { ...env, ...variables })
  for (const { account } of fleet)
    for (const secret of [account.channelSecret, account.channelAccessToken])
      expect(result.stdout + result.stderr).not.toContain(secret)
  return { ...result, rows: options.includes('--json') && result.stdout ? JSON.parse(result.stdout) : [] }
}

const callsTo = (call: string) => platform.calls.filter((made) => made === call)

/** With the transaction that wrote each row: an update without a change is one, too. */
const stored = () =>
  load<Record<string, unknown>>(
    database,
    'select *, xmin::text from official_account where organization_id = $1 order by id',
    [organizationId],
  )

const followers = () =>
  load(database, 'select from audience_member where organization_id = $1', [organizationId])

it('a fleet is added, pointed here, tested, verified and imported; a second run changes nothing', async () => {
  const first = await apply(csv(), ['--json'])
  expect(first.status).toBe(0)
  expect(first.stderr).toMatch(/accounts \[=*\] 100 %, 3 of 3/)
  const accounts = await stored()
  expect(first.rows).toEqual(
    fleet.map(({ account }, i) => ({
      account: String(accounts[i]?.id),
      organization: String(organizationId),
      name: account.displayName,
      channelId: account.channelId,
      change: 'added',
      columns: null,
      problem: null,
    })),
  )
  expect(accounts.map(({ verification }) => verification)).toEqual(fleet.map(() => VERIFIED))
  expect(await followers()).toHaveLength(9)
  expect(fleet.map(({ settings }) => settings.webhook)).toEqual(
    accounts.map(({ id }) => ({ endpoint: `${PUBLIC_URL}/api/line/${id}`, active: true })),
  )
  expect([callsTo(PUT).length, callsTo(TEST).length]).toEqual([3, 3])

  platform.calls.length = 0
  const second = await apply(csv(), ['--json'])
  expect(second.status).toBe(0)
  for (const row of second.rows) expect(row).toMatchObject({ change: 'unchanged', problem: null })
  expect(new Set(platform.calls)).toEqual(new Set(['GET /v2/bot/channel/webhook/endpoint']))
  expect(await stored()).toEqual(accounts)
})

it('a fleet is added once by several runs at the same time', async () => {
  const wanted = await readFleet(fileSource(fileOf(csv())))
  const runs = await Promise.all(
    Array.from({ length: 4 }, () => applyAccounts(database, commandActor(), wanted, async () => 0n)),
  )
  expect(await stored()).toHaveLength(3)
  const isAdded = runs.map(({ accounts }) => accounts.map(({ storedId }) => storedId === null))
  expect(isAdded.filter((added) => added.every(Boolean))).toHaveLength(1)
  expect(isAdded.filter((added) => !added.some(Boolean))).toHaveLength(3)
})

it('the report lists what only the console of LINE can do, and the next run verifies again what was off', async () => {
  const [{ settings }] = fleet as [SimulatedPlatform]
  settings.webhook = null
  const { status, stdout, stderr } = await apply(csv())
  expect(status).toBe(0)
  expect(stderr).toContain('verified: 2 of 3 accounts, followers added: 9\n')
  expect(stdout).toContain('"Use webhook": switch it on.')
  const endpoint = `${PUBLIC_URL}/api/line/${(await stored())[0]?.id}`
  settings.webhook = { endpoint, active: true }
  expect((await apply(csv())).stderr).toContain('verified: 3 of 3')
})

/** The first account has the problem. All others must be in service. */
const expectProblem = async (content: string, problem: RegExp) => {
  const { rows, status } = await apply(content, ['--json'])
  expect([status, rows[0].problem]).toEqual([1, expect.stringMatching(problem)])
  for (const other of rows.slice(1)) expect(other.problem).toBeNull()
  const [, ...others] = await stored()
  for (const { verification } of others) expect(verification).toEqual(VERIFIED)
}

it('an account with a problem (LINE limits its rate) delays no other, and the next run finishes it', async () => {
  const [{ settings }] = fleet as [SimulatedPlatform]
  settings.misbehaviour = MISBEHAVIOURS.limit as Misbehaviour
  await expectProblem(csv(), /LINE does not respond/)
  settings.misbehaviour = null
  platform.calls.length = 0
  const { rows, status } = await apply(csv(), ['--json'])
  expect([status, rows[0]]).toMatchObject([0, { change: 'unchanged', problem: null }])
  expect((await stored())[0]?.verification).toEqual(VERIFIED)
  expect(callsTo(PUT)).toHaveLength(1)
})

it('an account with a problem (its token is that of another channel) leaves the webhook of that channel alone', async () => {
  const [first, second] = fleet as [SimulatedPlatform, SimulatedPlatform]
  const before = second.settings.webhook
  const wrong = { ...first.account, channelAccessToken: second.account.channelAccessToken }
  await expectProblem(csv([lineOf(wrong)]), /token belongs to channel \d+, not to channel/)
  expect(second.settings.webhook).toEqual(before)
  expect(await followers()).toEqual([])
})

it('an account with a problem (its channel is that of an account of another organization) leaves the webhook of that account alone', async () => {
  const [{ account, settings }] = fleet as [SimulatedPlatform]
  await apply(csv())
  const webhook = settings.webhook
  organizationId = await addOrganization(database, 'Other agency')
  const { channelId, channelSecret } = account
  const columns = { name: 'x', channel_id: channelId, channel_secret: channelSecret }
  await addAccount(database, organizationId, columns)
  await expectProblem(csv([lineOf(account)]), /URL is that of account \d+, which has the same channel/)
  expect(settings.webhook).toEqual(webhook)
})

it('waits until LINE applies a new webhook URL', async () => {
  for (const { settings } of fleet) settings.propagationMs = 500
  const { rows, status } = await apply(csv(), ['--json'])
  expect([status, rows[2].problem]).toEqual([0, null])
  expect((await stored())[2]?.verification).toEqual(VERIFIED)
})

it('--dry-run shows what would change and changes nothing', async () => {
  await apply(csv(fleet.slice(0, 2).map(({ account }) => lineOf(account))))
  const before = await stored()
  platform.calls.length = 0
  const content = csv().replace(/^(\d+),Second,/m, '$1,Renamed,')
  const { rows } = await apply(content, ['--dry-run', '--json'])
  expect(rows).toMatchObject([
    { change: 'unchanged', columns: null },
    { change: 'updated', columns: 'name' },
    { account: null, change: 'added' },
  ])
  expect([await stored(), platform.calls]).toEqual([before, []])
})

it('--no-webhook needs no PUBLIC_URL, and neither sets nor tests the webhook', async () => {
  const refused = await apply(csv(), [], { PUBLIC_URL: '' })
  expect([refused.status, refused.stderr]).toEqual([1, expect.stringMatching(/PUBLIC_URL .+ --no-webhook/s)])
  expect(await stored()).toEqual([])
  const { rows, status } = await apply(csv(), ['--json', '--no-webhook'], { PUBLIC_URL: '' })
  expect([status, rows[0].problem, (await followers()).length]).toEqual([0, null, 9])
  expect([...callsTo(PUT), ...callsTo(TEST)]).toEqual([])
})

it('--add-organizations adds organizations that do not exist yet', async () => {
  const lines = fleet.slice(0, 2).map(({ account }) => lineOf(account).replace(/^\d+/, 'Hotels'))
  const { status, stderr } = await apply(csv(lines), ['--no-webhook'])
  expect([status, stderr]).toEqual([1, expect.stringContaining('no organization has this id or name.')])
  await apply(csv(lines), ['--no-webhook', '--add-organizations'])
  expect(
    await load(
      database,
      `select from official_account a join organization o on o.id = a.organization_id where o.name = 'Hotels'`,
    ),
  ).toHaveLength(2)
})
