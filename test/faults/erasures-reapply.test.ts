/** `oa-audience erasures`: after a restore, erased people are erased again. */
import { expect, it, onTestFinished } from 'vitest'
import { refuseRequests } from '../../src/accounts/remove-account.ts'
import { ErasureLedger } from '../../src/audience/erasure/erasure-ledger.ts'
import { Sender } from '../../src/endpoints/sender.ts'
import { lineEvent, textMessage } from '../../tools/simulator/events.ts'
import type { TextDatabase } from '../../tools/text-database.ts'
import { runCommand, runJson } from '../support/command.ts'
import { readContents } from '../support/contents.ts'
import { copyDatabase } from '../support/copies.ts'
import { addTenant, createTestDatabase, type Tenant } from '../support/database.ts'
import { startReceiver } from '../support/endpoints.ts'
import { operateLedger } from '../support/ledger.ts'
import { load, readEverything } from '../support/load.ts'
import { temporaryDirectory } from '../support/process.ts'
import { type Service, startApp } from '../support/service.ts'
import { walk } from '../support/walk.ts'

const LONG_AGO = '2020-01-01T00:00:00.000Z'
/** Every event of these tests is older than the erasures. */
const PAST = { timestamp: Date.now() - 5_000 }
const GROUP = { type: 'group', groupId: 'Cgroup' }

async function setUp() {
  const directory = temporaryDirectory()
  const { database, connection, env } = await createTestDatabase()
  const ledger = new ErasureLedger(directory)
  const service = await startApp(database, { erasureLedger: ledger })
  return { directory, database, connection, env, service, tenant: await addTenant(database) }
}

const idOf = async (service: Service, tenant: Tenant, userId: string) =>
  (await service.member(tenant, userId))?.id ?? ''

async function erase(service: Service, tenant: Tenant, userId: string): Promise<string> {
  const id = await idOf(service, tenant, userId)
  expect((await service.erase(tenant, id)).status).toBe(204)
  return id
}

/** Before the backup: Uanna to Udora with events of all sources. Erased after it: Uanna, Ubert, and Ulate, who came after the backup. */
async function loseErasures() {
  const { service, tenant, connection, directory, ...rest } = await setUp()
  const history = [
    ...['Uanna', 'Ubert', 'Ucarl', 'Udora'].map((userId) => lineEvent('follow', userId, PAST)),
    ...['Uanna', 'Ucarl'].map((userId) => textMessage(userId, `words of ${userId}`, PAST)),
    lineEvent('memberJoined', null, {
      ...{ ...PAST, source: GROUP },
      joined: { members: ['Ubert', 'Ucarl'].map((userId) => ({ type: 'user', userId })) },
    }),
  ]
  await service.deliver(tenant, history)
  await service.track(tenant, [
    { type: 'page', userId: 'Uanna', messageId: 'T1' },
    { type: 'page', userId: 'Uvisitor', messageId: 'T2' },
  ])
  const erasedBefore = await erase(service, tenant, 'Udora')
  const backup = await copyDatabase(connection)
  await service.deliver(tenant, [lineEvent('follow', 'Ulate', PAST)])
  const erased = []
  for (const userId of ['Uanna', 'Ubert', 'Ulate']) erased.push(await erase(service, tenant, userId))
  const command = ['members', 'erase', '--account', String(tenant.accountId), '--user-id', 'Uvisitor']
  await runCommand(command, { ...rest.env, ERASURE_LEDGER: directory })
  const operate = operateLedger(backup.env, directory)
  return { ...rest, ...operate, service, tenant, directory, history, backup, erased, erasedBefore }
}

it('after a restore the service starts only when the erased people are erased again, and only a later event brings one back', async () => {
  const { start, erasures, tenant, history, backup, erased, erasedBefore } = await loseErasures()
  await expect(start()).rejects.toThrow(
    /^The database lacks erasures of ERASURE_LEDGER.*"oa-audience erasures reapply".*$/,
  )
  expect((await erasures('status')).json).toEqual({
    ...{ ledger: 5, database: 1, notRecorded: 0, lost: 0, unknown: 4 },
    ...{ unreadable: 0, mustReapply: true },
  })
  const restored = backup.open()
  expect((await erasures('reapply')).json).toEqual({
    ...{ lines: 5, erasures: 4, people: 3, members: 2 },
  })
  await start()

  const service = await startApp(restored)
  const { json } = await service.deliver(tenant, [...history, lineEvent('follow', 'Ulate', PAST)])
  expect(json.accepted).toBe(1)
  await service.deliver(tenant, [textMessage('Uanna', 'late words of Uanna', PAST)])
  expect((await service.members(tenant)).map(({ userId }) => userId)).toEqual(['Ucarl'])
  const kept = await readEverything(restored)
  for (const secret of ['Uanna', 'Ubert', 'Udora', 'Ulate', 'Uvisitor', 'words of Uanna'])
    expect(kept).not.toContain(secret)
  expect(kept).toContain('words of Ucarl')

  await load(restored, 'insert into change_mark (marked_at, change) select now(), change_horizon()')
  const feed = await walk(service, tenant, `updatedSince=${LONG_AGO}`)
  const tombstones = feed.filter(({ deletedAt }) => deletedAt !== undefined)
  expect(tombstones.map(({ id }) => id).sort()).toEqual([erasedBefore, ...erased].sort())

  await service.deliver(tenant, [lineEvent('follow', 'Uanna')])
  expect((await service.members(tenant)).map(({ userId }) => userId).sort()).toEqual(['Uanna', 'Ucarl'])
})

it('after a restore endpoints receive member.erased again, also for a member who was added after the backup', async () => {
  const { erasures, tenant, backup, erased } = await loseErasures()
  const restored = backup.open()
  const { url, received } = await startReceiver()
  await load(
    restored,
    `insert into endpoint (channel_oa_id, url, format, allow_private_network) values ($1, $2, 'members', true)`,
    [tenant.accountId, url],
  )
  await erasures('reapply')
  const sender = new Sender(restored, () => false)
  sender.start()
  onTestFinished(() => sender.stop())
  await expect.poll(() => received).toHaveLength(erased.length)
  const messages = received.map(({ body }) => JSON.parse(body))
  expect(messages.map(({ type, data }) => `${type} ${data.id}`).sort()).toEqual(
    erased.map((id) => `member.erased ${id}`).sort(),
  )
})

it('after a restore reapplying a second time changes nothing, and one row of activity has the numbers', async () => {
  const { erasures, backup } = await loseErasures()
  await erasures('reapply')
  const restored = backup.open()
  const rows = async () => {
    const { event, erased_member, erased_person, activity } = await readContents(restored)
    return [event, erased_member, erased_person, activity]
  }
  const before = await rows()
  expect((await erasures('reapply')).json).toMatchObject({
    lines: 5,
    erasures: 0,
    people: 0,
  })
  expect(await rows()).toEqual(before)
  expect(await load(restored, `select changes from activity where action = 'members.erased_again'`)).toEqual([
    { changes: { lines: 5, erasures: 4, people: 3, members: 2 } },
  ])
  expect((await erasures('status')).json).toMatchObject({ unknown: 0, notRecorded: 0 })
})

it('after a restore erasures of an account that the backup does not have do not prevent the start', async () => {
  const { service, database, connection, directory } = await setUp()
  const backup = await copyDatabase(connection)
  const tenant = await addTenant(database)
  await service.deliver(tenant, [lineEvent('follow', 'Uanna', PAST)])
  await erase(service, tenant, 'Uanna')
  const { start, erasures } = operateLedger(backup.env, directory)
  await start()
  expect((await erasures('reapply')).json).toMatchObject({ lines: 1, erasures: 0 })
})

it('the service starts while an account is being removed, whose erasures are deleted before the account', async () => {
  const { service, tenant, database, directory, env } = await setUp()
  await service.deliver(tenant, [lineEvent('follow', 'Uanna', PAST)])
  await erase(service, tenant, 'Uanna')
  await database.transaction((transaction) => refuseRequests(transaction, tenant.accountId))
  await load(database, 'delete from erased_person')
  await operateLedger(env, directory).start()
})

it('a member whose user id was not erased stays, even with the member id of a line', async () => {
  const { service, database, tenant, env, directory } = await setUp()
  await service.deliver(tenant, [lineEvent('follow', 'Uanna', PAST), lineEvent('follow', 'Ubert', PAST)])
  await erase(service, tenant, 'Uanna')
  const other = await idOf(service, tenant, 'Ubert')
  await load(database, 'update erased_person set member_id = $1, in_ledger = false', [other])
  await new ErasureLedger(directory).recordAll(database)
  await load(database, 'delete from erased_person')
  expect((await operateLedger(env, directory).erasures('reapply')).json).toMatchObject({
    erasures: 2,
    members: 0,
  })
  expect(await idOf(service, tenant, 'Ubert')).toBe(other)
  expect(await load(database, 'select from erased_member where id = $1', [other])).toEqual([])
})

it('doctor reports a ledger that is not set, has gaps, is ahead of the database, or is missing', async () => {
  const { directory, env, backup, database } = await loseErasures()
  const found = async (of: Record<string, string>, ledger = directory) =>
    (await operateLedger(of, ledger).doctor())[0]
  expect(await found(env, '')).toMatch(/^warning: unset, so a restored backup brings back/)
  expect(await found({ ...env, DATA_DIR: directory }, `${directory}/ledger`)).toMatch(
    /^warning: inside of DATA_DIR/,
  )
  expect(await found(env)).toBe('ok: ERASURE_LEDGER has every erasure')
  await load(database, 'update erased_person set in_ledger = false where member_id is null')
  expect(await found(env)).toMatch(/^warning: 1 erasure not in ERASURE_LEDGER yet\./)
  expect(await found(backup.env)).toMatch(
    /^error: the database lacks 4 erasures of .*"oa-audience erasures reapply"\.$/,
  )
  expect(await found(backup.env, temporaryDirectory())).toMatch(
    /^warning: ERASURE_LEDGER \S+ lacks 1 recorded erasure\. Check the path/,
  )
  expect(await found(env, `${directory}/missing`)).toMatch(/^error: ERASURE_LEDGER .* cannot be used/)
})

type Operated = ReturnType<typeof operateLedger>

/** What makes the service notice a restore. */
const NOTICED: Array<[string, (restored: TextDatabase, ledger: Operated) => Promise<unknown>]> = [
  ['by `restore`', (restored) => load(restored, `select record_restore(now(), change_limit())`)],
  ['to another server', (restored) => load(restored, 'update change_server set system_identifier = 1')],
  ['by other means', (_, { erasures }) => erasures('reapply')],
]
it.each(NOTICED)(
  'an account that was lost and is added again after a restore %s gets another id, so the next start is not refused',
  async (_, notice) => {
    const directory = temporaryDirectory()
    const { database: original, connection } = await createTestDatabase()
    const kept = await addTenant(original)
    const backup = await copyDatabase(connection)
    const lost = await addTenant(original, { organizationId: kept.organizationId })
    await load(original, `insert into erased_person values ($1, sha256('x'), now())`, [lost.accountId])
    await new ErasureLedger(directory).recordAll(original)

    const restored = backup.open()
    const ledger = operateLedger(backup.env, directory)
    await notice(restored, ledger)
    const add = ['accounts', 'add', '--organization', String(kept.organizationId), '--name', 'again']
    const ids = [await runJson(add, backup.env), await runJson(add, backup.env)].map(({ id }) => Number(id))
    expect(ids[0]).toBeGreaterThan(Number(lost.accountId))
    expect(ids[1]).toBe(Number(ids[0]) + 1)
    await ledger.erasures('reapply')
    await ledger.start()
  },
)
