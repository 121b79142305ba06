/** Runs every statement over members and their events for one tenant, beside a twin that has the same data. */
import { readdirSync, readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { findAccount } from '../src/accounts/account.ts'
import { importFollowers } from '../src/audience/import-followers.ts'
import { skipTakenMemberIds } from '../src/audience/member-ids.ts'
import { finishErasures, rememberPending } from '../src/audience/pending-erasure.ts'
import { ProfileFiller } from '../src/audience/profiles.ts'
import { Sender } from '../src/endpoints/sender.ts'
import { retryEvent } from '../src/intake/retry.ts'
import { LineApi } from '../src/line-api/client.ts'
import { databaseQuery } from '../src/observability/facts.ts'
import { importMember } from '../src/operator/import-member.ts'
import { countMembers, findMember, memberTimeline } from '../src/operator/members.ts'
import { addPeople } from '../tools/simulator/deliveries.ts'
import { lineEvent, textMessage } from '../tools/simulator/events.ts'
import { simulatePlatform } from '../tools/simulator/platform.ts'
import { addTenant, type Tenant } from './support/database.ts'
import { load } from './support/load.ts'
import { eventually } from './support/process.ts'
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
  'unsent_message',
]

/** Statements that serve all accounts on purpose: background work of the service itself. */
const FOR_ALL_ACCOUNTS = ['take-due-profiles', 'count-due-profiles', 'select-all-pending-erasures']

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
  const statement = /name: '([a-z-]+)',\s*text:\s*[`']([^`']*)/g
  const mentionsTable = new RegExp(`\\b(${TABLES.join('|')})\\b|flush_events`)
  return sources.flatMap((name) =>
    [...readFileSync(`${root}/${name}`, 'utf8').matchAll(statement)].flatMap(([, found = '', text = '']) =>
      mentionsTable.test(text) ? [found] : [],
    ),
  )
}

const LISTS = [
  '',
  'userId=U1',
  'externalId=E1',
  'relationship=following',
  'tag=vip',
  'q=Ann',
  'q=A',
  'updatedSince=2020-01-01T00:00:00Z',
]
const FORMATS = ['application/json', 'application/x-ndjson', 'text/csv']

/** Four members with the same ids, tags and names at both tenants. */
async function addMembers(to: Tenant): Promise<void> {
  const people = ['U1', 'U2', 'U3', 'U4']
  await service.deliver(
    to,
    people.map((userId) => lineEvent('follow', userId)),
  )
  await service.deliver(to, [
    lineEvent('memberJoined', 'U1', {
      source: { type: 'group', groupId: 'C1', userId: 'U1' },
      joined: { members: [{ type: 'user', userId: 'U2' }] },
    }),
    { ...textMessage('U1', 'hello'), message: { type: 'text', id: 'M1', text: 'hello' } },
    lineEvent('message', 'U1', { timestamp: 'never' }),
  ])
  await service.track(to, [{ type: 'track', userId: 'U1', messageId: 'T1' }])
  await load(
    database,
    `update audience_member set external_id = 'E' || substr(user_id, 2), tags = '{vip}',
                               display_name = 'Ann', profile_due_at = null where channel_oa_id = $1`,
    [to.accountId],
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

async function useEverything(): Promise<string[]> {
  const { headers } = tenant
  const answers = []
  for (const query of LISTS) {
    for (const accept of FORMATS)
      answers.push(await service.call('GET', `/api/audience?${query}`, { headers: { ...headers, accept } }))
  }
  const idOf = async (userId: string) => (await service.member(tenant, userId))?.id
  const update = { headers: { ...headers, 'content-type': 'application/json' }, body: '{"tags":["changed"]}' }
  answers.push(await service.call('PUT', `/api/audience/${await idOf('U2')}`, update))
  const stale = { ...update, headers: { ...update.headers, 'if-match': '"99"' } }
  answers.push(await service.call('PUT', `/api/audience/${await idOf('U2')}`, stale))
  await service.deliver(tenant, [
    lineEvent('unsend', 'U1', { unsend: { messageId: 'M1' } }),
    lineEvent('unfollow', 'U3'),
  ])
  await service.chat(tenant, {
    event: 'conversation_updated',
    id: 1,
    status: 'open',
    contact_inbox: { source_id: 'U1' },
    channel: 'Channel::Line',
  })
  const printed = [...(await useCommands()), ...(await useEndpoints())]
  await load(
    database,
    `update audience_member set profile_due_at = now() where channel_oa_id = $1 and user_id in ('U1', 'U2')`,
    [tenant.accountId],
  )
  await new ProfileFiller(database, new LineApi(platform.url)).pass()
  await database.query(rememberPending, [tenant.accountId, tenant.organizationId, 99n, 'U9', 0n])
  await finishErasures(database)
  await skipTakenMemberIds(database, [tenant.accountId])
  answers.push(await service.call('DELETE', `/api/audience/${await idOf('U1')}`, { headers }))
  answers.push(
    await service.call('DELETE', '/api/audience/1', { headers: { ...headers, 'if-match': '"1"' } }),
  )
  return [...printed, ...answers.map(({ text }) => text)]
}

/** What endpoints of both formats receive. */
async function useEndpoints(): Promise<string[]> {
  platform.receiver.channelSecret = tenant.channelSecret
  for (const format of ['line', 'members']) {
    await database.query(
      `insert into endpoint (channel_oa_id, url, format, allow_private_network) values ($1, $2, $3, true)`,
      [tenant.accountId, `${platform.url}/receive`, format],
    )
  }
  const sender = new Sender(database, () => false)
  sender.start()
  await service.deliver(tenant, [lineEvent('follow', 'U5')])
  // Without a handover, the lease of the flush ends after 30 s.
  await database.query(`update endpoint_delivery set leased_until = '-infinity', due_at = now()`)
  const bodies = () => platform.receipts.map(({ body }) => JSON.stringify(body))
  await eventually(
    async () => bodies().join(),
    (all) => all.includes('"destination"') && all.includes('member.created'),
  )
  await sender.stop()
  await database.query('delete from endpoint')
  return bodies()
}

/** What the command line does with an account. */
async function useCommands(): Promise<string[]> {
  const [event] = await load<{ id: bigint }>(
    database,
    `update event set failure = 'for once' where channel_oa_id = $1 and user_id = 'U4' returning id`,
    [tenant.accountId],
  )
  await retryEvent(database, event?.id ?? 0n)
  const account = await findAccount(database, tenant.accountId)
  addPeople(platform, 2)
  if (account === null) throw new Error('no account')
  for await (const _ of importFollowers(database, new LineApi(platform.url), account));
  const scope = { keyId: null, accountId: tenant.accountId, organizationId: tenant.organizationId }
  await importMember(database, scope, { userId: 'U2', tags: ['imported'] })
  const member = await findMember(database, tenant.accountId, 'U2', null)
  if (member === null) throw new Error('no member')
  const timeline = await memberTimeline(database, tenant.accountId, member, 100)
  return [
    JSON.stringify(member),
    `${await countMembers(database, tenant.accountId)} members`,
    `${timeline.length} entries`,
  ]
}

describe('the statements over members and events', () => {
  let answers: string[]
  let before: string[]

  beforeAll(async () => {
    await addMembers(tenant)
    await addMembers(twin)
    before = await rowsOfTwin()
    databaseQuery.channels.start.subscribe(record)
    answers = await useEverything()
    databaseQuery.channels.start.unsubscribe(record)
  })
  afterAll(() => platform.close())

  it('are all executed by this test', () => {
    const untested = namesInSources().filter((name) => !executed.has(name))
    expect(untested.filter((name) => !FOR_ALL_ACCOUNTS.includes(name))).toEqual([])
    // Streams report no facts: they ran if their pages did, with the same parameters. Those of a delta feed are pages.
    const feedStreams = ['audience-by-change-ndjson', 'audience-by-change-csv']
    expect([...executed]).toEqual(expect.arrayContaining(feedStreams))
    expect([...executed].filter((name) => /^audience-.*-page$/.test(name))).toHaveLength(LISTS.length)
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
