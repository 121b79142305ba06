/** One search for everything that has a name or an id, in all accounts that the operator may see. */
import { beforeAll, expect, it } from 'vitest'
import { updateAccount } from '../../src/accounts/provisioning.ts'
import { type Search, search } from '../../src/operations/search.ts'
import { lineEvent, randomUserId, textMessage, ulid } from '../../tools/simulator/events.ts'
import { signedIn, startConsole, startSignedIn } from '../support/console.ts'
import { addTenant } from '../support/database.ts'
import { gate } from '../support/gate.ts'
import { load } from '../support/load.ts'
import { setUpService } from '../support/service.ts'

const { database, service, tenant: cafe } = await setUpService()
const { operator } = await startSignedIn(database)
const bakery = await addTenant(database)
const foreign = await addTenant(database)

const call = (q: string) => operator.get(`/api/search?${new URLSearchParams({ q })}`)
const find = async (q: string) => (await call(q)).json
/** Searches as an operator of these organizations. */
const findFor = (organizationIds: bigint[] | null, text: string, limits: Partial<Search> = {}) =>
  search({ reads: database.reads.console(), text, organizationIds, ...limits })

const ann = randomUserId()
const ben = randomUserId()
const eventId = ulid(Date.now())

async function describeMember(
  { accountId }: { accountId: bigint },
  userId: string,
  fields: { name?: string | null; externalId?: string | null; tags?: string[] },
): Promise<void> {
  await load(
    database,
    `update audience_member set display_name = $3, external_id = $4, tags = $5
      where channel_oa_id = $1 and user_id = $2`,
    [accountId, userId, fields.name ?? null, fields.externalId ?? null, fields.tags ?? []],
  )
}

beforeAll(async () => {
  await updateAccount(database, cafe.accountId, {
    name: 'Corner Café',
    basic_id: '@corner',
    channel_id: '1650000001',
  })
  await updateAccount(database, bakery.accountId, { name: 'Old Bakery', login_channel_ids: ['1650000002'] })
  await service.deliver(cafe, [
    lineEvent('follow', ann),
    textMessage(ann, 'hello', { webhookEventId: eventId }),
    lineEvent('follow', ben),
  ])
  const followedAtMs = Date.now() - 1_000
  await service.deliver(bakery, [
    lineEvent('follow', ann, { timestamp: followedAtMs }),
    lineEvent('unfollow', ann, { timestamp: followedAtMs + 1 }),
  ])
  await service.deliver(foreign, [lineEvent('follow', ann)])
  await describeMember(cafe, ann, { name: 'Ann 100%_\\ 🌸', externalId: 'crm-7', tags: ['vip'] })
  await describeMember(bakery, ann, { name: 'Annie', externalId: 'b-1' })
  await describeMember(foreign, ann, { name: 'Foreign Ann', externalId: 'f-1' })
  await describeMember(cafe, ben, { name: '‏שלום בן‏' })
})

it('a person is found by the user id, with the memberships of all accounts side by side', async () => {
  const { people, isComplete, hasMore } = await find(`  ${ann}\n`)
  expect(people).toHaveLength(1)
  expect(people[0].userId).toBe(ann)
  expect(people[0].memberships).toEqual([
    {
      accountId: String(cafe.accountId),
      accountName: 'Corner Café',
      memberId: expect.stringMatching(/^\d+$/),
      displayName: 'Ann 100%_\\ 🌸',
      relationship: 'following',
      externalId: 'crm-7',
      tags: ['vip'],
      lastSeenAt: expect.any(String),
    },
    expect.objectContaining({ accountName: 'Old Bakery', displayName: 'Annie', relationship: 'blocked' }),
    expect.objectContaining({ displayName: 'Foreign Ann' }),
  ])
  expect({ isComplete, hasMore }).toEqual({ isComplete: true, hasMore: false })
})

it.each(['crm-7', 'b-1', 'Annie', 'ann 1', '100%_\\', '%_\\', '\\ 🌸', 'NNI'])(
  'a person is found by an external id or a part of a name, with all memberships: %s',
  async (q) => {
    const { people } = await find(q)
    expect(people).toHaveLength(1)
    expect(people[0].memberships).toHaveLength(3)
  },
)

it.each([...'% _ \\ a 🌸 %% __ a% nobody'.split(' '), ...["' or 1=1", ann.slice(0, -1), ann.toUpperCase()]])(
  'a person is not found by a wildcard, by less than two characters, or by a part of an id: %j',
  async (q) => expect((await call(q)).json).toMatchObject({ people: [], isComplete: true }),
)

it('a person of other organizations does not exist', async () => {
  const own = [cafe.organizationId, bakery.organizationId]
  for (const q of [ann, 'crm-7', 'Annie']) {
    const { people } = await findFor(own, q)
    expect(people[0]?.memberships.map(({ accountId }) => accountId)).toEqual([
      cafe.accountId,
      bakery.accountId,
    ])
  }
  for (const q of ['Foreign', 'f-1', String(foreign.accountId)])
    expect(await findFor(own, q)).toMatchObject({ accounts: [], people: [], isComplete: true })
  expect((await findFor(null, 'f-1')).people).toHaveLength(1)
  for (const q of [ann, 'Annie', 'crm-7', 'Corner', '@corner', '1650000001', eventId])
    expect(await findFor([], q)).toMatchObject({ accounts: [], people: [], isComplete: true })
})

it('a person is absent after an erasure', async () => {
  const gone = randomUserId()
  await service.deliver(cafe, [lineEvent('follow', gone)])
  await describeMember(cafe, gone, { name: 'Gone Girl', externalId: 'gone-1' })
  expect((await find('Gone Girl')).people).toHaveLength(1)
  await service.eraseUser(cafe, gone)
  for (const q of [gone, 'Gone Girl', 'gone-1']) expect((await find(q)).people).toEqual([])
})

it.each(['corner', 'CAFÉ', '@corner', 'corn', '1650000001', String(cafe.accountId), cafe.botUserId])(
  'an account is found by name, basic id, channel id, account id or bot: %s',
  async (q) => {
    const [account] = (await find(q)).accounts
    expect(account).toMatchObject({ id: String(cafe.accountId), channelId: '1650000001' })
  },
)

it('an account is found by its login channel, and never by a secret', async () => {
  expect((await find('1650000002')).accounts).toMatchObject([{ name: 'Old Bakery' }])
  for (const q of [cafe.channelSecret, cafe.oaHash, cafe.trackingKey])
    expect((await find(q)).accounts).toEqual([])
})

it.each(['', ' ', '\t\u00a0', '\0', 'a\0b', 'x'.repeat(257), 'x'.repeat(10_000)])(
  'a search refuses blanks, U+0000 and long texts: %j',
  async (q) => {
    const { status, json } = await call(q)
    expect(status).toBe(400)
    expect(json.details[0].path).toBe('q')
  },
)

it('a search says that it is incomplete if its time ends before the last account', async () => {
  await load(
    database,
    `insert into official_account (organization_id, name) select $1, 'Shop ' || i from generate_series(1, 150) i`,
    [foreign.organizationId],
  )
  const late = await addTenant(database)
  await service.deliver(late, [lineEvent('follow', ben)])
  await describeMember(late, ben, { name: 'Last One' })
  expect((await findFor(null, 'Last One')).people).toHaveLength(1)
  expect(await findFor(null, 'Last One', { walkMaxMs: 0 })).toMatchObject({ people: [], isComplete: false })
  const signal = AbortSignal.abort()
  expect(await findFor(null, 'Last One', { signal })).toMatchObject({ people: [], isComplete: false })
})

it('a search is refused while four others run, so that searches cannot take the connection from all other pages', async () => {
  const { passed, open } = gate()
  const query: typeof database.query = (...call) => passed.then(() => database.query(...call))
  const reads = { ...database.reads, console: () => ({ query, secretKeys: database.secretKeys }) }
  const gated = await startConsole({ console: database.console, reads })
  const other = await signedIn(gated.url)
  const searches = Array.from({ length: 5 }, () => other.get(`/api/search?q=${ann}`))
  const refused = await Promise.race(searches)
  expect(refused).toMatchObject({ status: 503, json: { message: expect.stringContaining('concurrent') } })
  open()
  const statuses = (await Promise.all(searches)).map(({ status }) => status)
  expect(statuses.toSorted()).toEqual([200, 200, 200, 200, 503])
  expect((await other.get(`/api/search?q=${ann}`)).status).toBe(200)
})

it('a search shows twenty people and accounts, and says that there are more', async () => {
  const people = Array.from({ length: 25 }, () => randomUserId())
  await service.deliver(
    cafe,
    people.map((userId) => lineEvent('follow', userId)),
  )
  await load(database, `update audience_member set display_name = 'Twin' where user_id = any ($1)`, [people])
  const found = await find('twin')
  expect(found.people).toHaveLength(20)
  expect(found).toMatchObject({ hasMore: true, isComplete: true })
  const shops = await find('shop ')
  expect(shops.accounts).toHaveLength(20)
  expect(shops.hasMore).toBe(true)
})
