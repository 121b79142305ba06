/** A disk that is really full, below data and WAL alike: a small file system in memory, which root may mount. */
import { spawnSync } from 'node:child_process'
import { closeSync, mkdtempSync, openSync, rmSync, writeSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, expect, it } from 'vitest'
import { EMBEDDED_DATABASE, SUPERUSER } from '../../src/postgres/embedded/cluster.ts'
import { PostgresDatabase } from '../../src/postgres/postgres-database.ts'
import { lineEvent } from '../../tools/simulator/events.ts'
import { addTenant } from '../support/database.ts'
import { becomesWell, eventually, spawnService } from '../support/process.ts'
import { signedDelivery } from '../support/service.ts'

/** An empty cluster has 40 MiB, a first WAL segment 16. */
const DISK_MIB = 128
/** Stays full for so long, while the platform keeps sending. */
const FULL_MS = 5_000
/** Bytes of each message: WAL segments that are there already are written to before the disk is asked for more. */
const MESSAGE_LENGTH = 4_000

const disk = mkdtempSync(join(tmpdir(), 'oa-audience-disk-'))
const mounted = spawnSync('mount', ['-t', 'tmpfs', '-o', `size=${DISK_MIB}m,mode=755`, 'tmpfs', disk])
const hasDisk = mounted.status === 0
if (!hasDisk) {
  console.warn('\n!!! no file system can be mounted here (root on Linux may): a full disk is NOT tested\n')
}

afterAll(() => {
  if (hasDisk) spawnSync('umount', ['-l', disk])
  rmSync(disk, { recursive: true, force: true })
})

it.runIf(hasDisk)(
  'answers 503 while its disk is full, and loses and doubles nothing when there is room again',
  async () => {
    const dataDir = join(disk, 'data')
    const service = await spawnService({ DATA_DIR: dataDir, RATE_LIMIT_MAX: '0' })
    await becomesWell(service.url)
    const database = new PostgresDatabase(
      { host: join(dataDir, 'postgres'), port: 5432, user: SUPERUSER, database: EMBEDDED_DATABASE },
      () => undefined,
    )
    database.markReady()
    const tenant = await addTenant(database)
    let sent = 0
    const newDelivery = () => {
      sent += 1
      const text = `${sent}`.padEnd(MESSAGE_LENGTH, 'x')
      return signedDelivery(tenant, [
        lineEvent('message', 'U1', { message: { type: 'text', id: `${sent}`, text } }),
      ])
    }
    const send = async ({ path, init }: ReturnType<typeof signedDelivery>) => {
      const answer = await fetch(service.url + path, init)
      await answer.arrayBuffer()
      if (answer.status === 503) expect(answer.headers.get('retry-after')).not.toBeNull()
      return answer.status
    }
    expect(await send(newDelivery())).toBe(200)

    const ballast = fill(join(disk, 'ballast'))
    const statuses = new Map<number, number>()
    const refused: Array<ReturnType<typeof signedDelivery>> = []
    const fullUntil = Date.now() + FULL_MS
    while (Date.now() < fullUntil) {
      const deliveries = Array.from({ length: 16 }, newDelivery)
      const answers = await Promise.all(deliveries.map(send))
      for (const [i, status] of answers.entries()) {
        statuses.set(status, (statuses.get(status) ?? 0) + 1)
        if (status !== 200) refused.push(deliveries[i] as (typeof deliveries)[number])
      }
    }
    expect([...statuses.keys()].filter((status) => status !== 200)).toEqual([503])

    rmSync(ballast)
    for (const delivery of refused) {
      await eventually(
        () => send(delivery),
        (status) => status === 200,
        60_000,
      )
    }
    const [member] = await database.query<{ event_count: bigint }>(
      `select event_count from audience_member where user_id = 'U1'`,
    )
    expect(Number(member?.event_count)).toBe(sent)
    expect(service.child.exitCode).toBeNull()
    await database.close()
  },
)

/** Writes until there is no room for one byte more. */
function fill(path: string): string {
  const file = openSync(path, 'w')
  for (let size = 1024 * 1024; size >= 1; size /= 2) {
    try {
      for (;;) writeSync(file, Buffer.alloc(size))
    } catch (error) {
      if ((error as { code?: string }).code !== 'ENOSPC') throw error
    }
  }
  closeSync(file)
  return path
}
