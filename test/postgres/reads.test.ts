/** DATABASE_READ_URL: reads that the primary serves because no replica can. faults/replicas.test.ts tests reads on replicas. */
import type { Socket } from 'node:net'
import { expect, it, onTestFinished } from 'vitest'
import { parseReplicasUrl } from '../../src/config/database-url.ts'
import { Metrics } from '../../src/observability/metrics.ts'
import { examineReplica } from '../../src/watch/system-health.ts'
import { lineEvent, randomUserId } from '../../tools/simulator/events.ts'
import { runCommand } from '../support/command.ts'
import { addTenant, createTestDatabase, openDatabase, urlOf } from '../support/database.ts'
import { acceptForTest } from '../support/http-server.ts'
import { startApp } from '../support/service.ts'

/** An address at which something accepts connections. Returns its URL and the number of connections so far. */
async function listen(serve: (client: Socket) => void) {
  let connections = 0
  const port = await acceptForTest((client) => {
    connections += 1
    serve(client)
  })
  return { url: `postgres://postgres@127.0.0.1:${port}/none`, connections: () => connections }
}

const refuse = (client: Socket) => void client.destroy()
const hang = () => undefined

/** A service with that replica, and an account that has one member. */
async function setUp(replicaUrl: string | null) {
  const { connection } = await createTestDatabase()
  const [server] = parseReplicasUrl(replicaUrl ?? urlOf(connection))
  const servers = server ? [{ ...server, name: 'replica' }] : []
  const database = openDatabase(connection, { servers, maxLagMs: 2_000 })
  const metrics = new Metrics([])
  onTestFinished(() => metrics.close())
  const service = await startApp(database)
  const tenant = await addTenant(database)
  await service.deliver(tenant, [lineEvent('follow', randomUserId())])
  const list = async (headers: Record<string, string>) => {
    const { status, text } = await service.call('GET', '/api/audience', {
      headers: { ...tenant.headers, ...headers },
    })
    return [status, text.match(/"userId"/g)?.length]
  }
  const counted = async () => {
    const text = await metrics.registry.getSingleMetricAsString('oa_audience_reads_total')
    return [...text.matchAll(/\{outcome="(\w+)"\} ([1-9]\d*)/g)].map(([, outcome, count]) => [outcome, count])
  }
  return { database, connection, list, counted }
}

it('looks for a replica only for streams, and for pages whose client accepts their age', async () => {
  const { list, counted } = await setUp((await listen(refuse)).url)
  const age = (text: string) => ({ 'cache-control': text })
  const current = ['max-age=0', 'no-cache, max-age=60', 'max-stale=60, x-max-age=60, max-age=-60, max-age']
  for (const headers of [{}, ...current.map(age)]) expect(await list(headers)).toEqual([200, 1])
  expect(await counted()).toEqual([])
  const old = ['max-age=1', 'no-transform, Max-Age="99999999999999999999"'].map(age)
  for (const headers of [...old, { accept: 'application/x-ndjson' }]) {
    expect(await list(headers)).toEqual([200, 1])
  }
  expect(await counted()).toEqual([['unavailable', '3']])
})

it('does not read from a server that accepts writes', async () => {
  const { list, counted, database, connection } = await setUp(null)
  expect(await list({ accept: 'text/csv' })).toEqual([200, undefined])
  expect(await counted()).toEqual([['unavailable', '1']])
  expect(await database.replicaLags()).toEqual([{ replica: 'replica', behindBytes: null }])
  const url = urlOf(connection)
  const { stdout } = await runCommand(['doctor'], { DATABASE_URL: url, DATABASE_READ_URL: url })
  expect(stdout).toMatch(/replica .*is not a standby of the primary/)
})

it('reports how far a replica is behind', () => {
  const examine = (behindBytes: number) => examineReplica({ replica: 'db2', behindBytes })
  expect(examine(0)).toEqual({ check: 'replica db2', severity: 'ok', message: 'serves reads' })
  expect(examine(2 ** 30)).toMatchObject({
    severity: 'warning',
    message: expect.stringMatching(/1024 MiB behind/),
  })
})

it('tries a replica that failed once in five seconds', async () => {
  const { url, connections } = await listen(refuse)
  const { list, counted } = await setUp(url)
  const beganAtMs = performance.now()
  for (let no = 0; no < 20; no += 1) await list({ 'cache-control': 'max-age=60' })
  expect(await counted()).toEqual([['unavailable', '20']])
  expect(connections()).toBeLessThanOrEqual(1 + (performance.now() - beganAtMs) / 5_000)
})

it('ends a command although a replica hangs', async () => {
  const { connection } = await createTestDatabase()
  const { url } = await listen(hang)
  const env = { DATABASE_URL: urlOf(connection), DATABASE_READ_URL: url }
  expect(await runCommand(['fleet', '--json'], env)).toMatchObject({ status: 0, stdout: '[]\n', stderr: '' })
})
