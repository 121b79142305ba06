/** Channels as other programs may store them. */
import { expect, it } from 'vitest'
import { Secret } from '../src/config/secret.ts'
import { openMailer } from '../src/watch/notifications/email.ts'
import { accountWatch } from '../src/watch/notifications/watch.ts'
import { runCommand } from './support/command.ts'
import { addTenant, createTestDatabase, openDatabase } from './support/database.ts'
import { startReceiver } from './support/endpoints.ts'
import { startMailServer } from './support/mail-server.ts'
import { addChannel, newSender, startOutbox } from './support/notifications.ts'
import { eventually } from './support/process.ts'

it('with nonsense stop neither passes nor the messages of other channels', async () => {
  const { database, connection, env } = await createTestDatabase()
  const account = await addTenant(database)
  await database.query('update official_account set channel_secret = null where id = $1', [account.accountId])
  const receiver = await startReceiver()
  const server = await startMailServer()
  const nonsense: Array<[columns: Record<string, unknown>, answer: string]> = [
    [{ target: '' }, 'the URL cannot be read'],
    [{ target: 'javascript:alert(1)' }, 'the URL must begin with https://'],
    [{ target: '\u0007\n\u202e' }, 'the URL cannot be read'],
    [{ target: receiver.url, format: 'webhook', secret: null }, 'the channel has no secret'],
    [{ target: receiver.url, format: 'webhook', secret: ' ' }, 'the channel has no secret'],
    [{ target: 'a@example.com\r\nBcc: b@example.com', format: 'email' }, 'not the address of a mailbox'],
  ]
  const odd = { name: '\u001b[2J'.repeat(1_000) }
  for (const [columns] of nonsense) await addChannel(database, { ...odd, ...columns })
  const good = await addChannel(database, { target: receiver.url, ...odd })
  const watch = accountWatch(openDatabase(connection))
  for (let pass = 0; pass < 2; pass += 1) {
    await database.query(`update notification_watch set passed_at = '-infinity'`)
    await database.query(`update account_check set status_since = status_since - interval '1 minute'`)
    expect(await watch()).toBe(true)
  }
  const smtp = await openMailer(new Secret(server.url.reveal()))
  startOutbox(database, newSender({ smtp }))
  const rows = await eventually(
    () =>
      database.query<{ answer: string }>(
        `select answer from notification where answer is not null order by notification_channel_id`,
      ),
    (answered) => answered.length === nonsense.length + 1,
  )
  expect(rows).toEqual(
    [...nonsense.map(([, answer]) => answer), ''].map((answer) => ({
      answer: expect.stringContaining(answer),
    })),
  )
  expect(receiver.received).toHaveLength(1)
  expect(server.mails).toEqual([])
  for (const args of ['notifications list', `notifications show ${good}`, 'notifications show 3', 'doctor']) {
    const { stdout, stderr } = await runCommand(args.split(' '), {
      ...env,
      LINE_API_URL: 'http://127.0.0.1:9',
    })
    expect(stderr, args).toBe('')
    expect(stdout, args).not.toMatch(/[^\P{Cc}\n]|\p{Bidi_Control}/u)
  }
})
