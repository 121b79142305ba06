/** ERASURE_LEDGER: each erasure is on disk outside of the database before it is confirmed. */
import { spawnSync } from 'node:child_process'
import { closeSync, mkdirSync, openSync } from 'node:fs'
import { open } from 'node:fs/promises'
import { join } from 'node:path'
import { beforeEach, expect, it } from 'vitest'
import { requireLedgerErasures } from '../../src/audience/erasure/compare-ledger.ts'
import { ErasureLedger } from '../../src/audience/erasure/erasure-ledger.ts'
import { LedgerDamage, readLedger } from '../../src/audience/erasure/ledger-files.ts'
import { readConfig } from '../../src/config/config.ts'
import { startService } from '../../src/main.ts'
import { lineEvent, randomUserId } from '../../tools/simulator/events.ts'
import { runCommand } from '../support/command.ts'
import { startSignedIn } from '../support/console.ts'
import { addTenant, createTestDatabase } from '../support/database.ts'
import { load } from '../support/load.ts'
import { temporaryDirectory } from '../support/process.ts'
import { startApp } from '../support/service.ts'

const { database, env } = await createTestDatabase()
const tenant = await addTenant(database)
const { accountId } = tenant

let directory = ''
beforeEach(async () => {
  directory = temporaryDirectory()
  await load(database, 'delete from erased_person')
})

const openService = (path = directory) => startApp(database, { erasureLedger: new ErasureLedger(path) })

async function recorded() {
  const erasures = []
  for await (const entry of readLedger(directory, new LedgerDamage()))
    if ('hash' in entry) erasures.push(entry)
  return erasures
}

const stored = () =>
  load<{ hash: string; member_id: bigint | null; erased_at: string; in_ledger: boolean }>(
    database,
    `select encode(person_hash, 'hex') as hash, member_id, in_ledger, extract(epoch from erased_at) * 1000 as erased_at
       from erased_person order by erased_at`,
  )

/** Erasures from before the ledger was set up. */
const storeOldErasures = (count: number) =>
  load(
    database,
    `insert into erased_person (channel_oa_id, person_hash, erased_at)
     select $1, sha256(n::text::bytea), now() - interval '1 day' - n * interval '1 second' from generate_series(1, $2::int) n`,
    [accountId, count],
  )

/** Occupies all threads in which Node accesses files, like a network file system whose server is unreachable. */
function hangFileSystem(): () => Promise<void> {
  const fifo = join(temporaryDirectory(), 'fifo')
  spawnSync('mkfifo', [fifo])
  const threads = Array.from({ length: Number(process.env.UV_THREADPOOL_SIZE ?? 4) }, () => open(fifo, 'r'))
  return async () => {
    closeSync(openSync(fifo, 'w'))
    for (const file of await Promise.all(threads)) await file.close()
  }
}

type Service = Awaited<ReturnType<typeof openService>>

async function follow(service: Service, userId = randomUserId()): Promise<string> {
  // An event of the millisecond of an erasure counts as older.
  await service.deliver(tenant, [lineEvent('follow', userId, { timestamp: Date.now() + 1 })])
  return (await service.member(tenant, userId))?.id ?? ''
}

it('a DELETE gets its response after the ledger has the account, the member, the hash and the time', async () => {
  const service = await openService()
  const id = await follow(service)
  expect((await service.erase(tenant, id)).status).toBe(204)
  const lines = await recorded()
  const [row] = await stored()
  expect(lines).toEqual([
    { accountId, memberId: BigInt(id), hash: row?.hash, erasedAt: Number(row?.erased_at) },
  ])
  expect(row?.in_ledger).toBe(true)
})

it('a DELETE fails with Step 3 while the ledger cannot be written, and its repetition records the erasure', async () => {
  const path = join(directory, 'ledger')
  const service = await openService(path)
  const id = await follow(service)
  for (const _ of [1, 2]) {
    const failed = await service.erase(tenant, id)
    expect(failed.json).toMatchObject({ statusCode: 500, message: expect.stringMatching(/^Step 3: /) })
    expect((await stored()).map(({ in_ledger }) => in_ledger)).toEqual([false])
  }
  mkdirSync(path)
  expect((await service.erase(tenant, id)).status).toBe(404)
  directory = path
  expect((await recorded()).map(({ memberId }) => memberId)).toEqual([BigInt(id)])
  expect((await stored()).map(({ in_ledger }) => in_ledger)).toEqual([true])
})

it('a DELETE records each of many concurrent erasures of two instances', async () => {
  const services = [await openService(), await openService()] as const
  const ids = await Promise.all(Array.from({ length: 20 }, () => follow(services[0])))
  const erased = await Promise.all(ids.map((id, at) => (services[at % 2] as Service).erase(tenant, id)))
  expect(new Set(erased.map(({ status }) => status))).toEqual(new Set([204]))
  expect(new Set((await recorded()).map(({ memberId }) => String(memberId)))).toEqual(new Set(ids))
  expect((await stored()).every(({ in_ledger }) => in_ledger)).toBe(true)
})

it('a DELETE does not wait for the erasures from before the ledger was set up', async () => {
  const service = await openService()
  const ids = [await follow(service), await follow(service)] as const
  await storeOldErasures(2_500)
  expect((await service.erase(tenant, ids[0])).status).toBe(204)
  expect((await recorded()).map(({ memberId }) => String(memberId))).toEqual([ids[0]])
  // The state after a kill between the commit and the write: the repetition's 404 confirms the erasure.
  expect((await service.erase(tenant, ids[1])).status).toBe(204)
  await load(database, 'update erased_person set in_ledger = false where member_id = $1', [ids[1]])
  expect((await service.erase(tenant, ids[1])).status).toBe(404)
  expect((await recorded()).map(({ memberId }) => String(memberId))).toEqual([ids[0], ids[1], ids[1]])
})

it('a DELETE fails with Step 3 if the disk of the ledger hangs', async () => {
  const ledger = new ErasureLedger(directory, 200)
  const service = await startApp(database, { erasureLedger: ledger })
  const id = await follow(service)
  const release = hangFileSystem()
  try {
    expect((await service.erase(tenant, id)).status).toBe(500)
    expect((await service.erase(tenant, id)).status).toBe(500)
  } finally {
    await release()
  }
  await expect.poll(() => service.erase(tenant, id)).toMatchObject({ status: 404 })
  expect(await stored()).toMatchObject([{ in_ledger: true }])
})

it('a DELETE records a person who came back and is erased again with the new time and member', async () => {
  const service = await openService()
  const userId = randomUserId()
  const ids = []
  for (let times = 1; times <= 2; times += 1) {
    ids.push(await follow(service, userId))
    expect((await service.erase(tenant, ids.at(-1))).status).toBe(204)
  }
  const lines = await recorded()
  expect(lines.map(({ memberId }) => String(memberId))).toEqual(ids)
  expect(lines[1]?.erasedAt).toBeGreaterThan(lines[0]?.erasedAt ?? 0)
  expect(await stored()).toMatchObject([{ in_ledger: true, member_id: BigInt(ids[1] ?? '') }])
})

it('the console and the command record erasures, also of people who are not members', async () => {
  const service = await openService()
  const id = await follow(service)
  const { operator } = await startSignedIn(database, { erasureLedger: new ErasureLedger(directory) })
  expect(
    (await operator.post(`/api/accounts/${accountId}/erase-member`, { member: String(id) })).status,
  ).toBe(204)
  const command = ['members', 'erase', '--account', String(accountId), '--user-id', randomUserId()]
  expect(await runCommand(command, { ...env, ERASURE_LEDGER: directory })).toMatchObject({ status: 0 })
  expect((await recorded()).map(({ memberId }) => memberId).sort()).toEqual([BigInt(id), null].sort())
})

it('the service records erasures of a command without ERASURE_LEDGER, the oldest first', async () => {
  const service = await startApp(database)
  const ids = [await follow(service), await follow(service), await follow(service)]
  for (const id of ids) await service.erase(tenant, id)
  await load(database, `update erased_person set erased_at = erased_at - member_id % 7 * interval '1 hour'`)
  const expected = (await stored()).map(({ hash }) => hash)
  const running = await startService(
    readConfig({ ...env, PORT: '0', LOG_LEVEL: 'silent', ERASURE_LEDGER: directory }),
  )
  await running.ready
  await expect.poll(recorded).toHaveLength(3)
  await running.close()
  expect((await recorded()).map(({ hash }) => hash)).toEqual(expected)
  expect((await stored()).every(({ in_ledger }) => in_ledger)).toBe(true)
})

async function warnings(path: string): Promise<string[]> {
  const found: string[] = []
  await database.session((session) => requireLedgerErasures(session, path, (text) => void found.push(text)))
  return found
}

it('a start notices the loss of any erasure, however many were recorded after it', async () => {
  const ledger = new ErasureLedger(directory)
  const service = await startApp(database, { erasureLedger: ledger })
  const id = await follow(service)
  expect((await service.erase(tenant, id)).status).toBe(204)
  await storeOldErasures(2_500)
  await ledger.recordAll(database)
  expect(await recorded()).toHaveLength(2_501)
  expect(await warnings(directory)).toEqual([])
  await load(database, 'delete from erased_person where member_id = $1', [id])
  await expect(warnings(directory)).rejects.toThrow('The database lacks erasures of ERASURE_LEDGER')
})

it('a service whose ledger directory is missing does not start', async () => {
  const config = readConfig({ ...env, PORT: '0', ERASURE_LEDGER: join(directory, 'missing') })
  await expect(startService(config)).rejects.toThrow(/^ERASURE_LEDGER \S+ cannot be used \(ENOENT\)\./)
})

it('a start warns about an empty ledger if the database has recorded erasures', async () => {
  const service = await openService()
  expect((await service.erase(tenant, await follow(service))).status).toBe(204)
  expect(await warnings(directory)).toEqual([])
  expect(await warnings(temporaryDirectory())).toEqual([
    expect.stringMatching(/ is empty, but erasures were recorded/),
  ])
})

it('members erase erases nobody while the ledger directory is missing', async () => {
  const service = await startApp(database)
  const userId = randomUserId()
  await follow(service, userId)
  const { status, stderr } = await runCommand(
    ['members', 'erase', '--account', String(accountId), '--user-id', userId],
    { ...env, ERASURE_LEDGER: join(directory, 'missing') },
  )
  expect([status, stderr]).toEqual([
    1,
    expect.stringMatching(/^oa-audience: ERASURE_LEDGER \S+ cannot be used/),
  ])
  expect(await service.member(tenant, userId)).toBeDefined()
})
