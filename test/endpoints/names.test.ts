/** Names of endpoints' hosts: no name server, whatever it answers, delays anything else or leads into the operator's network. */
import { expect, it, onTestFinished, vi } from 'vitest'
import { HostResolver } from '../../src/endpoints/resolver.ts'
import { lineEvent } from '../../tools/simulator/events.ts'
import { startReceiver, startSending } from '../support/endpoints.ts'
import { A, type NameAnswer, startNameServer } from '../support/name-server.ts'

const startResolver = async (answer: (name: string) => NameAnswer) => {
  const { server, asked } = await startNameServer(answer)
  return { resolver: new HostResolver([server]), asked }
}

it('asks once for a name that many need at the same time, and again after its time to live', async () => {
  const { resolver, asked } = await startResolver(() => ({ address: '192.0.2.1', ttlSeconds: 60 }))
  const found = await Promise.all([1, 2, 3].map(() => resolver.resolve('shop.example', 1n)))
  expect(found).toEqual(Array(3).fill([{ address: '192.0.2.1', family: 4 }]))
  await resolver.resolve('SHOP.example', 1n)
  expect(asked).toEqual(['shop.example'])
})

it.each<[string, NameAnswer]>([
  ['says that the name does not exist', 'none'],
  ['answers garbage', 'garbage'],
  ['names the name itself', { cname: 'loop.example' }],
])('fails, and remembers that for some seconds, when the name server %s', async (_what, answer) => {
  const { resolver, asked } = await startResolver(() => answer)
  await expect(resolver.resolve('loop.example', 1n)).rejects.toThrow('loop.example')
  const before = asked.length
  await expect(resolver.resolve('loop.example', 1n)).rejects.toThrow('loop.example')
  expect(asked).toHaveLength(before)
})

it('asks for complete names alone, and never for localhost', async () => {
  const { resolver, asked } = await startResolver(() => 'none')
  await expect(resolver.resolve('bot.shop', 1n)).rejects.toThrow('bot.shop')
  expect(await resolver.resolve('localhost', 1n)).toContainEqual({ address: '127.0.0.1', family: 4 })
  expect(asked).toEqual(['bot.shop'])
})

it('asks again soon for a name whose other family came late, because only that one may be reachable', async () => {
  let isLate = true
  const { server } = await startNameServer((_name, type) => {
    if (type !== A && isLate) return 'silent'
    return { addresses: ['8.8.8.8', '64:ff9b::808:808'] }
  })
  vi.useFakeTimers({ toFake: ['performance'] })
  onTestFinished(() => void vi.useRealTimers())
  const resolver = new HostResolver([server])
  expect(await resolver.resolve('shop.example', 1n)).toEqual([{ address: '8.8.8.8', family: 4 }])
  isLate = false
  vi.advanceTimersByTime(5_001)
  await expect.poll(() => resolver.resolve('shop.example', 1n)).toHaveLength(2)
})

it('refuses a public name that leads to a private address, and sends to a private endpoint by its name', async () => {
  const { server } = await startNameServer(() => ({ address: '127.0.0.1' }))
  const { service, database, tenant, addEndpoint } = await startSending(new HostResolver([server]))
  const receiver = await startReceiver()
  const named = receiver.url.replace('127.0.0.1', 'bot.example')
  await addEndpoint(named)
  await addEndpoint(named.replace('http:', 'https:'), { allow_private_network: false })
  await service.deliver(tenant, [lineEvent('follow', 'U1')])
  await expect
    .poll(() => database.query('select answer from endpoint_delivery where last_attempt_at is not null'))
    .toSatisfy(([row]) => row?.answer === 'bot.example resolves to an address that is not public')
  await expect.poll(() => receiver.received).toHaveLength(1)
})
