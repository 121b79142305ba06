/** A disk that is really full, for data and WAL: a small file system in memory, which root can mount. */
import { closeSync, openSync, rmSync, writeSync } from 'node:fs'
import { join } from 'node:path'
import { expect, it } from 'vitest'
import { lineEvent } from '../../tools/simulator/events.ts'
import { connectionTo } from '../support/data-directory.ts'
import { addTenant, openDatabase, type Tenant } from '../support/database.ts'
import { mountDisk } from '../support/disk.ts'
import { runProgramAsync, type ServiceProcess, startHealthy } from '../support/process.ts'
import { sendDelivery } from '../support/service.ts'

/** An empty cluster takes 40 MiB, its first WAL segment 16 MiB. */
const DISK_MIB = 128
const SMALL_MIB = 30
/** Bytes of each message. */
const MESSAGE_LENGTH = 4_000
/** Refused deliveries before there is room again: 2 s on two cores. */
const REFUSED_MIN = 2_000

const disk = mountDisk(`${DISK_MIB}m`, 'a full disk is')

/** Deliveries with one message each, and a count of them. */
function deliveriesTo({ url }: ServiceProcess, tenant: Tenant) {
  let count = 0
  const next = () => {
    count += 1
    const message = { type: 'text', id: `${count}`, text: `${count}`.padEnd(MESSAGE_LENGTH, 'x') }
    return [lineEvent('message', 'U1', { message })]
  }
  const send = async (events: unknown[]) => {
    const answer = await sendDelivery(url, tenant, events)
    await answer.arrayBuffer()
    if (answer.status === 503) expect(answer.headers.get('retry-after')).not.toBeNull()
    return answer.status
  }
  return { next, send, count: () => count }
}

it.runIf(disk !== null)(
  'answers 503 while its disk is full, and loses and duplicates nothing afterwards',
  async () => {
    const dataDir = join(disk ?? '', 'data')
    const service = await startHealthy({ DATA_DIR: dataDir, RATE_LIMIT_MAX: '0' })
    const database = openDatabase(connectionTo(dataDir))
    const { next, send, count } = deliveriesTo(service, await addTenant(database))
    expect(await send(next())).toBe(200)

    const ballast = fill(join(disk ?? '', 'ballast'))
    const refused: Array<ReturnType<typeof next>> = []
    while (refused.length < REFUSED_MIN) {
      const deliveries = Array.from({ length: 16 }, next)
      const statuses = await Promise.all(deliveries.map(send))
      for (const status of statuses) expect([200, 503]).toContain(status)
      refused.push(...deliveries.filter((_, i) => statuses[i] === 503))
    }

    const health = async () => {
      const { status } = (await (await fetch(`${service.url}/api/health`)).json()) as { status: string }
      return status
    }
    // A few deliveries still fit into pages that are allocated already.
    const sendMore = async () => {
      const delivery = next()
      const status = await send(delivery)
      if (status === 503) refused.push(delivery)
      return [status, await health()]
    }
    await expect.poll(sendMore, { timeout: 60_000 }).toEqual([503, 'degraded'])

    rmSync(ballast)
    for (const delivery of refused) {
      await expect.poll(() => send(delivery), { timeout: 60_000 }).toBe(200)
    }
    expect(await health()).toBe('ok')
    const members = await database.query(`select user_id, event_count from audience_member`)
    expect(members).toEqual([{ user_id: 'U1', event_count: BigInt(count()) }])
    expect(service.child.exitCode).toBeNull()
    await database.close()
  },
)

it.runIf(disk !== null)('names the full disk if its server cannot start again', async () => {
  fill(join(disk ?? '', 'ballast'))
  const { status, stderr } = await runProgramAsync(['serve'], { DATA_DIR: join(disk ?? '', 'data') })
  expect([status, stderr]).toEqual([
    1,
    expect.stringMatching(/ did not start: .*: No space left on device\n$/),
  ])
})

const small = mountDisk(`${SMALL_MIB}m`, 'a first start on a full disk is')

it.runIf(small !== null)('names the full disk if there is no room for its first start', async () => {
  const { status, stderr } = await runProgramAsync(['serve'], { DATA_DIR: join(small ?? '', 'data') })
  expect([status, stderr]).toEqual([
    1,
    expect.stringMatching(
      /^oa-audience: cannot set up a PostgreSQL in DATA_DIR .*: No space left on device\..*\n$/,
    ),
  ])
})

/** Writes a file until the disk has no room for one more byte. */
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
