/** More than it can serve: bounded memory, a quick no, others unharmed, and full speed again afterwards. */
import { execFileSync } from 'node:child_process'
import { once } from 'node:events'
import { connect, type Socket } from 'node:net'
import { expect, it, onTestFinished } from 'vitest'
import { lineEvent, randomUserId } from '../../tools/simulator/events.ts'
import { addTenant, createTestDatabase, urlOf } from '../support/database.ts'
import { becomesWell, spawnService } from '../support/process.ts'
import { signedDelivery, startAppForTest } from '../support/service.ts'

it('refuses with 503 and Retry-After what would wait too long, keeps its memory, and is as fast as before', async () => {
  const { database, connection } = await createTestDatabase()
  const tenant = await addTenant(database)
  const service = await spawnService({ DATABASE_URL: urlOf(connection), RATE_LIMIT_MAX: '0' })
  await becomesWell(service.url)
  const big = Array.from({ length: 12 }, () =>
    signedDelivery(
      tenant,
      Array.from({ length: 2_500 }, () => lineEvent('message', randomUserId())),
    ),
  )
  const flood = async () => {
    const counts = new Map<number, number>()
    const sender = async (no: number) => {
      for (let i = 0; i < 4; i += 1) {
        const { path, init } = big[(no + i) % big.length] as (typeof big)[number]
        const answer = await fetch(service.url + path, init)
        await answer.arrayBuffer()
        counts.set(answer.status, (counts.get(answer.status) ?? 0) + 1)
        if (answer.status === 503) expect(answer.headers.get('retry-after')).not.toBeNull()
      }
    }
    await Promise.all(Array.from({ length: 60 }, (_, no) => sender(no)))
    return counts
  }
  const memory = () => residentMiB(service.child.pid as number)
  const before = memory()
  const counts = await flood()
  expect([...counts.keys()].sort()).toEqual([200, 503])
  expect(memory() - before).toBeLessThan(700)
  const startedAt = Date.now()
  const { path, init } = signedDelivery(tenant, [lineEvent('follow', 'Uafter')])
  expect((await fetch(service.url + path, init)).status).toBe(200)
  expect(Date.now() - startedAt).toBeLessThan(1000)
  await database.close()
})

it('cuts off slow headers, slow bodies and silent sockets, and serves others meanwhile', async () => {
  const { database } = await createTestDatabase()
  const service = await startAppForTest(database)
  const port = Number(new URL(service.url).port)
  const outcomes: Array<Promise<string>> = []
  const open = (firstWords: string) => {
    const socket = connect(port, '127.0.0.1')
    socket.on('error', () => undefined)
    if (firstWords !== '') socket.write(firstWords)
    outcomes.push(endOf(socket))
    onTestFinished(() => {
      socket.destroy()
    })
    return socket
  }
  for (let i = 0; i < 150; i += 1) {
    open('GET /api HTTP/1.1\r\nhost: x\r\nx-slow: ')
    open('POST /api/line/1 HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\n{')
    open('')
  }
  const drip = open('POST /api/tracking HTTP/1.1\r\nhost: x\r\ncontent-length: 1000\r\n\r\n')
  const dripping = setInterval(() => drip.write('x'), 500)
  onTestFinished(() => clearInterval(dripping))
  const startedAt = Date.now()
  for (let i = 0; i < 20; i += 1) expect((await service.call('GET', '/api')).status).toBe(200)
  expect(Date.now() - startedAt).toBeLessThan(1500)
  const texts = await Promise.all(outcomes)
  expect(Date.now() - startedAt).toBeLessThan(20_000)
  for (const text of texts.filter((text) => text !== '')) expect(text).toContain('408')
  await database.close()
})

it('serves others while one address holds 10,000 connections', async () => {
  const { database, connection } = await createTestDatabase()
  const service = await spawnService({ DATABASE_URL: urlOf(connection), RATE_LIMIT_MAX: '0' })
  await becomesWell(service.url)
  const port = Number(new URL(service.url).port)
  const status = async () => (await fetch(`${service.url}/api`)).status
  const sockets: Socket[] = []
  onTestFinished(() => {
    for (const socket of sockets) socket.destroy()
  })
  const count = Math.min(10_000, descriptorLimit() - 400)
  if (count < 10_000) console.warn(`ONLY ${count} CONNECTIONS: a process may have no more descriptors here`)
  while (sockets.length < count) {
    // Not faster than they are taken: what the kernel drops from its queue would wait for ever.
    const batch = Array.from({ length: 100 }, () => connect(port, '127.0.0.1').on('error', () => undefined))
    sockets.push(...batch)
    await Promise.all(batch.map((socket) => once(socket, 'connect')))
    expect(await status()).toBe(200)
  }
  expect(sockets.filter((socket) => socket.destroyed)).toEqual([])
  const startedAt = Date.now()
  for (let i = 0; i < 20; i += 1) expect(await status()).toBe(200)
  expect(Date.now() - startedAt).toBeLessThan(3000)
  await Promise.all(sockets.map(endOf))
  expect(Date.now() - startedAt).toBeLessThan(25_000)
  await database.close()
})

function endOf(socket: Socket): Promise<string> {
  let text = ''
  socket.on('data', (chunk) => {
    text += chunk.toString()
  })
  return new Promise((resolve) => {
    if (socket.destroyed) resolve(text)
    else socket.once('close', () => resolve(text))
  })
}

/** How many files and sockets this process may have open. */
function descriptorLimit(): number {
  const { userLimits } = process.report.getReport() as unknown as {
    userLimits: { open_files: { soft: number | 'unlimited' } }
  }
  const { soft } = userLimits.open_files
  return soft === 'unlimited' ? Number.POSITIVE_INFINITY : soft
}

/** Resident memory of a process, by ps, which Linux and macOS have. */
function residentMiB(pid: number): number {
  return Number(execFileSync('ps', ['-o', 'rss=', '-p', String(pid)], { encoding: 'utf8' })) / 1024
}
