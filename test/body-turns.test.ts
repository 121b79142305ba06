/** Large and compressed bodies hold up neither each other's senders nor the threads that the process shares. */
import { execFileSync } from 'node:child_process'
import { close, constants, open, openSync } from 'node:fs'
import { join } from 'node:path'
import { gzipSync } from 'node:zlib'
import { expect, it, onTestFinished } from 'vitest'
import { LargeBodyTurns } from '../src/http/body.ts'
import { temporaryDirectory } from './support/process.ts'
import { setUpService } from './support/service.ts'

const { service, tenant } = await setUpService()

/** libuv's, if UV_THREADPOOL_SIZE is not set. */
const SHARED_THREADS = 4

/** Opening a pipe for reading waits for a program that writes to it. */
function occupySharedThreads(): void {
  const pipe = join(temporaryDirectory(), 'pipe')
  execFileSync('mkfifo', [pipe])
  for (let no = 0; no < SHARED_THREADS; no += 1) {
    open(pipe, 'r', (_error, descriptor) => close(descriptor, () => undefined))
  }
  onTestFinished(() => void openSync(pipe, constants.O_RDWR))
}

it('reads compressed tracking events while all shared threads are occupied', async () => {
  const body = gzipSync(
    JSON.stringify({ writeKey: tenant.trackingKey, batch: [{ type: 'page', userId: 'U1' }] }),
  )
  occupySharedThreads()
  const tracked = await service.call('POST', '/api/tracking', {
    body,
    headers: { 'content-encoding': 'gzip' },
  })
  expect(tracked.json).toMatchObject({ accepted: 1 })
})

it('handles one large body in each turn of the event loop, in the order of their ends', async () => {
  const turns = new LargeBodyTurns()
  const handled: string[] = []
  for (const name of ['a', 'b', 'c']) turns.add(() => void handled.push(name))
  expect(handled).toEqual([])
  const seen: string[] = []
  await new Promise<void>((resolve) => {
    const look = () => {
      seen.push(handled.join(''))
      if (handled.length === 3) resolve()
      else setImmediate(look)
    }
    setImmediate(look)
  })
  expect(seen).toEqual(['a', 'ab', 'abc'])
})
