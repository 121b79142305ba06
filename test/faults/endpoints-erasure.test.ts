/** Erasures and unsends while bodies are written: no byte of the person or the message arrives after the acknowledgement. */
import { ClientRequest } from 'node:http'
import { setTimeout as sleep } from 'node:timers/promises'
import { expect, it, onTestFinished, vi } from 'vitest'
import { Sender } from '../../src/endpoints/sender.ts'
import { lineEvent, textMessage } from '../../tools/simulator/events.ts'
import { startSending } from '../support/endpoints.ts'
import { arrivalsOf, OK, type RawConnection, startRawReceiver } from '../support/raw-receiver.ts'

const PEOPLE = 300
const AT_ONCE = 4
/** The receivers share the event loop with everything else, so they read what has arrived some turns later. */
const READ_LATE_MS = 100

/** Rows that a sender settles now are skipped: it must not wait for this. */
const makeSomeDue = `
  update endpoint_delivery set due_at = now()
   where ctid = any (array(select ctid from endpoint_delivery where leased_until <= now() for update skip locked))`

/** When each body was written. The connection stands by then, so the kernel has it when the call returns. */
function watchWrites(): Array<{ atMs: number; body: string }> {
  const writes: Array<{ atMs: number; body: string }> = []
  const end = ClientRequest.prototype.end as (...parameters: unknown[]) => ClientRequest
  const spy = vi.spyOn(ClientRequest.prototype, 'end').mockImplementation(function (
    this: ClientRequest,
    ...parameters: unknown[]
  ) {
    const [body] = parameters
    if (typeof body === 'string') writes.push({ atMs: performance.now(), body })
    return end.apply(this, parameters)
  } as typeof ClientRequest.prototype.end)
  onTestFinished(() => spy.mockRestore())
  return writes
}

it('writes nothing late in 300 erasures and unsends, with two senders, late resets, and slow receivers', async () => {
  const { database, service, tenant, addEndpoint } = await startSending()
  const writes = watchWrites()
  const second = new Sender(database, () => false)
  second.start()
  onTestFinished(() => second.stop())
  // Resets an idle connection when it is used again, answers late, or refuses, so that the same events are sent again and again.
  const resetting = await startRawReceiver(({ socket, requests }) =>
    requests % 3 === 0 ? socket.resetAndDestroy() : socket.write(OK),
  )
  const slow = await startRawReceiver(({ socket }) =>
    setTimeout(() => socket.write(OK), 5 + Math.random() * 40),
  )
  const refusing = await startRawReceiver(({ socket }: RawConnection) =>
    socket.write('HTTP/1.1 500 No\r\ncontent-length: 0\r\n\r\n'),
  )
  const receivers = [resetting, slow, refusing]
  for (const { url } of receivers) await addEndpoint(url)
  await addEndpoint(refusing.url, { format: 'members' })
  /** When each text was gone. */
  const goneAtMs = new Map<string, number>()
  let isDone = false
  const retrying = (async () => {
    while (!isDone) {
      await database.query(makeSomeDue)
      await sleep(20)
    }
  })()
  let next = 0
  const work = async () => {
    for (let no = next++; no < PEOPLE; no = next++) {
      const userId = `Uperson${no}x`
      const text = `words ${no}.`
      const message = textMessage(userId, text) as unknown as { message: { id: string } }
      await service.deliver(tenant, [message])
      await sleep(Math.random() * 20)
      if (no % 2 === 0) {
        await service.eraseUser(tenant, userId)
        const atMs = performance.now()
        for (const gone of [text, userId]) goneAtMs.set(gone, atMs)
      } else {
        const unsend = { ...lineEvent('unsend', userId), unsend: { messageId: message.message.id } }
        const { status } = await service.deliver(tenant, [unsend])
        const atMs = performance.now()
        expect(status).toBe(200)
        goneAtMs.set(text, atMs)
      }
    }
  }
  const startedAtMs = performance.now()
  await Promise.all(Array.from({ length: AT_ONCE }, work))
  const tookMs = performance.now() - startedAtMs
  await sleep(1_000)
  isDone = true
  await retrying
  const late = [...goneAtMs].flatMap(([text, atMs]) => [
    ...writes
      .filter((write) => write.atMs > atMs && write.body.includes(text))
      .map((write) => write.atMs - atMs),
    ...receivers
      .flatMap((receiver) => arrivalsOf(receiver, text))
      .filter((arrivedAtMs) => arrivedAtMs > atMs + READ_LATE_MS)
      .map((arrivedAtMs) => arrivedAtMs - atMs),
  ])
  const sent = writes.filter(({ body }) => body.includes('"words ')).length
  console.log(
    `${PEOPLE} erasures and unsends in ${Math.round(tookMs)} ms, ${sent} bodies with content, ${late.length} late`,
  )
  expect(sent).toBeGreaterThan(PEOPLE)
  expect(late).toEqual([])
})
