/** Anybody can open connections and send no request: those that are idle for longest are closed. */
import { once } from 'node:events'
import { connect, type Socket } from 'node:net'
import { expect, it, onTestFinished } from 'vitest'
import { lineEvent, randomUserId } from '../../tools/simulator/events.ts'
import { setUpService } from '../support/service.ts'

const { service, tenant } = await setUpService()

/** Half of an instance's. */
const IDLE_OF_ADDRESS = 2_048
/** Its connection is then kept for 65 s. */
const REQUEST = 'GET /api HTTP/1.1\r\nhost: x\r\n\r\n'
const SOON_MS = 20_000

async function open(text: string, localAddress = '127.0.0.1'): Promise<Socket> {
  const socket = connect({ port: Number(new URL(service.url).port), host: '127.0.0.1', localAddress })
  socket.on('error', () => undefined).resume()
  onTestFinished(() => void socket.destroy())
  await once(socket, 'connect')
  socket.write(text)
  return socket
}

it.each([
  ['since a request', REQUEST],
  ['and sent nothing', ''],
])(
  'closes the oldest connections of an address that has too many idle ones %s, and accepts new ones',
  async (_, text) => {
    const other = await open(text, '127.0.0.2')
    const strangers: Socket[] = []
    for (let no = 0; no < IDLE_OF_ADDRESS + 10; no += 1) strangers.push(await open(text))
    await expect.poll(() => strangers.filter(({ closed }) => closed).length, { timeout: SOON_MS }).toBe(10)
    expect(strangers.slice(0, 100).filter(({ closed }) => closed).length).toBe(10)
    const delivered = await service.deliver(tenant, [lineEvent('follow', randomUserId())])
    expect(delivered.json).toEqual({ accepted: 1, duplicates: 0 })
    expect(other.closed).toBe(false)
  },
)
