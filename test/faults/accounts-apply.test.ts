/** `oa-audience accounts apply`: a fleet of accounts from a CSV file into service, on the simulated platform. */
import { spawn } from 'node:child_process'
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { beforeEach, describe, expect, it } from 'vitest'
import { findAccount } from '../../src/accounts/account.ts'
import { applyAccounts } from '../../src/accounts/apply-accounts.ts'
import { readFleet } from '../../src/accounts/fleet-file.ts'
import { addAccount, addOrganization } from '../../src/accounts/provisioning.ts'
import { verifyAccount } from '../../src/accounts/verify.ts'
import { fileSource } from '../../src/cli/io.ts'
import { LineApi } from '../../src/line-api/client.ts'
import { deliveryPaths } from '../../src/line-api/line-signature.ts'
import { commandActor } from '../../src/operators/actor.ts'
import { addPeople } from '../../tools/simulator/deliveries.ts'
import { MISBEHAVIOURS, type Misbehaviour } from '../../tools/simulator/misbehaviour.ts'
import type { SimulatedPlatform } from '../../tools/simulator/platform.ts'
import { randomAccount, type SimulatedAccount } from '../../tools/simulator/state.ts'
import { runCommand } from '../support/command.ts'
import { createTestDatabase } from '../support/database.ts'
import { load } from '../support/load.ts'
import { startPlatform } from '../support/platform.ts'
import { MAIN, temporaryDirectory } from '../support/process.ts'
import { startApp } from '../support/service.ts'

const PUBLIC_URL = 'https://oa.example.com'
/** where the webhooks of the fleet point before */
const OTHER_TOOL = 'https://chat.example.com/webhooks/line/1'
const PUT = 'PUT /v2/bot/channel/webhook/endpoint'
const TEST = 'POST /v2/bot/channel/webhook/test'

const { database, ...created } = await createTestDatabase()
const service = await startApp(database)
const env: Record<string, string> = { ...created.env, PUBLIC_URL }
let platform: SimulatedPlatform
let fleet: Array<ReturnType<SimulatedPlatform['addAccount']>>
let organizationId: bigint

beforeEach(async () => {
  platform = await startPlatform()
  env.LINE_API_URL = platform.url
  fleet = [
    platform,
    platform.addAccount(randomAccount('Second')),
    platform.addAccount(randomAccount('Third')),
  ]
  for (const { settings } of fleet) {
    settings.testOrigin = service.url
    settings.webhook = { endpoint: OTHER_TOOL, active: true }
  }
  for (const account of fleet) addPeople(account, 3)
  organizationId = await addOrganization(database, `Agency ${Math.random()}`)
})

const HEADER = 'organization,name,channel_id,channel_secret,channel_access_token'

const lineOf = ({ channelId, channelSecret, channelAccessToken, displayName }: SimulatedAccount) =>
  [organizationId, displayName, channelId, channelSecret, channelAccessToken].join(',')

const csv = (lines = fleet.map(({ account }) => lineOf(account))) => [HEADER, ...lines, ''].join('\n')

function fileOf(content: string): string {
  const file = join(temporaryDirectory(), 'fleet.csv')
  writeFileSync(file, content)
  return file
}

async function apply(content: string, options: string[] = [], variables = {}) {
  const result = await runCommand(['accounts', 'apply', fileOf(content), ...options], {
    ...env,
    ...variables,
  })
  for (const { account } of fleet) {
    for (const secret of [account.channelSecret, account.channelAccessToken])
      expect(result.stdout + result.stderr).not.toContain(secret)
  }
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

const VERIFIED = expect.objectContaining({ verified: true })

async function followersOf(accounts: Array<Record<string, unknown>>): Promise<number> {
  const ids = accounts.map(({ id }) => id)
  const members = await load(database, 'select from audience_member where channel_oa_id = any ($1)', [ids])
  return members.length
}

/** As the running service does every hour. */
async function verifyUnasked(id: bigint) {
  const verifier = { database, publicUrl: PUBLIC_URL, webhookPaths: deliveryPaths, now: Date.now }
  const account = await findAccount(database, id)
  if (account === null) throw new Error('no account')
  await verifyAccount({ ...verifier, lineApi: new LineApi(platform.url) }, account, {}, false)
}

describe('a fleet', () => {
  it('is added, pointed here, tested, verified and imported; a second run changes nothing', async () => {
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
    expect(await followersOf(accounts)).toBe(9)
    const replaced = await load<{ url: string[] }>(
      database,
      `select changes -> 'url' as url from activity where action = 'account.webhook_set' and organization_id = $1`,
      [organizationId],
    )
    expect(replaced.map(({ url: [before] }) => before)).toEqual(fleet.map(() => OTHER_TOOL))
    for (const [i, { settings }] of fleet.entries())
      expect(settings.webhook).toEqual({
        endpoint: `${PUBLIC_URL}/api/line/${accounts[i]?.id}`,
        active: true,
      })
    expect(callsTo(PUT)).toHaveLength(3)
    expect(callsTo(TEST)).toHaveLength(3)

    await verifyUnasked(accounts[0]?.id as bigint)
    const beforeSecond = await stored()
    platform.calls.length = 0
    const second = await apply(csv(), ['--json'])
    expect(second.status).toBe(0)
    for (const row of second.rows) expect(row).toMatchObject({ change: 'unchanged', problem: null })
    expect(new Set(platform.calls)).toEqual(new Set(['GET /v2/bot/channel/webhook/endpoint']))
    expect(await stored()).toEqual(beforeSecond)
  })

  it('gets only what differs: an empty cell keeps the stored value', async () => {
    const content = csv()
    await apply(content)
    const before = await stored()
    platform.calls.length = 0
    const [{ account }] = fleet as [SimulatedPlatform]
    const lines = [
      'channel-id,Organization,name,basic_id,channel_secret',
      `${account.channelId},${organizationId},Renamed,${account.basicId},`,
      `${fleet[1]?.account.channelId},${organizationId},,,`,
    ]
    const { rows } = await apply(lines.join('\r\n'), ['--json'])
    expect(rows).toMatchObject([
      { change: 'updated', columns: 'name, basic_id', name: 'Renamed', problem: null },
      { change: 'unchanged', name: 'Second', problem: null },
    ])
    const [first, ...others] = await stored()
    expect(first).toMatchObject({ name: 'Renamed', basic_id: account.basicId })
    expect(first?.channel_secret).toBe(before[0]?.channel_secret)
    expect(first?.credentials_version).toEqual(before[0]?.credentials_version)
    expect(others).toEqual(before.slice(1))
    // The identity is checked with the new basic id. The other account is complete.
    expect(callsTo('GET /v2/bot/info')).toHaveLength(1)
    expect(callsTo(PUT)).toHaveLength(0)
  })

  it('is added once by several runs at the same time', async () => {
    const wanted = await readFleet(fileSource(fileOf(csv())))
    const runs = await Promise.all(
      Array.from({ length: 4 }, () => applyAccounts(database, commandActor(), wanted, async () => 0n)),
    )
    expect(await stored()).toHaveLength(3)
    const isAdded = runs.map(({ accounts }) => accounts.map(({ storedId }) => storedId === null))
    expect(isAdded.filter((added) => added.every(Boolean))).toHaveLength(1)
    expect(isAdded.filter((added) => !added.some(Boolean))).toHaveLength(3)
  })
})

describe('the report', () => {
  it('lists what only the console of LINE can do, and the next run verifies again what was off', async () => {
    const [{ settings }] = fleet as [SimulatedPlatform]
    settings.webhook = null
    const { status, stdout } = await apply(csv())
    expect(status).toBe(0)
    expect(stdout).toContain('\nverified: 2 of 3 accounts, followers added: 9\n')
    expect(stdout).toContain('"Use webhook": switch it on.')
    const [first] = await stored()
    const endpoint = `${PUBLIC_URL}/api/line/${first?.id}`
    settings.webhook = { endpoint, active: true }
    expect((await apply(csv())).stdout).toContain('verified: 3 of 3')
    settings.webhook = { endpoint, active: false }
    const third = await apply(csv())
    expect([third.status, third.stdout]).toEqual([0, expect.stringContaining('verified: 2 of 3')])
  })

  it('has no problem for an unverified account, which may not list its followers', async () => {
    for (const { settings } of fleet) settings.isVerified = false
    const { rows, status } = await apply(csv(), ['--json'])
    expect([status, rows[0].problem, await followersOf(await stored())]).toEqual([0, null, 0])
  })

  it('counts the problems that its rows do not have', async () => {
    const lines = Array.from({ length: 101 }, (_, i) => `${organizationId},Shop,${900_000 + i},,`)
    const { status, rows, stderr } = await apply(csv(lines), ['--json', '--no-webhook'])
    expect(status).toBe(1)
    expect(rows.filter(({ problem }: { problem: string | null }) => problem !== null)).toHaveLength(100)
    expect(stderr).toContain('oa-audience: 1 more accounts have a problem.')
  })
})

describe('an account with a problem', () => {
  /** The first account has the problem. All others must be in service. */
  const expectProblem = async (content: string, problem: RegExp) => {
    const { rows, status } = await apply(content, ['--json'])
    expect([status, rows[0].problem]).toEqual([1, expect.stringMatching(problem)])
    for (const other of rows.slice(1)) expect(other.problem).toBeNull()
    const [, ...others] = await stored()
    for (const { verification } of others) expect(verification).toEqual(VERIFIED)
  }

  it('(LINE limits its rate) delays no other, and the next run finishes it', async () => {
    const [{ settings }] = fleet as [SimulatedPlatform]
    settings.misbehaviour = MISBEHAVIOURS.limit as Misbehaviour
    await expectProblem(csv(), /platform does not respond/)
    settings.misbehaviour = null
    platform.calls.length = 0
    const { rows, status } = await apply(csv(), ['--json'])
    expect(status).toBe(0)
    expect(rows[0]).toMatchObject({ change: 'unchanged', problem: null })
    expect((await stored())[0]?.verification).toEqual(VERIFIED)
    expect(callsTo(PUT)).toHaveLength(1)
  })

  it('(its token is that of another channel) leaves the webhook of that channel alone', async () => {
    const [first, second] = fleet as [SimulatedPlatform, SimulatedPlatform]
    const before = second.settings.webhook
    const wrong = { ...first.account, channelAccessToken: second.account.channelAccessToken }
    await expectProblem(csv([lineOf(wrong)]), /token belongs to channel \d+, not to channel/)
    expect(second.settings.webhook).toEqual(before)
    expect(await followersOf(await stored())).toBe(0)
  })

  it('(its channel is that of an account of another organization) leaves the webhook of that account alone', async () => {
    const [{ account, settings }] = fleet as [SimulatedPlatform]
    await apply(csv())
    const webhook = settings.webhook
    organizationId = await addOrganization(database, 'Other agency')
    // The file cannot add it.
    expect((await apply(csv([lineOf(account)]))).stderr).toContain('is already account')
    const { channelId, channelSecret } = account
    const columns = { name: 'x', channel_id: channelId, channel_secret: channelSecret }
    await addAccount(database, organizationId, columns)
    await expectProblem(
      csv([lineOf(account)]),
      /webhook URL is that of account \d+, which has the same channel/,
    )
    expect(settings.webhook).toEqual(webhook)
  })

  it('(its bot user id differs from that of its token) keeps its webhook', async () => {
    const [{ account, settings }] = fleet as [SimulatedPlatform]
    const before = settings.webhook
    const content = `${HEADER},bot_user_id\n${lineOf(account)},U${'0'.repeat(32)}\n`
    await expectProblem(content, /another bot user id/)
    expect(settings.webhook).toEqual(before)
  })
})

it('waits until LINE applies a new webhook URL', async () => {
  for (const { settings } of fleet) settings.propagationMs = 500
  const { rows, status } = await apply(csv(), ['--json'])
  expect([status, rows[2].problem]).toEqual([0, null])
  expect((await stored())[2]?.verification).toEqual(VERIFIED)
})

it('continues after it was killed, without repeating what is done', async () => {
  const { settings } = fleet[2] as SimulatedPlatform
  settings.misbehaviour = MISBEHAVIOURS.silent as Misbehaviour
  const child = spawn(process.execPath, [MAIN, 'accounts', 'apply', fileOf(csv())], {
    env: { ...process.env, ...env },
    stdio: 'ignore',
  })
  const exited = new Promise((resolve) => child.once('close', resolve))
  await expect.poll(() => callsTo(PUT).length).toBe(2)
  child.kill('SIGKILL')
  await exited
  settings.misbehaviour = null
  const { status } = await apply(csv(), ['--json'])
  expect(status).toBe(0)
  expect(callsTo(PUT)).toHaveLength(3)
  expect(callsTo(TEST)).toHaveLength(3)
})

it('--dry-run shows what would change and changes nothing', async () => {
  await apply(csv(fleet.slice(0, 2).map(({ account }) => lineOf(account))))
  const before = await stored()
  platform.calls.length = 0
  const content = csv().replace(/^(\d+),Second,/m, '$1,Renamed,')
  const { rows, status } = await apply(content, ['--dry-run', '--json'])
  expect(status).toBe(0)
  expect(rows).toMatchObject([
    { change: 'unchanged', columns: null },
    { change: 'updated', columns: 'name' },
    { account: null, change: 'added' },
  ])
  expect(await stored()).toEqual(before)
  expect(platform.calls).toEqual([])
  expect((await apply(content, ['--dry-run'])).stdout).toContain('nothing was changed')
})

describe('--no-webhook', () => {
  it('needs no PUBLIC_URL, and neither sets nor tests the webhook', async () => {
    const { rows, status } = await apply(csv(), ['--json', '--no-webhook'], { PUBLIC_URL: '' })
    expect(status).toBe(0)
    expect([rows[0].problem, await followersOf(await stored())]).toEqual([null, 9])
    expect(callsTo(PUT)).toHaveLength(0)
    expect(callsTo(TEST)).toHaveLength(0)
  })

  it.each([
    ['', 'PUBLIC_URL is not set'],
    ['http://oa.example.com', 'PUBLIC_URL must begin with https://'],
  ])('is proposed if PUBLIC_URL is %j', async (publicUrl, message) => {
    const { status, stderr } = await apply(csv(), [], { PUBLIC_URL: publicUrl })
    expect(status).toBe(1)
    expect(stderr).toContain(`oa-audience: ${message}`)
    expect(stderr).toContain('--no-webhook')
    expect(await stored()).toEqual([])
  })
})

describe('an organization that does not exist yet', () => {
  it('is added with --add-organizations, and not otherwise', async () => {
    const channels = fleet.slice(0, 2).map(({ account }) => account)
    const lines = channels.map((account) => lineOf(account).replace(/^\d+/, 'Hotels'))
    const { status, stderr } = await apply(csv(lines), ['--no-webhook'])
    expect([status, stderr]).toEqual([1, expect.stringContaining('no organization has this id or name.')])
    const preview = await apply(csv(lines), ['--no-webhook', '--add-organizations', '--dry-run', '--json'])
    expect(preview.rows).toMatchObject([{ organization: 'Hotels' }, { organization: 'Hotels' }])
    const named = () => load(database, `select from organization where name = 'Hotels'`)
    expect(await named()).toHaveLength(0)
    await apply(csv(lines), ['--no-webhook', '--add-organizations'])
    expect(await named()).toHaveLength(1)
    const ids = channels.map(({ channelId }) => channelId)
    const added = 'select from official_account where channel_id = any ($1)'
    expect(await load(database, added, [ids])).toHaveLength(2)
  })
})
