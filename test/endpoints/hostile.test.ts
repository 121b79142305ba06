/** Receivers that answer in ways that cost much: the attempt ends, and the event loop is free for others. */
import { expect, it } from 'vitest'
import { type Connection, connect, sendNow } from '../../src/endpoints/post.ts'
import { HostResolver } from '../../src/endpoints/resolver.ts'
import { textMessage } from '../../tools/simulator/events.ts'
import { startSending } from '../support/endpoints.ts'
import { OK, type RawConnection, startRawReceiver } from '../support/raw-receiver.ts'

const checks = { isOwnUrl: () => false, route: new HostResolver() }
const post = ({ url }: { url: string }) =>
  sendNow('test', { url, allow_private_network: true }, { headers: {}, body: '{}' }, checks)

/** Writes pieces of 64 KiB until the connection is closed. */
function flood({ socket }: RawConnection, unit: string): void {
  const piece = unit.repeat(Math.ceil(65_536 / unit.length))
  const write = () => {
    while (!socket.destroyed && socket.write(piece));
    if (!socket.destroyed) socket.once('drain', write)
  }
  write()
}

const CHUNKED = 'HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n'

it.each([
  ['103 for ever', '', 'HTTP/1.1 103 Early Hints\r\n\r\n', null],
  ['a head without an end', 'HTTP/1.1 200 OK\r\n', 'x: y\r\n', null],
  ['no HTTP', 'hello ', 'world\n', null],
  ['chunks of one byte', CHUNKED, '1\r\nx\r\n', 200],
  ['an extension of a chunk without an end', `${CHUNKED}1;`, 'x', 200],
  ['a body without an end', 'HTTP/1.1 500 No\r\n\r\n', 'x', 500],
  ['a length that is too large', 'HTTP/1.1 200 OK\r\ncontent-length: 99999999999\r\n\r\n', 'x', 200],
])('ends an attempt whose receiver sends %s', async (_what, head, unit, status) => {
  const receiver = await startRawReceiver((connection) => {
    connection.socket.write(head)
    flood(connection, unit)
  })
  const startedAtMs = performance.now()
  const answer = await post(receiver)
  expect(answer.status).toBe(status)
  expect(performance.now() - startedAtMs).toBeLessThan(5_000)
})

it('closes an idle connection on which a receiver sends something, and counts no answer that came before the request', async () => {
  const receiver = await startRawReceiver(({ socket }) => {
    socket.write(OK)
    setTimeout(() => socket.write('HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n'), 50)
  })
  expect(await post(receiver)).toMatchObject({ status: 200 })
  await new Promise((resolve) => receiver.connections[0]?.socket.once('close', resolve))
  expect(await post(receiver)).toMatchObject({ status: 200 })
  expect(receiver.connections).toHaveLength(2)
})

it('sends on a new connection if the receiver resets the idle one that was used again', async () => {
  const receiver = await startRawReceiver((connection, { connections }) => {
    if (connections.length === 1 && connection.requests === 2) connection.socket.resetAndDestroy()
    else connection.socket.write(OK)
  })
  for (let no = 0; no < 2; no += 1) expect(await post(receiver)).toMatchObject({ status: 200 })
  expect(receiver.connections).toHaveLength(2)
})

it('counts no answer that comes before the request', async () => {
  const receiver = await startRawReceiver(() => undefined)
  const target = { url: new URL(receiver.url), allowPrivateNetwork: true, route: () => expect.fail() }
  const connection = (await connect(target, performance.now() + 10_000)) as Connection
  await expect.poll(() => receiver.connections).toHaveLength(1)
  receiver.connections[0]?.socket.write(OK)
  await expect.poll(() => receiver.connections[0]?.socket.closed).toBe(true)
  const reason = 'the endpoint responded before it was sent anything'
  expect(await connection.send({ headers: {}, body: '{}' })).toMatchObject({ status: null, reason })
})

it('closes the connection if nothing is left to send', async () => {
  const { service, tenant, database, addEndpoint, becomesQuiet } = await startSending()
  const receiver = await startRawReceiver(() => expect.fail('nothing is sent'))
  await addEndpoint(receiver.url, { status: 'paused' })
  await service.deliver(tenant, [textMessage('U1', 'hello')])
  await database.query(`update event set payload = null`)
  await database.query(`update endpoint set status = 'active'`)
  await becomesQuiet()
  await expect.poll(() => receiver.connections[0]?.socket.closed).toBe(true)
})

it('takes an answer to a request that the receiver does not read, and reuses the connection of a good one', async () => {
  const receiver = await startRawReceiver(({ socket }) =>
    socket.write(`HTTP/1.1 103 Early Hints\r\n\r\n${OK}`),
  )
  for (let no = 0; no < 3; no += 1) expect(await post(receiver)).toMatchObject({ status: 200 })
  expect(receiver.connections).toHaveLength(1)
})

it.each([
  ['120', 120_000],
  ['Sun, 06 Nov 1994 08:49:37 GMT', 0],
  ['1e9', null],
  ['99999999999999999999', null],
])('reads Retry-After: %s as %s ms', async (value, ms) => {
  const receiver = await startRawReceiver(({ socket }) =>
    socket.write(`HTTP/1.1 503 No\r\nretry-after: ${value}\r\ncontent-length: 0\r\n\r\n`),
  )
  const answer = await post(receiver)
  expect(answer).toMatchObject({ status: 503, retryAfterMs: ms })
})
