/** Notifications on their way to chats, webhooks and mailboxes. */
import { type AddressInfo, createServer, type Socket } from 'node:net'
import { Webhook } from 'standardwebhooks'
import { expect, it } from 'vitest'
import { readConfig } from '../../src/config/config.ts'
import { Secret } from '../../src/config/secret.ts'
import { startService } from '../../src/main.ts'
import type { Statement, Transactions } from '../../src/postgres/statement.ts'
import { pauseGone } from '../../src/watch/notifications/channels.ts'
import { openMailer } from '../../src/watch/notifications/send.ts'
import { addTenant, createTestDatabase } from '../support/database.ts'
import { startReceiver } from '../support/endpoints.ts'
import { gate } from '../support/gate.ts'
import { startMailServer } from '../support/mail-server.ts'
import { addChannel, addNotification, newSender, startOutbox } from '../support/notifications.ts'
import { eventually } from '../support/process.ts'
import { startRawReceiver } from '../support/raw-receiver.ts'

const { database, env } = await createTestDatabase()
const tenant = await addTenant(database)
const other = await addTenant(database)

interface Stored extends Record<string, unknown> {
  attempts: number
  sent_at: string | null
  failed_at: string | null
  status: number | null
  answer: string | null
  waits: boolean
}

const stored = async (id: bigint): Promise<Stored> => {
  const [row] = await database.query<Stored>(
    `select attempts, sent_at, failed_at, status, answer, due_at > now() and leased_until <= now() as waits
       from notification where id = $1`,
    [id],
  )
  return row as Stored
}
const ends = (id: bigint) =>
  eventually(
    () => stored(id),
    ({ sent_at, failed_at }) => (sent_at ?? failed_at) !== null,
  )
const waits = (id: bigint) =>
  eventually(
    () => stored(id),
    (row) => row.waits,
  )
/** A channel with a receiver, and a message about the tenant's account. `add` adds another one. */
async function addMessage(channelColumns: Record<string, unknown> = {}, columns = {}) {
  const receiver = await startReceiver()
  const channel = await addChannel(database, { target: receiver.url, ...channelColumns })
  const add = (more = {}) => addNotification(database, channel, [{ id: tenant.accountId }], more)
  return { receiver, channel, add, id: await add(columns) }
}
const inHours = (hours: number) => new Date(Date.now() + hours * 3_600_000)
const makeDue = (id: bigint) => database.query('update notification set due_at = now() where id = $1', [id])

it('a message to a chat is sent once, with the name that the account has today', async () => {
  const { receiver, id } = await addMessage()
  await database.query(`update official_account set name = 'Cafe <!here>' where id = $1`, [tenant.accountId])
  startOutbox(database)
  startOutbox(database)
  expect(await ends(id)).toMatchObject({ attempts: 1, failed_at: null, status: 200, answer: '' })
  expect(receiver.received).toHaveLength(1)
  expect(receiver.received[0]?.headers['content-type']).toBe('application/json; charset=utf-8')
  expect(JSON.parse(receiver.received[0]?.body ?? '')).toEqual({
    text: [
      'Cafe &lt;!here&gt; is broken: Suspended by LINE',
      'LINE has suspended the account.',
      'Ask LINE for the reason in LINE Official Account Manager.',
      `https://console.example/accounts/${tenant.accountId}`,
    ].join('\n'),
  })
})

it('a message to a chat leaves out an account that has moved to another organization, and is dropped if none is left', async () => {
  const receiver = await startReceiver()
  const [stays, moves] = [await addTenant(database), await addTenant(database)]
  const columns = { target: receiver.url, organization_id: stays.organizationId }
  const channel = await addChannel(database, columns)
  const id = await addNotification(database, channel, [{ id: stays.accountId }, { id: moves.accountId }])
  const alone = await addNotification(database, channel, [{ id: moves.accountId }])
  startOutbox(database)
  await ends(id)
  await expect.poll(() => stored(alone)).toBeUndefined()
  expect(receiver.received).toHaveLength(1)
  expect(receiver.received[0]?.body).toContain(`/accounts/${stays.accountId}`)
  expect(receiver.received[0]?.body).not.toContain('2 accounts')
})

it('a message to a webhook is verified by a library, with the same id and body in each attempt', async () => {
  const receiver = await startReceiver()
  receiver.answer = { status: 500 }
  const channel = await addChannel(database, { format: 'webhook', target: receiver.url })
  const [{ secret = '' } = {}] = await database.query<{ secret: string }>(
    'select secret from notification_channel where id = $1',
    [channel],
  )
  const id = await addNotification(database, channel, [{ id: tenant.accountId }, { id: other.accountId }])
  startOutbox(database)
  expect(await waits(id)).toMatchObject({ attempts: 1, status: 500, answer: '' })
  receiver.answer = { status: 204 }
  await makeDue(id)
  expect(await ends(id)).toMatchObject({ attempts: 2, status: 204, failed_at: null })
  const [first, second] = receiver.received
  expect(second?.body).toBe(first?.body)
  expect(second?.headers['webhook-id']).toBe(first?.headers['webhook-id'])
  expect(first?.headers['webhook-id']).toMatch(new RegExp(`^ntf_${id}_\\d{13}$`))
  const verified = new Webhook(secret).verify(second?.body ?? '', second?.headers as Record<string, string>)
  expect(verified).toMatchObject({
    type: 'account.status',
    data: {
      accountId: String(tenant.accountId),
      before: 'ok',
      after: 'broken',
      reason: 'suspended',
      count: 2,
    },
  })
})

it('a message to a webhook that responds with 410 pauses the channel, which is recorded', async () => {
  const { organizationId } = tenant
  const { receiver, channel, id } = await addMessage({ format: 'webhook', organization_id: organizationId })
  receiver.answer = { status: 410 }
  startOutbox(database)
  expect(await waits(id)).toMatchObject({ attempts: 1, status: 410 })
  expect(
    await database.query(
      `select actor_kind, action, organization_id, changes from activity
        where object_kind = 'notification_channel' and object_id = $1`,
      [String(channel)],
    ),
  ).toEqual([
    {
      ...{ actor_kind: 'service', action: 'notifications.paused', organization_id: organizationId },
      changes: { status: ['active', 'paused'], response: 410 },
    },
  ])
  await makeDue(id)
  await pauseGone(database, channel)
  const [row] = await database.query('select status from notification_channel where id = $1', [channel])
  expect(row).toEqual({ status: 'paused' })
  expect(receiver.received).toHaveLength(1)
})

it('a receiver that hangs delays no other channel, and gets one request at a time', async () => {
  const hanging = await startRawReceiver(() => undefined)
  const slow = await addMessage({ target: hanging.url })
  await slow.add()
  startOutbox(database)
  await expect.poll(() => hanging.connections.length).toBe(1)
  startOutbox(database)
  const quick = await addMessage()
  await ends(quick.id)
  await ends(await quick.add())
  expect(quick.receiver.received).toHaveLength(2)
  expect(hanging.connections).toHaveLength(1)
  await database.query('delete from notification_channel where id = $1', [slow.channel])
  // The outboxes need not wait for it.
  for (const { socket } of hanging.connections) socket.destroy()
})

it('a receiver that fails does not stop the later messages of its channel', async () => {
  const { receiver, add, id } = await addMessage()
  receiver.answer = { status: 500 }
  startOutbox(database)
  await waits(id)
  receiver.answer = { status: 200 }
  await ends(await add())
  expect(await stored(id)).toMatchObject({ sent_at: null, failed_at: null })
})

it.each([
  [
    'sends an endless response',
    500,
    `HTTP/1.1 500 No\r\ncontent-length: 9999999\r\n\r\n${'x'.repeat(64_000)}`,
  ],
  ['redirects', 302, 'HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:9/xxx\r\ncontent-length: 0\r\n\r\n'],
  ['sends no HTTP', null, 'xxx\r\n\r\n'],
])('a receiver that %s has not accepted, and nothing that it sent is stored', async (_, status, text) => {
  const receiver = await startRawReceiver(({ socket }) => socket.write(text))
  const { id } = await addMessage({ target: receiver.url })
  startOutbox(database)
  const row = await waits(id)
  expect(row).toMatchObject({ attempts: 1, status, sent_at: null })
  expect(row.answer === '').toBe(status !== null)
  expect(row.answer).not.toContain('xxx')
})

it.each([
  ['https://127.0.0.1/hook', 'the address 127.0.0.1 is not public'],
  ['https://localhost/hook', 'localhost resolves to an address that is not public'],
  ['https://own.example/api/line/1', "the URL is this service's own: a loop"],
])('a receiver at %s is not requested', async (target, answer) => {
  const { id } = await addMessage({ target, allow_private_network: false })
  startOutbox(database, newSender({ isOwnUrl: ({ hostname }) => hostname === 'own.example' }))
  expect(await waits(id)).toMatchObject({ status: null, answer })
})

it('a message is repeated once, with the same id, if its process was killed before the result was stored', async () => {
  const { receiver, add, id } = await addMessage({ format: 'webhook' })
  const later = await add()
  const killed = gate()
  const first = startOutbox({
    secretKeys: database.secretKeys,
    transaction: database.transaction.bind(database),
    pipeline: database.pipeline.bind(database),
    query: async (statement: Statement, values: unknown[] = []) => {
      if (statement.name === 'complete-notification' && values[0] === id) await killed.passed
      return database.query(statement, values)
    },
  } as Transactions)
  await expect.poll(() => receiver.received.length).toBe(1)
  startOutbox(database)
  await ends((await addMessage({ target: receiver.url })).id)
  // While the lease lasts, nobody sends to the channel.
  expect(await stored(later)).toMatchObject({ attempts: 0 })
  await database.query('update notification set leased_until = now() where id = $1', [id])
  await ends(id)
  await ends(later)
  killed.open()
  await first()
  const ids = receiver.received.map(({ headers }) => headers['webhook-id'])
  const repeated = ids.filter((each) => each === ids[0])
  expect(repeated).toHaveLength(2)
  expect(ids.filter((each) => each !== undefined)).toHaveLength(3)
  expect(await stored(id)).toMatchObject({ attempts: 2, status: 200 })
})

it('a message fails permanently after 24 hours of attempts, and is not sent if it is a day old without one', async () => {
  const { receiver, add, id } = await addMessage({}, { attempts: 15, first_attempt_at: inHours(-25) })
  receiver.answer = { status: 500 }
  const untried = await add({ due_at: inHours(-25) })
  const young = await add({ attempts: 14, first_attempt_at: inHours(-23.5) })
  startOutbox(database)
  expect(await ends(id)).toMatchObject({ sent_at: null, attempts: 16, status: 500 })
  expect(await ends(untried)).toMatchObject({ sent_at: null, attempts: 0, answer: 'expired' })
  await expect.poll(() => stored(young)).toMatchObject({ failed_at: null, attempts: 15, status: 500 })
  expect(receiver.received).toHaveLength(2)
})

it('a message is sent although the clock of the database was set back by a day', async () => {
  const waiting = { created_at: inHours(24), due_at: inHours(24) }
  const tried = { ...waiting, attempts: 1, first_attempt_at: inHours(24), answer: '', status: 500 }
  const leased = { ...tried, due_at: inHours(-0.1), leased_until: inHours(24) }
  const { receiver, add, id: first } = await addMessage({}, waiting)
  const ids = [first, await add(tried), await add(leased)]
  startOutbox(database)
  for (const id of ids) expect(await ends(id)).toMatchObject({ status: 200 })
  expect(receiver.received).toHaveLength(3)
})

it('a message of an organization that is removed while it is sent leaves nothing behind', async () => {
  const removed = await addTenant(database)
  const receiver = await startReceiver()
  const response = gate()
  receiver.answer = { status: 410, until: response.passed }
  const columns = { target: receiver.url, organization_id: removed.organizationId }
  await addNotification(database, await addChannel(database, columns), [{ id: removed.accountId }])
  const stopOutbox = startOutbox(database)
  await expect.poll(() => receiver.received.length).toBe(1)
  await database.query('delete from notification_channel where organization_id = $1', [
    removed.organizationId,
  ])
  response.open()
  await stopOutbox()
  expect(
    await database.query('select from activity where organization_id = $1', [removed.organizationId]),
  ).toEqual([])
})

const hangs = async (organizationId: bigint | null, channels: number) => {
  const hanging = await startRawReceiver(() => undefined)
  const ids: bigint[] = []
  for (let n = 0; n < channels; n += 1)
    ids.push(await addChannel(database, { target: hanging.url, organization_id: organizationId }))
  /** Otherwise the end of the test waits for the requests. */
  const end = async () => {
    await database.query('delete from notification_channel where target = $1', [hanging.url])
    for (const { socket } of hanging.connections) socket.destroy()
  }
  return { hanging, ids, end }
}

it('a tenant whose receivers hang holds at most four of the requests in flight, so other tenants receive their messages', async () => {
  const { hanging, ids, end } = await hangs(tenant.organizationId, 20)
  for (const id of ids) await addNotification(database, id, [{ id: tenant.accountId }])
  const { url: target } = await startReceiver()
  const addOther = async () => {
    const channel = await addChannel(database, { target, organization_id: other.organizationId })
    return addNotification(database, channel, [{ id: other.accountId }])
  }
  const id = await addOther()
  startOutbox(database)
  expect(await ends(id)).toMatchObject({ status: 200 })
  // The share is still held while the next messages are claimed.
  await ends(await addOther())
  expect(hanging.connections).toHaveLength(4)
  await end()
})

it('a tenant whose receivers hang does not hide the messages of others from a second process', async () => {
  const { ids, end } = await hangs(null, 16)
  for (const id of ids) {
    const leased = { attempts: 1, leased_until: new Date(Date.now() + 60_000) }
    await addNotification(database, id, [{ id: tenant.accountId }], leased)
    await addNotification(database, id, [{ id: tenant.accountId }])
  }
  const { id } = await addMessage()
  startOutbox(database)
  expect(await ends(id)).toMatchObject({ status: 200 })
  await end()
})

const send = async (
  smtp: Awaited<ReturnType<typeof openMailer>>,
  target = 'night@example.com',
  language = 'en',
) => {
  const channel = await addChannel(database, { format: 'email', target, language })
  const id = await addNotification(database, channel, [{ id: other.accountId }])
  const stopOutbox = startOutbox(database, newSender({ smtp }))
  const row = await eventually(
    () => stored(id),
    ({ answer }) => answer !== null,
  )
  await stopOutbox()
  return { id, ...row }
}

it('a message to a mailbox is plain text that no program responds to', async () => {
  await database.query(`update official_account set name = $1 where id = $2`, [
    'Café\r\nBcc: all@example.com',
    other.accountId,
  ])
  const server = await startMailServer()
  const { id, ...row } = await send(await openMailer(server.url))
  expect(row).toMatchObject({ status: 250, answer: '', failed_at: null })
  const [mail] = server.mails
  expect(mail).toMatchObject({ from: 'alerts@example.com', to: ['night@example.com'] })
  const raw = mail?.raw ?? ''
  const head = raw.slice(0, raw.indexOf('\r\n\r\n'))
  expect(head).toMatch(new RegExp(`^Message-ID: <ntf_${id}_\\d{13}@example\\.com>$`, 'mi'))
  expect(head).toMatch(/^Auto-Submitted: auto-generated$/m)
  expect(head).toMatch(/^Content-Type: text\/plain; charset=utf-8$/m)
  expect(head).toMatch(/^Subject: =\?UTF-8\?/m)
  expect(head).not.toMatch(/^Bcc/im)
  expect(raw).toContain('LINE has suspended the account.')
  expect(raw).toContain(`https://console.example/accounts/${other.accountId}`)
})

it.each([
  [451, 'mailbox of Ann is locked'],
  [550, '<night@example.com> Ann has left'],
])(
  'a message to a mailbox that is refused with %s is sent again later, and only the code is kept',
  async (code, text) => {
    const server = await startMailServer()
    server.refusal = { code, text }
    const { answer, status, failed_at } = await send(await openMailer(server.url))
    expect([answer, status, failed_at]).toEqual(['EMESSAGE at DATA', code, null])
  },
)

it('a message to a mailbox is not sent with a wrong password, or without encryption if there is a password', async () => {
  const { port } = await startMailServer({ allowInsecureAuth: true })
  const wrong = new Secret(`smtp://ann:wrong@127.0.0.1:${port}?from=alerts@example.com`)
  expect(await send(await openMailer(wrong))).toMatchObject({
    status: 535,
    answer: expect.stringMatching(/^EAUTH/),
  })
  const elsewhere = new Secret(`smtp://ann:right@0.0.0.0:${port}?from=alerts@example.com`)
  const row = await send(await openMailer(elsewhere))
  expect(row).toMatchObject({ sent_at: null, answer: expect.stringMatching(/^E/) })
})

it('a message to a mailbox is encrypted if the server can, and not sent to a server whose certificate is not valid', async () => {
  const server = await startMailServer({ disabledCommands: [] })
  const row = await send(await openMailer(server.url))
  expect(row).toMatchObject({ sent_at: null, answer: expect.stringMatching(/^(ESOCKET|ETLS|ECERT)/) })
  expect(server.mails).toEqual([])
  const url = new Secret(`smtp://ann:right@127.0.0.1:${server.port}?from=alerts@example.com`)
  await send(await openMailer(url, { tls: { rejectUnauthorized: false } }))
  expect(server.mails).toMatchObject([{ isEncrypted: true, user: 'ann' }])
})

it('a message to a mailbox does not wait for a server that hangs or responds slowly', async () => {
  const servers = [() => undefined, (socket: Socket) => drip(socket)].map((serve) => createServer(serve))
  const times = { stepTimeoutMs: 400, mailTimeoutMs: 600 }
  const answers: Array<string | null> = []
  for (const server of servers) {
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
    const { port } = server.address() as AddressInfo
    const url = new Secret(`smtp://127.0.0.1:${port}?from=alerts@example.com`)
    answers.push((await send(await openMailer(url, times))).answer)
    server.close()
  }
  expect(answers).toEqual(['ETIMEDOUT at CONN', 'the mail server took too long'])
})

it('a message to a mailbox is not sent to what is no address, and not without SMTP_URL', async () => {
  const server = await startMailServer()
  const target = 'a@example.com, b@example.com'
  expect((await send(await openMailer(server.url), target)).answer).toBe(
    'the target is not the address of a mailbox',
  )
  expect(server.mails).toEqual([])
  const channel = await addChannel(database, { format: 'email', target: 'a@example.com' })
  const id = await addNotification(database, channel, [{ id: other.accountId }])
  startOutbox(database)
  expect((await waits(id)).answer).toBe('SMTP_URL is not set')
})

it('the service sends what is stored, and requests HEARTBEAT_URL', async () => {
  const { receiver, id } = await addMessage()
  const variables = { ...env, PORT: '0', LOG_LEVEL: 'silent', HEARTBEAT_URL: `${receiver.url}/beat` }
  const service = await startService(readConfig(variables))
  await service.ready
  expect(await ends(id)).toMatchObject({ attempts: 1, status: 200 })
  await expect
    .poll(() => receiver.received.map(({ path }) => path).sort())
    .toEqual(['/webhook', '/webhook/beat'])
  const startedAtMs = performance.now()
  await service.close()
  expect(performance.now() - startedAtMs).toBeLessThan(9_000)
})

/** Greets, and then sends a line of its response to EHLO every 100 ms. */
function drip(socket: Socket): void {
  socket.on('error', () => undefined)
  socket.write('220 slow\r\n')
  const timer = setInterval(() => socket.write('250-MORE\r\n'), 100)
  socket.once('close', () => clearInterval(timer))
}
