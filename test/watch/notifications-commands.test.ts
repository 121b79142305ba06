/** `oa-audience notifications`, and what doctor says about channels. */
import { expect, it } from 'vitest'
import { INT64_MAX } from '../../src/http/path-id.ts'
import { CHANNELS } from '../../src/operations/channels.ts'
import { ChannelTester, listNotifications } from '../../src/watch/notifications/history.ts'
import { findingsOf, runCommand } from '../support/command.ts'
import { addTenant, createTestDatabase } from '../support/database.ts'
import { startReceiver } from '../support/endpoints.ts'
import { addChannel, addNotification, newSender, startOutbox } from '../support/notifications.ts'
import { runOperation } from '../support/operations.ts'

const { database, env } = await createTestDatabase()
const tenant = await addTenant(database)

const run = (command: string, options: { input?: string; env?: Record<string, string> } = {}) =>
  runCommand(
    ['notifications', ...command.split(' ')],
    { ...env, ...options.env },
    { input: options.input ?? '' },
  )
const succeed = async (...args: Parameters<typeof run>) => {
  const { status, stdout, stderr } = await run(...args)
  expect({ status, stderr }).toEqual({ status: 0, stderr: '' })
  return stdout
}

it('are added from standard input, listed without the path, changed, paused, resumed and removed', async () => {
  const receiver = await startReceiver()
  const input = `${receiver.url}/T0/secret\n`
  const added = JSON.parse(
    await succeed('add --format slack --target - --allow-private-network --json', { input }),
  )
  expect(added).toEqual({ id: expect.any(String), secret: null })
  const listed = await succeed('list')
  expect(listed).toContain(`${new URL(receiver.url).origin}/…`)
  expect(listed).not.toContain('secret')
  await succeed(`update ${added.id} --name Night`)
  await succeed(`pause ${added.id}`)
  expect(JSON.parse(await succeed(`show ${added.id} --json`))).toMatchObject({
    ...{ name: 'Night', status: 'paused', messages: [] },
  })
  expect(await succeed(`test ${added.id}`)).toMatch(
    /^Test message of oa-audience\n.*\n\naccepted: 200 \(\d+ ms\)\n$/,
  )
  expect(receiver.received[0]?.path).toBe('/webhook/T0/secret')
  expect(await succeed(`show ${added.id}`)).toContain('  Test message of oa-audience')
  await succeed(`resume ${added.id}`)
  await succeed(`remove ${added.id}`)
  expect((await run(`show ${added.id}`)).stderr).toContain('does not exist')
})

it('have a language, which the format webhook has not', async () => {
  const receiver = await startReceiver()
  const added = await succeed(
    `add --format slack --target ${receiver.url} --language ja --allow-private-network --json`,
  )
  const { id } = JSON.parse(added)
  expect(await succeed(`test ${id}`)).toMatch(/^oa-audience のテストメッセージ\n/)
  await succeed(`update ${id} --language zh`)
  expect(JSON.parse(await succeed(`show ${id} --json`))).toMatchObject({ language: 'zh' })
  const webhook = 'add --format webhook --target https://hooks.example/a --language'
  expect(await run(`${webhook} th`)).toMatchObject({
    status: 1,
    stderr: expect.stringContaining('must be en'),
  })
})

it.each([
  ['add --format email --target a@example.com', 'set SMTP_URL and restart the service'],
  ['add --format slack --target https://chat.example/x --language fr', 'Allowed choices are en, ja, th, zh'],
  ['update 404 --name x', 'channel 404 does not exist'],
])('refuse "%s"', async (command, message) => {
  expect(await run(command)).toMatchObject({ status: 1, stderr: expect.stringContaining(message) })
})

it('fail their test unless it is accepted, and keep the result', async () => {
  const receiver = await startReceiver()
  receiver.answer = { status: 403, body: 'invalid_token of Ann' }
  const id = await addChannel(database, { target: receiver.url })
  const { status, stdout } = await run(`test ${id} --json`)
  expect(status).toBe(1)
  expect(JSON.parse(stdout)).toMatchObject({ wasAccepted: false, status: 403, reason: '' })
  const messages = await listNotifications(database, id, { beforeId: INT64_MAX, limit: 10 })
  expect(messages).toMatchObject([{ kind: 'test', status: 403, answer: '', sentAt: null, attempts: 1 }])
  expect(JSON.stringify([stdout, messages?.map(({ answer }) => answer)])).not.toContain('Ann')
  const activity = await database.query(`select action from activity where object_id = $1`, [String(id)])
  expect(activity).toEqual([{ action: 'notifications.tested' }])
})

it('are tested once in two seconds', async () => {
  const receiver = await startReceiver()
  const id = await addChannel(database, { target: receiver.url })
  const services = { channelTester: new ChannelTester(newSender()) }
  const test = () => runOperation(database, CHANNELS.test, { id, services })
  expect((await test()).result).toMatchObject({ wasAccepted: true })
  await expect(test()).rejects.toMatchObject({ code: 'rate_limited' })
  expect(receiver.received).toHaveLength(1)
})

it('show the text of each message, newest first', async () => {
  const receiver = await startReceiver()
  const id = await addChannel(database, { target: receiver.url })
  const first = await addNotification(database, id, [{ id: tenant.accountId }])
  const second = await addNotification(database, id, [], {
    ...{ kind: 'test', reason: null },
    due_at: new Date(Date.now() + 3_600_000),
  })
  startOutbox(database)
  const page = { beforeId: INT64_MAX, limit: 10 }
  const list = () => listNotifications(database, id, page)
  await expect.poll(async () => (await list())?.at(-1)?.sentAt).not.toBeNull()
  const [waiting, sent] = (await list()) ?? []
  expect(waiting).toMatchObject({ id: second, kind: 'test', attempts: 0, answer: null, accounts: 0 })
  expect(sent).toMatchObject({ id: first, accounts: 1, accountNames: ['test'], status: 200, answer: '' })
  const { text } = JSON.parse(receiver.received[0]?.body ?? '')
  expect(text).toContain(sent?.text)
  const before = { beforeId: second, limit: 10 }
  expect(await listNotifications(database, id, before)).toHaveLength(1)
})

it('that fail, are paused or lack SMTP_URL are reported by doctor', async () => {
  const { database: own, env: ownEnv } = await createTestDatabase()
  const doctor = async () => {
    const findings = await findingsOf(ownEnv)
    return findings.filter(({ check }) => /^(notifications|SMTP_URL|HEARTBEAT_URL)/.test(check))
  }
  expect(await doctor()).toEqual([
    { check: 'notifications', severity: 'ok', message: expect.stringContaining('notifications add') },
    { check: 'HEARTBEAT_URL', severity: 'ok', message: expect.stringContaining('unset') },
  ])
  const account = await addTenant(own)
  const failing = await addChannel(own, { target: 'http://127.0.0.1:9/hook' })
  const refused = { attempts: 1, answer: 'no response: ECONNREFUSED' }
  await addNotification(own, failing, [{ id: account.accountId }], refused)
  const paused = await addChannel(own, { target: 'http://127.0.0.1:9/hook', status: 'paused' })
  const mailbox = await addChannel(own, { target: 'a@example.com', format: 'email' })
  expect((await doctor()).map(({ check, severity }) => `${check} ${severity}`)).toEqual([
    `notifications ${failing} warning`,
    `notifications ${paused} warning`,
    `notifications ${mailbox} ok`,
    'SMTP_URL error',
    'notifications warning',
    'HEARTBEAT_URL ok',
  ])
  const of = async (check: string) => (await doctor()).find((finding) => finding.check === check)?.message
  expect(await of('notifications')).toContain('were never compared')
  // A channel that is paused expects nothing.
  await own.query(`update notification_channel set status = 'paused'`)
  await own.query(`update notification_watch set passed_at = '-infinity', completed_at = '-infinity'`)
  expect(await of('notifications')).toBeUndefined()
})
