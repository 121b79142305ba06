/** Real processes that are killed while they send notifications. */
import { expect, it } from 'vitest'
import { addTenant, createTestDatabase, urlOf } from '../support/database.ts'
import { startReceiver } from '../support/endpoints.ts'
import { addChannel, addNotification } from '../support/notifications.ts'
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
