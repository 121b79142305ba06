/** Anybody can open connections and send no request: those that are idle for longest are closed. */
import { once } from 'node:events'
import { connect, type Socket } from 'node:net'
import { expect, it, onTestFinished } from 'vitest'
import { lineEvent, randomUserId } from '../tools/simulator/events.ts'
import { eventually } from './support/process.ts'
import { setUpFile } from './support/service.ts'

const { service, tenant } = await setUpFile()

/** Half of an instance's. */
const IDLE_OF_ADDRESS = 2_048
const INCOMPLETE_HEADERS = `GET /api HTTP/1.1\r\nhost: x\r\nx: ${'x'.repeat(100)}`

async function open(bytes: string, localAddress = '127.0.0.1'): Promise<Socket> {
  const socket = connect({ port: Number(new URL(service.url).port), host: '127.0.0.1', localAddress })
  socket.on('error', () => undefined).resume()
  onTestFinished(() => void socket.destroy())
  await once(socket, 'connect')
  socket.write(bytes)
  return socket
}

it('closes the oldest connections without a request of an address that has too many, and accepts new ones', async () => {
  const other = await open('', '127.0.0.2')
  const strangers: Socket[] = []
  for (let no = 0; no < IDLE_OF_ADDRESS + 10; no += 1)
    strangers.push(await open(no % 2 ? '' : INCOMPLETE_HEADERS))
  await eventually(
    async () => strangers.slice(0, 10).every(({ closed }) => closed),
    (areClosed) => areClosed,
  )
  const delivered = await service.deliver(tenant, [lineEvent('follow', randomUserId())])
  expect(delivered.json).toEqual({ accepted: 1, duplicates: 0 })
  expect(other.closed).toBe(false)
  expect(strangers.filter(({ closed }) => !closed).length).toBeGreaterThan(IDLE_OF_ADDRESS / 2)
})
