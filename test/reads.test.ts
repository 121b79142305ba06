/** DATABASE_READ_URL: which server answers reads. faults/replicas.test.ts tests replicas that lag and fail. */
import { once } from 'node:events'
import { type AddressInfo, connect, createServer, type Socket } from 'node:net'
import { expect, it, onTestFinished } from 'vitest'
import { markChanges } from '../src/audience/change-marks.ts'
import { Metrics } from '../src/observability/metrics.ts'
import type { Connection } from '../src/postgres/embedded/server.ts'
import type { ReplicaServers } from '../src/postgres/reads.ts'
import type { Row } from '../src/postgres/statement.ts'
import { freePort } from '../tools/prove/service.ts'
import { lineEvent, randomUserId } from '../tools/simulator/events.ts'
import { TextDatabase } from '../tools/text-database.ts'
import { runCommand } from './support/command.ts'
import { addTenant, createTestDatabase, urlOf } from './support/database.ts'
import { eventually } from './support/process.ts'
import { setUpTest, startAppForTest } from './support/service.ts'

/** A service whose reads go to the servers that `choose` returns, with an account that has two members. */
async function setUp(
  choose: (
    url: string,
    connection: Connection,
  ) => ReplicaServers['servers'] | Promise<ReplicaServers['servers']>,
) {
  const { database: direct, connection } = await createTestDatabase()
  await markChanges(direct)
  const servers = await choose(urlOf(connection), connection)
  const database = new TextDatabase(connection, () => undefined, { servers, maxLagMs: 2_000 })
  database.markReady()
  const metrics = new Metrics([])
  onTestFinished(async () => {
    metrics.close()
    await Promise.all([database.close(), direct.close()])
  })
  const service = await startAppForTest(database)
  const tenant = await addTenant(database)
  await service.deliver(
    tenant,
    [1, 2].map(() => lineEvent('follow', randomUserId())),
  )
  const counted = () => metrics.registry.getSingleMetricAsString('oa_audience_reads_total')
  return { service, tenant, counted, database }
}

const itself = (url: string) => [{ name: 'itself', url }]
const JSON_BODY = { 'content-type': 'application/json' }

it('reads pages and streams from DATABASE_READ_URL, and writes to DATABASE_URL', async () => {
  const { service, tenant, counted } = await setUp(itself)
  const [one, two] = await service.members(tenant)
  const headers = { ...tenant.headers, accept: 'application/x-ndjson' }
  expect((await service.call('GET', '/api/audience', { headers })).text.split('\n')).toHaveLength(3)
  expect(await counted()).toContain('{outcome="replica"} 2')
  const put = await service.call('PUT', `/api/audience/${one?.id}`, {
    headers: { ...tenant.headers, ...JSON_BODY },
    body: '{"tags":["vip"]}',
  })
  const erased = await service.call('DELETE', `/api/audience/${two?.id}`, { headers: tenant.headers })
  for (const { headers } of [put, erased]) {
    const token = headers.get('x-consistency-token') as string
    expect(token).toMatch(/^[\w-]{11}$/)
    const list = await service.call('GET', '/api/audience', {
      headers: { ...tenant.headers, 'x-consistency-token': token },
    })
    expect(list.json.data).toEqual([put.json])
  }
  expect(await counted()).toContain('{outcome="replica"} 4')
})

it('reads from the primary without waiting for a token while no replica answers', async () => {
  const dead = async () => [{ name: 'dead', url: `postgres://nobody@127.0.0.1:${await freePort()}/none` }]
  const { service, tenant, counted, database } = await setUp(dead)
  const list = await service.call('GET', '/api/audience', {
    headers: { ...tenant.headers, 'x-consistency-token': 'f_________4' },
  })
  expect([list.status, list.json.data.length]).toEqual([200, 2])
  expect(await counted()).toContain('{outcome="unavailable"} 1')
  expect(await database.replicaLags()).toEqual([{ replica: 'dead', behindBytes: null }])
})

it('waits briefly for a position that no replica has reached, and then queries the primary', async () => {
  const { service, tenant, counted } = await setUp(itself)
  const list = await service.call('GET', '/api/audience', {
    headers: { ...tenant.headers, 'x-consistency-token': 'f_________4' },
  })
  expect([list.status, list.json.data.length]).toEqual([200, 2])
  expect(await counted()).toContain('{outcome="behind"} 1')
})

it('answers neither PUT nor DELETE with a token where no replica is configured', async () => {
  const { service, tenant, database } = await setUpTest()
  onTestFinished(() => database.close())
  await service.deliver(tenant, [lineEvent('follow', randomUserId())])
  const [member] = await service.members(tenant)
  const put = await service.call('PUT', `/api/audience/${member?.id}`, {
    headers: { ...tenant.headers, ...JSON_BODY },
    body: '{"tags":["vip"]}',
  })
  expect([put.status, put.headers.get('x-consistency-token')]).toEqual([200, null])
})

it.each(['x', 'AAAAAAAAAAAA', 'AAAAAAAAAA=', 'AAAAAAAAAAB', '__________8', 'AAAAAAAAAAA, x', 'AAAAAAAAAAA,'])(
  'returns 400 when x-consistency-token is %j',
  async (token) => {
    const { service, tenant, database } = await setUpTest()
    onTestFinished(() => database.close())
    const list = await service.call('GET', '/api/audience', {
      headers: { ...tenant.headers, 'x-consistency-token': token },
    })
    expect([list.status, list.json.details]).toEqual([
      400,
      [
        {
          path: 'x-consistency-token',
          message:
            'is not a token from an answer: send the newest tokens, separated by commas, or omit the header',
        },
      ],
    ])
  },
)

it('doctor reports each replica, and one that is not a copy of the database', async () => {
  const { connection } = await createTestDatabase()
  const { connection: other } = await createTestDatabase()
  const examine = async (readUrl: string) => {
    const { stdout } = await runCommand(['doctor'], {
      DATABASE_URL: urlOf(connection),
      DATABASE_READ_URL: readUrl,
      LINE_API_URL: 'http://127.0.0.1:9',
    })
    return stdout.split('\n').filter((line) => line.includes('replica '))
  }
  const database = new TextDatabase(connection, () => undefined)
  database.markReady()
  onTestFinished(() => database.close())
  await markChanges(database)
  expect(await examine(urlOf(connection))).toEqual([expect.stringMatching(/ok .*answers reads/)])
  expect(await examine(urlOf(other))).toEqual([expect.stringMatching(/not a copy of the database/)])
})

it('waits for the latest of several tokens', async () => {
  const { service, tenant, counted } = await setUp(itself)
  const read = (token: string) =>
    service.call('GET', '/api/audience', { headers: { ...tenant.headers, 'x-consistency-token': token } })
  await read('AAAAAAAAAAA, AAAAAAAAAAE')
  expect(await counted()).toContain('{outcome="replica"} 1')
  await read('AAAAAAAAAAA,f_________4')
  await read('f_________4, AAAAAAAAAAA')
  expect(await counted()).toContain('{outcome="behind"} 2')
})

it('answers with a token when it refuses a write because of an earlier one', async () => {
  const { service, tenant } = await setUp(itself)
  const [one, two] = await service.members(tenant)
  const put = (id: string | undefined, externalId: string, ifMatch: string) =>
    service.call('PUT', `/api/audience/${id}`, {
      headers: { ...tenant.headers, ...JSON_BODY, 'if-match': ifMatch },
      body: JSON.stringify({ externalId }),
    })
  const erase = (id: string, ifMatch: string) =>
    service.call('DELETE', `/api/audience/${id}`, { headers: { ...tenant.headers, 'if-match': ifMatch } })
  await put(one?.id, 'first', '*')
  const refused = [
    await put(one?.id, 'second', '"1"'),
    await put(two?.id, 'first', '*'),
    await put('4611686018427387904', 'third', '*'),
    await erase(one?.id as string, '"1"'),
    await erase('4611686018427387904', '*'),
  ]
  const form = expect.stringMatching(/^[\w-]{11}$/)
  expect(refused.map(({ status, headers }) => [status, headers.get('x-consistency-token')])).toEqual(
    [412, 409, 404, 412, 404].map((status) => [status, form]),
  )
})

it('answers a write whose position is unknown with a token that only the primary satisfies', async () => {
  const { service, tenant, counted, database } = await setUp(itself)
  const [member] = await service.members(tenant)
  const lookup = database.lookup.bind(database)
  database.lookup = async <R extends Row>(...query: Parameters<typeof lookup>) => {
    if (query[1].name === 'primary-state') throw new Error('the primary has died')
    return lookup<R>(...query)
  }
  const put = await service.call('PUT', `/api/audience/${member?.id}`, {
    headers: { ...tenant.headers, ...JSON_BODY },
    body: '{"tags":["vip"]}',
  })
  const token = put.headers.get('x-consistency-token') as string
  const list = await service.call('GET', '/api/audience?tag=vip', {
    headers: { ...tenant.headers, 'x-consistency-token': token },
  })
  expect(list.json.data).toEqual([put.json])
  expect(await counted()).toContain('{outcome="behind"} 1')
})

/** A replica behind a proxy that can stop forwarding bytes, like a machine that hangs. The proxy never closes a connection. */
async function behindProxy(
  { host, port, user, database }: Connection,
  mayHang: (connection: number) => boolean,
) {
  const sockets = new Set<Socket>()
  let isHanging = false
  let connections = 0
  const server = createServer({ allowHalfOpen: true }, (client) => {
    connections += 1
    const hangs = mayHang(connections)
    const upstream = connect({ path: `${host}/.s.PGSQL.${port}`, allowHalfOpen: true })
    for (const [from, to] of [
      [client, upstream],
      [upstream, client],
    ] as const) {
      sockets.add(from)
      from.on('data', (bytes) => void ((isHanging && hangs) || to.write(bytes)))
      from.on('error', () => undefined)
    }
  }).listen(0, '127.0.0.1')
  await once(server, 'listening')
  onTestFinished(() => {
    server.close()
    for (const socket of sockets) socket.destroy()
  })
  const url = `postgres://${user}@127.0.0.1:${(server.address() as AddressInfo).port}/${database}`
  const hang = () => {
    isHanging = true
  }
  return { servers: [{ name: 'proxied', url }], hang }
}

it('answers every account with 200 while one of the servers behind the address of a replica hangs', async () => {
  let hang = () => {}
  const { service, tenant, counted, database } = await setUp(async (_url, connection) => {
    // The first two connections check whether the replica can be read. They reach a server that works.
    const proxy = await behindProxy(connection, (no) => no > 2)
    hang = proxy.hang
    return proxy.servers
  })
  const others = await Promise.all([addTenant(database), addTenant(database)])
  const list = (of: typeof tenant) => service.call('GET', '/api/audience', { headers: of.headers })
  await list(tenant)
  expect(await counted()).toContain('{outcome="replica"} 1')
  hang()
  const answers = await Promise.all(
    [tenant, ...others].flatMap((of) => Array.from({ length: 6 }, () => list(of))),
  )
  expect(answers.map(({ status }) => status)).toEqual(answers.map(() => 200))
})

it('queries a replica that refuses connections no more often than other replicas', async () => {
  const askedAtMs: number[] = []
  const refusing = createServer((socket) => {
    askedAtMs.push(performance.now())
    socket.destroy()
  }).listen(0, '127.0.0.1')
  await once(refusing, 'listening')
  onTestFinished(() => void refusing.close())
  const { port } = refusing.address() as AddressInfo
  const { database } = await setUp(() => [{ name: 'refusing', url: `postgres://127.0.0.1:${port}/none` }])
  await database.replicaLags()
  const before = askedAtMs.length
  await eventually(
    () => Promise.resolve(askedAtMs.length),
    (count) => count >= before + 5,
  )
  // Five attempts are four intervals of 250 ms apart. A timer may fire a millisecond early.
  expect((askedAtMs[before + 4] as number) - (askedAtMs[before] as number)).toBeGreaterThan(900)
})

it('ends a command although a replica hangs when the command starts or ends', async () => {
  const { connection, database } = await createTestDatabase()
  onTestFinished(() => database.close())
  await markChanges(database)
  const proxy = await behindProxy(connection, () => true)
  const env = { DATABASE_URL: urlOf(connection), DATABASE_READ_URL: proxy.servers[0]?.url as string }
  const run = () => runCommand(['fleet', '--json'], env)
  expect(await run()).toMatchObject({ status: 0, stdout: '[]\n', stderr: '' })
  proxy.hang()
  expect(await run()).toMatchObject({ status: 0, stdout: '[]\n', stderr: '' })
})
