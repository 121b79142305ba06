/** The console of a running service: its start, its port and its end. */
import { createServer } from 'node:net'
import { expect, it, onTestFinished } from 'vitest'
import { freePort } from '../tools/prove/service.ts'
import { CONSOLE_TOKEN, signedIn } from './support/console.ts'
import { createTestDatabase, urlOf } from './support/database.ts'
import { becomesWell, runProgram, spawnService } from './support/process.ts'

async function databaseUrl(): Promise<string> {
  const { database, connection } = await createTestDatabase()
  onTestFinished(() => database.close())
  return urlOf(connection)
}

it('serves the console on its own port, and ends open streams at a shutdown', async () => {
  const port = await freePort()
  const env = {
    DATABASE_URL: await databaseUrl(),
    CONSOLE_PORT: String(port),
    CONSOLE_TOKEN,
    LOG_LEVEL: 'trace',
  }
  const service = await spawnService(env)
  await becomesWell(service.url)
  const operator = await signedIn(`http://127.0.0.1:${port}`)
  expect((await operator.get('/api/fleet')).json).toEqual({ accounts: [] })
  const stream = await fetch(`${operator.url}/api/live`, { headers: operator.headers })
  expect(stream.status).toBe(200)
  const stoppedAt = performance.now()
  service.child.kill('SIGTERM')
  expect(await service.exited).toEqual({ code: 0, signal: null })
  expect(performance.now() - stoppedAt).toBeLessThan(10_000)
  await stream.text()
  const [, session = ''] = operator.cookie.split('=')
  for (const secret of [CONSOLE_TOKEN, session]) expect(service.output()).not.toContain(secret)
})

it('does not start without a token, or on a port that is in use', async () => {
  const env = { DATABASE_URL: await databaseUrl() }
  const refused = runProgram(['serve'], { ...env, CONSOLE_PORT: '0' })
  expect([refused.status, refused.stderr]).toEqual([
    1,
    expect.stringMatching(/CONSOLE_TOKEN is not set.*\n$/),
  ])
  const other = createServer()
  onTestFinished(() => void other.close())
  const port = await freePort()
  await new Promise<void>((resolve) => other.listen(port, '127.0.0.1', resolve))
  const taken = runProgram(['serve'], { ...env, CONSOLE_PORT: String(port), CONSOLE_TOKEN })
  expect([taken.status, taken.stderr]).toEqual([
    1,
    expect.stringContaining(`CONSOLE_PORT ${port} on 127.0.0.1 cannot be used`),
  ])
})
