/** The last refused attempts of each endpoint, as operators see them. */
import { expect, it } from 'vitest'
import { type DeliveryAttempt, findEndpoint, listAttempts, listHours } from '../../src/endpoints/endpoints.ts'
import { lineEvent, randomUserId, textMessage } from '../../tools/simulator/events.ts'
import type { TextDatabase } from '../../tools/text-database.ts'
import { startReceiver, startSending } from '../support/endpoints.ts'
import { gate } from '../support/gate.ts'
import { eventually } from '../support/process.ts'

const attemptsOf = (database: TextDatabase, id: bigint, count: number): Promise<DeliveryAttempt[]> =>
  eventually(
    () => listAttempts(database, id),
    (attempts) => attempts.length >= count,
  )

it('has the refused attempts of a delivery with time, status, duration, events and number, and no content of events', async () => {
  const { database, service, tenant, addEndpoint, makeDue, becomesQuiet } = await startSending()
  const receiver = await startReceiver()
  const id = await addEndpoint(receiver.url)
  receiver.answer = { status: 500, body: 'echo of the message' }
  const sinceMs = Date.now()
  await service.deliver(tenant, [
    textMessage(randomUserId(), 'secret text'),
    textMessage(randomUserId(), 'x'),
  ])
  await becomesQuiet()
  receiver.answer = { status: 503 }
  await makeDue()
  const attempts = await attemptsOf(database, id, 2)
  receiver.answer = { status: 204 }
  await makeDue()
  await expect.poll(() => database.query('select from endpoint_delivery')).toHaveLength(0)
  expect(await listAttempts(database, id)).toEqual(attempts)
  const common = { reason: '', events: 2, deliveryId: attempts[0]?.deliveryId }
  expect(attempts).toEqual([
    { ...common, status: 503, attempt: 2, responseText: 'ok', ...anyTimes },
    { ...common, status: 500, attempt: 1, responseText: 'echo of the message', ...anyTimes },
  ])
  for (const { startedAt, durationMs } of attempts) {
    expect(Date.parse(startedAt)).toBeGreaterThan(sinceMs - 1_000)
    expect(durationMs).toBeLessThan(Date.now() - sinceMs + 1_000)
  }
  const rows = await database.query(`select t::text as text from endpoint_attempt t`)
  expect(JSON.stringify(rows)).not.toMatch(/secret text/)
})

/** An endpoint that refuses a message. */
async function sendRefused(answer: { status: number; body: string }, query = '') {
  const sending = await startSending()
  const { database, service, tenant, addEndpoint, becomesQuiet } = sending
  const receiver = await startReceiver()
  const id = await addEndpoint(`${receiver.url}${query}`, { events: ['message'] })
  receiver.answer = answer
  const userId = randomUserId()
  const sent = textMessage(userId, 'hello')
  await service.deliver(tenant, [sent])
  await becomesQuiet()
  const [attempt] = await attemptsOf(database, id, 1)
  return { ...sending, receiver, id, userId, sent, attempt }
}

const textsOf = async (database: TextDatabase, id: bigint) =>
  (await listAttempts(database, id)).map(({ responseText }) => responseText)

it('has the beginning of the text of a refusal, cleaned and without signatures and tokens of the URL', async () => {
  const signature = `${'a'.repeat(43)}=`
  const body = `Cannot POST /?token=s3cret-token ${signature}\u202e\u0007 ${'é'.repeat(1_000)}`
  const { attempt } = await sendRefused({ status: 404, body }, '?token=s3cret-token')
  expect(attempt).toMatchObject({ status: 404, attempt: 1 })
  expect(attempt?.responseText).toMatch(/^Cannot POST \/\?token=••• •••\ufffd\ufffd é+$/)
  expect(attempt?.responseText?.length).toBeLessThan(1_000)
})

it('has no text any more after an erasure or an unsent message in the account, and none of a request before it', async () => {
  for (const kind of ['erasure', 'unsend'] as const) {
    const { database, service, tenant, receiver, id, userId, sent, makeDue } = await sendRefused({
      ...{ status: 500, body: 'echo of hello' },
    })
    expect(await textsOf(database, id)).toEqual(['echo of hello'])
    const arrived = receiver.received.length
    const response = gate()
    receiver.answer = { status: 500, body: 'echo of hello', until: response.passed }
    await makeDue()
    await expect.poll(() => receiver.received.length).toBeGreaterThan(arrived)
    if (kind === 'erasure')
      expect((await service.erase(tenant, (await service.member(tenant, userId))?.id)).status).toBe(204)
    else
      await service.deliver(tenant, [lineEvent('unsend', userId, { unsend: { messageId: sent.message.id } })])
    expect(await textsOf(database, id)).toEqual([null])
    response.open()
    await attemptsOf(database, id, 2)
    expect(await textsOf(database, id)).toEqual([null, null])
  }
})

it('has no text of the first response of an endpoint if the request began before an erasure, which shows no response', async () => {
  const { database, service, tenant, addEndpoint } = await startSending()
  const receiver = await startReceiver()
  const id = await addEndpoint(receiver.url)
  const response = gate()
  receiver.answer = { status: 500, body: 'echo of hello', until: response.passed }
  const userId = randomUserId()
  await service.deliver(tenant, [textMessage(userId, 'hello')])
  await expect.poll(() => receiver.received.length).toBe(1)
  expect((await service.erase(tenant, (await service.member(tenant, userId))?.id)).status).toBe(204)
  expect(await findEndpoint(database, null, id)).toMatchObject({ state: 'active', lastAnswer: null })
  response.open()
  expect(await attemptsOf(database, id, 1)).toMatchObject([{ status: 500, responseText: null }])
})

it('counts accepted and refused attempts of each of the last 24 hours with their average duration', async () => {
  const { database, service, tenant, addEndpoint, becomesQuiet } = await startSending()
  const receiver = await startReceiver()
  const id = await addEndpoint(receiver.url)
  const send = async () => {
    await service.deliver(tenant, [textMessage(randomUserId(), 'hello')])
    await becomesQuiet()
  }
  await send()
  receiver.answer = { status: 500 }
  await send()
  await send()
  const hours = () => listHours(database, id)
  await expect.poll(hours).toMatchObject([{ accepted: 1, refused: 2, durationMs: expect.any(Number) }])
  await database.query(
    `update endpoint_hour set hour = hour - interval '23 hours', slot = (slot + 2) % 25, duration_ms = 60`,
  )
  await send()
  await expect.poll(hours).toMatchObject([{ accepted: 1, refused: 2, durationMs: 20 }, { refused: 1 }])
  // A day later, the place belongs to another hour.
  await database.query(`update endpoint_hour set hour = hour - interval '25 hours'`)
  await send()
  expect(await hours()).toMatchObject([{ accepted: 0, refused: 1 }])
})

const anyTimes = { startedAt: expect.stringMatching(/^\d{4}-.*Z$/), durationMs: expect.any(Number) }

it('has the reason and the number of events if there was no connection, and one event for a changed member', async () => {
  const { database, service, tenant, addEndpoint } = await startSending()
  const receiver = await startReceiver()
  const line = await addEndpoint('http://127.0.0.1:9/')
  receiver.answer = { status: 500 }
  const members = await addEndpoint(receiver.url, { format: 'members' })
  await service.deliver(tenant, [textMessage(randomUserId(), 'hello')])
  expect(await attemptsOf(database, line, 1)).toMatchObject([
    { status: null, reason: 'no response: ECONNREFUSED', events: 1 },
  ])
  expect(await attemptsOf(database, members, 1)).toMatchObject([{ status: 500, events: 1, attempt: 1 }])
})
