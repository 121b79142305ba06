/** Audiences of segments at LINE: `segments sync`, what LINE gets, each state, and what ends them. */
import { beforeEach, describe, expect, it } from 'vitest'
import { SYNC_TEXTS } from '../../src/audience/line-audience-texts.ts'
import { SegmentSync } from '../../src/audience/line-audiences.ts'
import { takeTurn } from '../../src/jobs/turn.ts'
import { LineApi } from '../../src/line-api/client.ts'
import type { SimulatedAudience } from '../../tools/simulator/audiences.ts'
import { refuseCredentials } from '../../tools/simulator/misbehaviour.ts'
import { randomAccount } from '../../tools/simulator/state.ts'
import { runCommand } from '../support/command.ts'
import { signedIn, startConsole } from '../support/console.ts'
import { addTenant, createTestDatabase, type Tenant } from '../support/database.ts'
import { endWaitsOfJobs, finishJobs } from '../support/jobs.ts'
import { later } from '../support/line-audiences.ts'
import { load, loadMembers } from '../support/load.ts'
import { startPlatform } from '../support/platform.ts'

const { database, env } = await createTestDatabase()
const platform = await startPlatform()
const { url } = await startConsole(database)
const sync = new SegmentSync(database, new LineApi(platform.url, { audienceCallsPerSecond: 1_000 }))

let tenant: Tenant
let line: ReturnType<typeof platform.addAccount>
let segment: string

const ID = `'U' || lpad(to_hex(i), 32, '0')`
const idOf = (no: number) => `U${no.toString(16).padStart(32, '0')}`
const run = (...args: string[]) => runCommand(['segments', ...args], env)

beforeEach(async () => {
  platform.misbehave(null)
  await database.query('update segment set sync = false')
  await database.query('delete from line_audience')
  const account = randomAccount('Corner Coffee')
  line = platform.addAccount(account)
  tenant = await addTenant(database, { channelAccessToken: account.channelAccessToken })
  await loadMembers(database, tenant, 5, {
    user_id: ID,
    relationship: `case when i = 5 then 'blocked' else 'following' end`,
    tags: `case when i = 4 then '{}' else '{vip}' end::text[]`,
  })
  const of = ['--account', String(tenant.accountId), '--name', 'VIP ✓']
  const { stdout } = await run('add', ...of, '--condition', '{"tagsAll":["vip"]}', '--json')
  segment = JSON.parse(stdout).id
})

const passes = async () => {
  while ((await sync.pass()) > 0);
}
const advance = (hours: number) => later(database, line, hours)
const stateOf = async () => JSON.parse((await run('show', segment, '--json')).stdout)
const audiences = (): SimulatedAudience[] => [...line.audiences.values()]
const switchSync = async (mode: string) => {
  expect((await run('sync', segment, mode)).stderr).toBe('')
  await passes()
}
/** The time until READY is at least a minute. */
const upload = async (mode: 'on' | 'now') => {
  await switchSync(mode)
  await advance(0.1)
  await passes()
}

it('segments sync uploads the followers in a segment once a day, as one new audience', async () => {
  await switchSync('on')
  expect(audiences().map(({ userIds }) => userIds)).toEqual([[1, 2, 3].map(idOf)])
  expect(audiences()[0]?.description).toMatch(/^VIP ✓ \(\d{4}-\d\d-\d\d\)$/)
  expect(await stateOf()).toMatchObject({ sync: true, syncState: 'processing' })
  await advance(0.1)
  await passes()
  const { syncState, audienceName } = await stateOf()
  expect([syncState, audienceName]).toEqual(['ready', audiences()[0]?.description])
  await advance(23)
  await passes()
  expect(audiences()).toHaveLength(1)
  await load(database, `delete from audience_member where channel_oa_id = $1 and user_id = $2`, [
    tenant.accountId,
    idOf(2),
  ])
  await advance(1)
  await passes()
  expect(audiences().map(({ userIds }) => userIds)).toEqual(
    [
      [1, 2, 3],
      [1, 3],
    ].map((of) => of.map(idOf)),
  )
  const names = audiences().map(({ description }) => description.toLowerCase())
  expect(new Set(names).size).toBe(2)
})

it('segments sync deletes the older ones than the newest two when LINE says READY', async () => {
  await upload('on')
  await upload('now')
  line.audienceSettings.readyAfterMs = 3_600_000
  await upload('now')
  expect(audiences()).toHaveLength(3)
  await run('sync', segment, 'now')
  await passes()
  expect(audiences()).toHaveLength(3)
  const [oldest] = audiences()
  line.audienceSettings.readyAfterMs = 0
  await advance(0.1)
  await passes()
  expect(audiences()).not.toContain(oldest)
  expect(audiences().length).toBeLessThanOrEqual(3)
})

it('segments sync deletes every audience after 47 hours, so an erased person is gone from LINE within 48', async () => {
  line.audienceSettings.readyAfterMs = 1_000 * 3_600_000
  await upload('on')
  const [first] = audiences()
  await advance(24)
  await passes()
  expect(audiences()).toContain(first)
  await advance(23)
  await passes()
  expect(audiences()).not.toContain(first)
})

it('segments sync refuses an upload while sync is off', async () => {
  expect((await run('sync', segment, 'now')).stderr).toMatch(/Sync is off/)
})

describe('the end of', () => {
  beforeEach(async () => {
    await upload('on')
    await upload('now')
    expect(audiences()).toHaveLength(2)
  })

  it('sync deletes the audiences at LINE, and tries again until LINE responds', async () => {
    platform.misbehave(refuseCredentials)
    await switchSync('off')
    expect([(await stateOf()).syncState, audiences().length]).toEqual(['deleting', 2])
    platform.misbehave(null)
    await advance(0.5)
    await passes()
    expect([(await stateOf()).syncState, audiences().length]).toEqual(['off', 0])
  })

  it.each([
    ['a page', 400, '<h1>Bad Request</h1>'],
    ['a page', 404, '<h1>Not Found</h1>'],
    ['JSON', 404, '{"message":"no Route matched with those values"}'],
  ])('sync deletes them later if a proxy refuses it with %s (%i)', async (_, status, body) => {
    platform.misbehave((_request, response) => response.writeHead(status).end(body), /^DELETE/)
    await advance(1)
    await switchSync('off')
    expect([(await stateOf()).syncState, audiences().length]).toEqual(['deleting', 2])
    platform.misbehave(null)
    await advance(0.5)
    await passes()
    expect([(await stateOf()).syncState, audiences().length]).toEqual(['off', 0])
  })

  it('the segment deletes them', async () => {
    await run('remove', segment)
    await passes()
    expect(audiences()).toEqual([])
  })

  it('the account deletes them before its credentials', async () => {
    await (await signedIn(url)).post(`/api/accounts/${tenant.accountId}/remove`, { name: 'test' })
    await takeTurn(database)
    await passes()
    expect(audiences()).toEqual([])
    await endWaitsOfJobs(database)
    await finishJobs(database)
    expect(await load(database, `select from official_account where id = $1`, [tenant.accountId])).toEqual([])
  })

  it('their names in LINE Official Account Manager is no fault', async () => {
    line.audiences.clear()
    await advance(1)
    await switchSync('off')
    expect((await stateOf()).syncState).toBe('off')
  })
})

it('an upload whose response is lost is found by its name, and is not repeated', async () => {
  line.audienceSettings.cut = (call) => (call.includes('upload') ? 'after' : null)
  await switchSync('on')
  expect([(await stateOf()).syncState, audiences().length]).toEqual(['uploading', 1])
  line.audienceSettings.cut = () => null
  await advance(0.1)
  await passes()
  await advance(0.1)
  await passes()
  expect([(await stateOf()).syncState, audiences().length]).toEqual(['ready', 1])
})

it('an upload whose response is lost is found also if LINE makes the audience later, and deleted if sync is off by then', async () => {
  line.audienceSettings.cut = (call) => (call.includes('upload') ? 'after' : null)
  line.audienceSettings.visibleAfterMs = 0.7 * 3_600_000
  await switchSync('on')
  await switchSync('off')
  for (let i = 0; i < 8; i += 1) {
    await advance(0.2)
    await passes()
  }
  expect(audiences()).toEqual([])
  expect((await stateOf()).syncState).toBe('off')
})

it('an upload whose response is lost is repeated after an hour if LINE has not made one', async () => {
  line.audienceSettings.cut = (call) => (call.includes('upload') ? 'before' : null)
  await switchSync('on')
  line.audienceSettings.cut = () => null
  for (let i = 0; i < 8; i += 1) {
    await advance(0.2)
    await passes()
  }
  expect([(await stateOf()).syncState, audiences().length]).toEqual(['ready', 1])
})

const sql = (text: string) => load(database, text, [tenant.accountId])
const fillUp = () => {
  for (let id = 1; id <= 1_000; id += 1)
    line.audiences.set(id, { audienceGroupId: id, description: 'x', userIds: [], status: 'READY', atMs: 0 })
}
const cases: Array<[keyof typeof SYNC_TEXTS, () => unknown]> = [
  ['empty', () => sql(`update audience_member set relationship = 'blocked' where channel_oa_id = $1`)],
  ['not_available', () => Object.assign(line.audienceSettings, { isRefused: true })],
  ['credentials', () => platform.misbehave(refuseCredentials)],
  [
    'suspended',
    async () => {
      await sql(`update official_account set suspended = true where id = $1`)
      line.audienceSettings.isRefused = true
    },
  ],
  ['failed', () => Object.assign(line.audienceSettings, { isFailing: true })],
  ['rejected', () => fillUp()],
  ['unavailable', () => platform.misbehave((_, response) => response.writeHead(500).end())],
  ['processing', () => Object.assign(line.audienceSettings, { readyAfterMs: 9e9 })],
  ['ready', () => undefined],
]
it.each(cases)('the state says what happened and what to do %s', async (state, arrange) => {
  await arrange()
  await upload('on')
  const { stdout } = await run('show', segment)
  expect(stdout).toContain(SYNC_TEXTS[state])
  expect((await stateOf()).syncState).toBe(state)
})

it('the state says what happened and what to do expired', async () => {
  line.audienceSettings.readyAfterMs = 9e9
  await upload('on')
  for (const audience of audiences()) audience.status = 'EXPIRED'
  await advance(0.2)
  await passes()
  expect(await stateOf()).toMatchObject({ syncState: 'expired' })
  expect(audiences()).toEqual([])
})

it('each pass uploads one segment of an account, so many of them delay no other account', async () => {
  const [first, second] = [
    tenant,
    await addTenant(database, { channelAccessToken: line.account.channelAccessToken }),
  ]
  const insert = `insert into segment (channel_oa_id, name, condition, sync) values ($1, $2, '{}', true)`
  for (const name of ['A', 'B', 'C']) await load(database, insert, [first.accountId, name])
  await loadMembers(database, second, 1, { user_id: ID, relationship: `'following'` })
  await load(database, insert, [second.accountId, 'D'])
  // One of each account.
  for (let no = 0; no < 2; no += 1) await sync.pass()
  expect(audiences().map(({ description }) => description[0])).toEqual(expect.arrayContaining(['D']))
  expect(audiences()).toHaveLength(2)
})

it('a name that LINE or another segment has gets an addition', async () => {
  const of = ['--account', String(tenant.accountId), '--name', 'vip ✓']
  const other = JSON.parse((await run('add', ...of, '--condition', '{}', '--json')).stdout).id
  await switchSync('on')
  await run('sync', other, 'on')
  await passes()
  expect(audiences().map(({ description }) => description)).toEqual([
    expect.stringMatching(/^VIP ✓ \(\S+\)$/),
    expect.stringMatching(/^vip ✓ \(\S+\) [0-9a-f]{4}$/),
  ])
})
