/** ERASURE_LEDGER while processes are killed and a disk is full. */
import { spawnSync } from 'node:child_process'
import { expect, it } from 'vitest'
import { ErasureLedger } from '../../src/audience/erasure/erasure-ledger.ts'
import { LedgerDamage, listLedgerFiles, readLedger } from '../../src/audience/erasure/ledger-files.ts'
import { reapplyLedger } from '../../src/audience/erasure/reapply-erasures.ts'
import { commandActor } from '../../src/operators/actor.ts'
import { addTenant, createTestDatabase, type Tenant } from '../support/database.ts'
import { mountDisk } from '../support/disk.ts'
import { load, loadMembers } from '../support/load.ts'
import { type ServiceProcess, startHealthy, temporaryDirectory } from '../support/process.ts'
import { startApp } from '../support/service.ts'

const MEMBERS = 400
/** One page of the ledger's file system, so that the second write finds no room for its lines. */
const DISK_KIB = 4

const mounted = mountDisk(`${DISK_KIB}k`, 'a full ledger is')

async function recordedMembers(directory: string): Promise<Set<string>> {
  const ids = new Set<string>()
  for await (const entry of readLedger(directory, new LedgerDamage()))
    if ('hash' in entry) ids.add(String(entry.memberId))
  return ids
}

async function erase(service: ServiceProcess, tenant: Tenant, id: string): Promise<number | null> {
  const sent = fetch(`${service.url}/api/audience/${id}`, { method: 'DELETE', headers: tenant.headers })
  return sent.then(
    async (response) => {
      await response.arrayBuffer()
      return response.status
    },
    () => null,
  )
}

const memberIds = async (database: Parameters<typeof load>[0]) =>
  (await load<{ id: bigint }>(database, 'select id from audience_member order by id')).map(({ id }) =>
    String(id),
  )

it('the ledger has each confirmed erasure of two processes, one of which is killed, and the other records its unrecorded erasures', async () => {
  const directory = temporaryDirectory()
  const { database, env } = await createTestDatabase()
  const tenant = await addTenant(database)
  await loadMembers(database, tenant, MEMBERS)
  const variables = { ...env, ERASURE_LEDGER: directory, RATE_LIMIT_MAX: '0' }
  const [killed, other] = [await startHealthy(variables), await startHealthy(variables)]
  const ids = await memberIds(database)
  const confirmed = new Set<string>()
  await Promise.all(
    [killed, other, killed, other, killed, other].map(async (service) => {
      for (let id = ids.pop(); id !== undefined; id = ids.pop()) {
        if ((await erase(service, tenant, id)) !== 204) continue
        confirmed.add(id)
        if (confirmed.size === MEMBERS / 4) killed.child.kill('SIGKILL')
      }
    }),
  )
  const recorded = await recordedMembers(directory)
  expect([...confirmed].filter((id) => !recorded.has(id))).toEqual([])

  // The state between the commit and the write, in which a kill can leave a row.
  await load(database, `update erased_person set in_ledger = false where member_id = any ($1)`, [
    [...confirmed].slice(0, 3),
  ])
  expect(await erase(other, tenant, [...confirmed][0] ?? '')).toBe(404)
  expect(
    await load(database, 'select from erased_person where not in_ledger and member_id = $1', [
      [...confirmed][0],
    ]),
  ).toEqual([])
  const ledger = new ErasureLedger(directory)
  await ledger.recordAll(database)
  expect(await load(database, 'select from erased_person where not in_ledger')).toEqual([])
  const erased = await load<{ member_id: bigint }>(database, 'select member_id from erased_person')
  const afterwards = await recordedMembers(directory)
  expect(erased.filter(({ member_id }) => !afterwards.has(String(member_id)))).toEqual([])
  expect(await reapplyLedger(database, commandActor(), directory)).toMatchObject({ erasures: 0 })
})

it.runIf(mounted !== null)(
  'a full ledger refuses erasures, and records them in a new file when there is room again',
  async () => {
    const disk = mounted ?? ''
    const { database } = await createTestDatabase()
    const tenant = await addTenant(database)
    await loadMembers(database, tenant, 100)
    const ledger = new ErasureLedger(disk)
    const service = await startApp(database, { erasureLedger: ledger })
    const statuses: number[] = []
    const ids = await memberIds(database)
    for (const id of ids) {
      const { status } = await service.erase(tenant, id)
      statuses.push(status)
      if (status !== 204) break
    }
    expect(statuses.slice(0, -1).every((status) => status === 204)).toBe(true)
    expect(statuses.at(-1)).toBe(500)
    for (const _ of [1, 2, 3])
      expect((await service.erase(tenant, ids[statuses.length - 1])).status).toBe(500)
    spawnSync('mount', ['-o', 'remount,size=1m', disk])
    expect((await service.erase(tenant, ids[statuses.length - 1])).status).toBe(404)
    const recorded = await recordedMembers(disk)
    expect(ids.slice(0, statuses.length).filter((id) => !recorded.has(id))).toEqual([])
    expect(await listLedgerFiles(disk)).toHaveLength(2)
  },
)
