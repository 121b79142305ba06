/** Real processes that are killed while they send notifications, and the real interval of the heartbeat. */
import { expect, it, onTestFinished } from 'vitest'
import { Secret } from '../../src/config/secret.ts'
import { startHeartbeat } from '../../src/watch/notifications/heartbeat.ts'
import { addTenant, createTestDatabase, urlOf } from '../support/database.ts'
import { startReceiver } from '../support/endpoints.ts'
import { addChannel, addNotification, SILENT_LOG } from '../support/notifications.ts'
import { spawnService } from '../support/process.ts'

it('repeats one message per channel, with the same id, and loses none, if a process is killed before it has stored the response', async () => {
  const { database, connection } = await createTestDatabase()
  const account = await addTenant(database)
  const receiver = await startReceiver()
  const channel = await addChannel(database, { format: 'webhook', target: receiver.url })
  const ids: string[] = []
  for (let n = 0; n < 3; n += 1)
    ids.push(String(await addNotification(database, channel, [{ id: account.accountId }])))
  const env = { DATABASE_URL: urlOf(connection) }
  // The receiver has a message, and its response does not arrive before the process ends.
  receiver.answer = { status: null }
  const killed = await spawnService(env)
  await expect.poll(() => receiver.received.length).toBe(1)
  killed.child.kill('SIGKILL')
  await killed.exited
  receiver.answer = { status: 200 }
  await spawnService(env)
  await database.query('update notification set leased_until = now() where sent_at is null')
  await expect.poll(() => database.query('select from notification where sent_at is null')).toHaveLength(0)
  const received = receiver.received.map(({ headers }) => String(headers['webhook-id']).split('_')[1])
  // One message of a channel is in flight at a time, so one was repeated, with the same id.
  expect(received.toSorted()).toEqual([received[0], ...ids].toSorted())
})

it('requests HEARTBEAT_URL again 55 to 65 s after the last time', async () => {
  const { database } = await createTestDatabase()
  const receiver = await startReceiver()
  onTestFinished(startHeartbeat(database, new Secret(receiver.url), SILENT_LOG))
  await expect.poll(() => receiver.received.length).toBe(1)
  // As if 40 s had passed.
  await database.query(`update notification_watch set heartbeat_at = heartbeat_at - interval '40 seconds'`)
  const startedAt = performance.now()
  await expect.poll(() => receiver.received.length).toBe(2)
  const seconds = (performance.now() - startedAt) / 1000
  expect(seconds).toBeGreaterThan(14)
  expect(seconds).toBeLessThan(30)
})
