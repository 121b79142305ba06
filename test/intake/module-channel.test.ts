/** Several official accounts behind one module channel: one webhook URL and one channel secret, separated by `destination`. */
import { expect, it } from 'vitest'
import { Secret } from '../../src/config/secret.ts'
import { flush } from '../../src/intake/flush.ts'
import { readLineEvent } from '../../src/intake/line/line-payload.ts'
import { lineSource } from '../../src/intake/line/line-source.ts'
import { signLine } from '../../src/line-api/line-signature.ts'
import { lineBody, lineEvent, randomUserId } from '../../tools/simulator/events.ts'
import { addTenant, type Tenant } from '../support/database.ts'
import { type Received, startReceiver, startSending } from '../support/endpoints.ts'
import { load } from '../support/load.ts'
import { setUpService } from '../support/service.ts'

const { database, service } = await setUpService()

/** Adds an account behind the same module channel: of the same organization, with the same channel secret. */
const attachTo = ({ organizationId, channelSecret }: Tenant, columns: { botUserId?: string } = {}) =>
  addTenant(database, { organizationId, channelSecret, ...columns })

/** The account whose webhook the module channel uses, and another one behind the channel. */
async function addModuleChannel(): Promise<{ path: Tenant; attached: Tenant }> {
  const path = await addTenant(database)
  return { path, attached: await attachTo(path) }
}

/** Sends an event of a new person to the webhook of one account, for the bot of another. Returns the person. */
async function follow(path: Tenant, botUserId: string): Promise<string> {
  const userId = randomUserId()
  const answer = await service.deliver({ ...path, botUserId }, [lineEvent('follow', userId)])
  expect(answer.json).toEqual({ accepted: 1, duplicates: 0 })
  return userId
}

/** Which of the accounts have the person as a member. */
async function accountsOf(userId: string): Promise<bigint[]> {
  const rows = await load<{ id: bigint }>(
    database,
    'select channel_oa_id as id from audience_member where user_id = $1 order by 1',
    [userId],
  )
  return rows.map(({ id }) => id)
}

async function flagOf({ accountId }: Tenant): Promise<string | null | undefined> {
  const [row] = await load<{ flag: string | null }>(
    database,
    'select foreign_destination as flag from official_account where id = $1',
    [accountId],
  )
  return row?.flag
}

const change = ({ accountId }: Tenant, assignment: string, value: unknown) =>
  load(database, `update official_account set ${assignment} = $2 where id = $1`, [accountId, value])

it('a delivery whose destination is the bot of another account of the same organization belongs to that account, and flags none', async () => {
  const { path, attached } = await addModuleChannel()
  for (const _ of ['looked up', 'cached']) {
    expect(await accountsOf(await follow(path, attached.botUserId))).toEqual([attached.accountId])
  }
  expect(await accountsOf(await follow(path, path.botUserId))).toEqual([path.accountId])
  expect([await flagOf(path), await flagOf(attached)]).toEqual([null, null])
})

it('a delivery whose destination is the bot of another account of another organization stays with the account in the path, and flags it', async () => {
  const path = await addTenant(database)
  const stranger = await addTenant(database)
  for (const _ of ['looked up', 'cached']) {
    expect(await accountsOf(await follow(path, stranger.botUserId))).toEqual([path.accountId])
  }
  expect([await flagOf(path), await flagOf(stranger)]).toEqual([stranger.botUserId, null])
})

it('a delivery whose destination is the bot of another account stays with the account in the path and flags it if two accounts of the organization have the bot', async () => {
  const { path, attached } = await addModuleChannel()
  await attachTo(path, { botUserId: attached.botUserId })
  expect(await accountsOf(await follow(path, attached.botUserId))).toEqual([path.accountId])
  expect(await flagOf(path)).toBe(attached.botUserId)
})

it('a delivery whose destination is the bot of another account stays with the account in the path while more than 20 accounts have the bot', async () => {
  const { path, attached } = await addModuleChannel()
  await load(
    database,
    `insert into official_account (organization_id, name, bot_user_id)
     select $1, 'copy', $2 from generate_series(1, 21)`,
    [path.organizationId, attached.botUserId],
  )
  const versions = 'select versions_of_bot($1, $2) as versions'
  expect(await load(database, versions, [path.accountId, attached.botUserId])).toEqual([{ versions: 0n }])
  expect(await accountsOf(await follow(path, attached.botUserId))).toEqual([path.accountId])
  await load(
    database,
    `update official_account set bot_user_id = null where organization_id = $1 and name = 'copy'`,
    [path.organizationId],
  )
  expect(await accountsOf(await follow(path, attached.botUserId))).toEqual([attached.accountId])
})

it.each([null, ''])(
  'a delivery whose destination is the bot of another account stays with the account in the path if its own bot is %j',
  async (botUserId) => {
    const { path, attached } = await addModuleChannel()
    await change(path, 'bot_user_id', botUserId)
    expect(await accountsOf(await follow(path, attached.botUserId))).toEqual([path.accountId])
    expect(await flagOf(path)).toBeNull()
  },
)

it('a delivery whose destination is the bot of another account of the same organization with another secret stays with the account in the path, and flags it', async () => {
  const path = await addTenant(database)
  const sibling = await addTenant(database, { organizationId: path.organizationId })
  const person = await follow(sibling, sibling.botUserId)
  await service.deliver(sibling, [
    lineEvent('message', person, { message: { type: 'text', id: '4711', text: 'kept' } }),
  ])
  const forged = [
    lineEvent('unfollow', person, { timestamp: Date.now() + 1_000 }),
    lineEvent('unsend', person, { unsend: { messageId: '4711' } }),
    lineEvent('botSuspended', null),
    lineEvent('message', person),
  ]
  for (const _ of ['looked up', 'cached']) {
    const answer = await service.deliver({ ...path, botUserId: sibling.botUserId }, forged)
    expect(answer.status).toBe(200)
  }
  expect(await service.member(sibling, person)).toMatchObject({ relationship: 'following', eventCount: 2 })
  const [stored] = await load<{ payload: string | null; suspended: boolean | null }>(
    database,
    `select e.payload, a.suspended from event e join official_account a on a.id = e.channel_oa_id
      where a.id = $1 and e.message_id = '4711'`,
    [sibling.accountId],
  )
  expect(stored).toMatchObject({ payload: expect.stringContaining('kept'), suspended: null })
  expect([await flagOf(path), await flagOf(sibling)]).toEqual([sibling.botUserId, null])
})

it('a delivery whose destination is the bot of another account is refused if it has the secret of the other account instead of the path’s', async () => {
  const path = await addTenant(database)
  const attached = await addTenant(database, { organizationId: path.organizationId })
  const forged = { ...path, channelSecret: attached.channelSecret, botUserId: attached.botUserId }
  expect((await service.deliver(forged, [lineEvent('follow', 'U1')])).status).toBe(403)
})

it.each(['', 'x'.repeat(129), '\0', 7, {}])('the destination %j flags nobody', async (destination) => {
  const path = await addTenant(database)
  const userId = randomUserId()
  const body = JSON.stringify({ destination, events: [lineEvent('follow', userId)] })
  expect((await service.deliverRaw(path, body)).status).toBe(200)
  expect(await accountsOf(userId)).toEqual([path.accountId])
  expect(await flagOf(path)).toBeNull()
})

it('an event counts once if many copies arrive by both webhooks at the same time', async () => {
  const { path, attached } = await addModuleChannel()
  const events = Array.from({ length: 10 }, () => lineEvent('message', 'Uboth'))
  const answers = await Promise.all(
    events.flatMap((event) => [
      service.deliver({ ...path, botUserId: attached.botUserId }, [event]),
      service.deliver(attached, [event]),
    ]),
  )
  expect(answers.map(({ status }) => status)).toEqual(answers.map(() => 200))
  expect(answers.reduce((sum, { json }) => sum + json.accepted, 0)).toBe(10)
  expect(await service.member(attached, 'Uboth')).toMatchObject({ eventCount: 10 })
  expect(await service.members(path)).toEqual([])
})

it('a flush confirms no copy of an event that arrived by both webhooks if the first one is stale, because only the first would be stored', async () => {
  const { path, attached } = await addModuleChannel()
  const versions = await load<{ id: bigint; version: bigint }>(
    database,
    'select id, credentials_version as version from official_account where id in ($1, $2)',
    [path.accountId, attached.accountId],
  )
  const versionOf = (id: bigint) => versions.find((row) => row.id === id)?.version as bigint
  const admission = { accountId: attached.accountId, source: lineSource }
  const botVersions = versionOf(attached.accountId)
  const foreign = { pathAccountId: path.accountId, botUserId: attached.botUserId, botVersions }
  const event = readLineEvent(lineEvent('follow', randomUserId()), Date.now())
  const byOwn = { ...admission, credentialsVersion: botVersions }
  const flushBoth = (credentialsVersion: bigint) => {
    const byPath = { ...admission, credentialsVersion, foreign }
    const batch = [byPath, byOwn].map((each) => ({ admission: each, event, forwarded: null }))
    return flush(database.pipeline, batch)
  }
  expect(await flushBoth(versionOf(path.accountId) + 1n)).toEqual(['stale', 'stale'])
  expect(await service.members(attached)).toEqual([])
  expect(await flushBoth(versionOf(path.accountId))).toEqual(['accepted', 'duplicate'])
})

/** Both accounts, after a delivery that cached them. */
async function addCached() {
  const accounts = await addModuleChannel()
  await follow(accounts.path, accounts.attached.botUserId)
  return accounts
}

it('a cached account does not decide alone when the other account gets another bot', async () => {
  const { path, attached } = await addCached()
  await change(attached, 'bot_user_id', 'Uchanged')
  expect(await accountsOf(await follow(path, attached.botUserId))).toEqual([path.accountId])
  expect(await accountsOf(await follow(path, 'Uchanged'))).toEqual([attached.accountId])
})

it('a cached account does not decide alone when the other account gets another secret, and then the same one again', async () => {
  const { path, attached } = await addCached()
  await change(attached, 'channel_secret', 'another')
  expect(await accountsOf(await follow(path, attached.botUserId))).toEqual([path.accountId])
  await change(attached, 'channel_secret', path.channelSecret)
  expect(await accountsOf(await follow(path, attached.botUserId))).toEqual([attached.accountId])
})

it('a cached account does not decide alone when the other account moves to another organization', async () => {
  const { path, attached } = await addModuleChannel()
  const { organizationId } = await addTenant(database)
  const tracked = lineEvent('botResumed', null)
  await service.deliver({ ...path, botUserId: attached.botUserId }, [tracked])
  await change(attached, 'organization_id', organizationId)
  expect(await accountsOf(await follow(path, attached.botUserId))).toEqual([path.accountId])
})

it('a cached account does not decide alone when an account with the bot is added', async () => {
  const path = await addTenant(database)
  const botUserId = randomUserId()
  expect(await accountsOf(await follow(path, botUserId))).toEqual([path.accountId])
  const added = await attachTo(path, { botUserId })
  expect(await accountsOf(await follow(path, botUserId))).toEqual([added.accountId])
})

it('a cached account does not decide alone when the account in the path gets another secret', async () => {
  const { path, attached } = await addCached()
  await change(path, 'channel_secret', 'another')
  await change(attached, 'channel_secret', 'another')
  const body = lineBody(attached.botUserId, [lineEvent('follow', 'Urevoked')])
  expect((await service.deliverRaw(path, body)).status).toBe(403)
  expect(await accountsOf('Urevoked')).toEqual([])
  const renewed = { ...path, channelSecret: 'another' }
  expect(await accountsOf(await follow(renewed, attached.botUserId))).toEqual([attached.accountId])
})

it('endpoints of the account that the destination names receive the delivery, signed with its secret', async () => {
  const sending = await startSending()
  const { tenant: path, addEndpoint, becomesQuiet } = sending
  const { organizationId, channelSecret } = path
  const attached = await addTenant(sending.database, { organizationId, channelSecret })
  const [ofPath, ofAttached] = [await startReceiver(), await startReceiver()]
  await addEndpoint(ofPath.url)
  await addEndpoint(ofAttached.url, { channel_oa_id: attached.accountId })
  const event = lineEvent('follow', randomUserId())
  await sending.service.deliver({ ...path, botUserId: attached.botUserId }, [event])
  await becomesQuiet()
  expect(ofPath.received).toEqual([])
  const [{ body, headers }] = ofAttached.received as [Received]
  expect(JSON.parse(body)).toMatchObject({ destination: attached.botUserId, events: [{ type: 'follow' }] })
  expect(headers['x-line-signature']).toBe(signLine(body, new Secret(attached.channelSecret)))
})
