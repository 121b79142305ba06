/** HEARTBEAT_URL: a watchdog outside learns when the service cannot store. */
import pg from 'pg'
import { expect, it, onTestFinished } from 'vitest'
import { Secret } from '../../src/config/secret.ts'
import { startHeartbeat as start } from '../../src/watch/notifications/heartbeat.ts'
import { createTestDatabase, openDatabase } from '../support/database.ts'
import { type Receiver, startReceiver } from '../support/endpoints.ts'

const { database, connection } = await createTestDatabase()

/** As of a full disk. */
const diskFull = Object.assign(new pg.DatabaseError('could not extend file', 0, 'error'), { code: '53100' })

const expire = () => database.query(`update notification_watch set heartbeat_at = '-infinity'`)
const count = (receiver: Receiver, wanted: number) => expect.poll(() => receiver.received.length).toBe(wanted)

interface Tries {
  count: number
  failed: number
}

/** A heartbeat of one process, which tries all the time. */
function startHeartbeat(url: string, on = database, logged: string[] = []): Tries {
  const tries = { count: 0, failed: 0 }
  const counting = {
    state: () => on.state(),
    query: async (...args: Parameters<typeof on.query>) => {
      tries.count += 1
      return on.query(...args).catch((error: Error) => {
        tries.failed += 1
        throw error
      })
    },
  }
  const note = (text: string) => void logged.push(text)
  const log = { info: note, warn: note } as never
  onTestFinished(start(counting as never, new Secret(url), log, { tryMs: 10 }))
  return tries
}

it('is requested by one of several processes, once a minute', async () => {
  await expire()
  const receiver = await startReceiver()
  const tries = [startHeartbeat(receiver.url), startHeartbeat(receiver.url, openDatabase(connection))]
  await count(receiver, 1)
  const before = tries.map((each) => each.count)
  await database.query(`update notification_watch set heartbeat_at = now() - interval '45 seconds'`)
  await expect
    .poll(() => Math.min(...tries.map((each, i) => each.count - (before[i] as number))))
    .toBeGreaterThan(20)
  expect(receiver.received).toHaveLength(1)
  await database.query(`update notification_watch set heartbeat_at = now() - interval '56 seconds'`)
  await count(receiver, 2)
  // The clock of the database was set back.
  await database.query(`update notification_watch set heartbeat_at = now() + interval '1 day'`)
  await count(receiver, 3)
})

it('is not requested while nothing can be committed', async () => {
  await expire()
  const receiver = await startReceiver()
  await database.session(async (session) => {
    await session.query('begin')
    await session.query('update notification_watch set is_only_row = true')
    const tries = startHeartbeat(receiver.url)
    await expect.poll(() => tries.failed).toBeGreaterThan(0)
    expect(receiver.received).toEqual([])
    await session.query('rollback')
  })
  await count(receiver, 1)
})

it('is requested by no process while the last delivery to one of them could not be stored', async () => {
  await expire()
  const receiver = await startReceiver()
  const failing = openDatabase(connection)
  failing.noteDelivery(diskFull)
  const tries = startHeartbeat(receiver.url, failing)
  // The first try has ended.
  await expect.poll(() => tries.count).toBeGreaterThan(1)
  const others = startHeartbeat(receiver.url)
  await expect.poll(() => Math.min(tries.count, others.count)).toBeGreaterThan(20)
  expect(receiver.received).toEqual([])
  failing.noteDelivery(null)
  await expire()
  await count(receiver, 1)
})

it('is requested again after a failure, which is logged once and without the URL', async () => {
  await expire()
  const receiver = await startReceiver()
  receiver.answer = { status: 302, headers: { location: `${receiver.url}/elsewhere` } }
  const logged: string[] = []
  startHeartbeat(`${receiver.url}/token`, database, logged)
  await count(receiver, 1)
  await expire()
  await count(receiver, 2)
  expect(receiver.received.every(({ path }) => path === '/webhook/token')).toBe(true)
  receiver.answer = { status: 200 }
  await expire()
  await count(receiver, 3)
  await expect.poll(() => logged).toHaveLength(2)
  expect(logged[0]).toContain('does not accept')
  expect(logged.join()).not.toContain('token')
})
