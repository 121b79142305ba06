/** Reads on replicas: the service on a primary and two standbys that replay late, stop or hang. */
import { chmodSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest'
import { addCheckpoint } from '../../src/audience/feed-statement.ts'
import { type DatabaseServer, parseReplicasUrl } from '../../src/config/database-url.ts'
import { Metrics } from '../../src/observability/metrics.ts'
import { migrate } from '../../src/postgres/schema/migrate.ts'
import { lineEvent, randomUserId } from '../../tools/simulator/events.ts'
import { type PostgresServer, ReplicatedPostgres } from '../../tools/simulator/replicated-postgres.ts'
import { TextDatabase } from '../../tools/text-database.ts'
import { startSignedIn } from '../support/console.ts'
import { addTenant, openDatabase, type Tenant } from '../support/database.ts'
import { DEBIAN_POSTGRES, hasDebianPostgres } from '../support/debian-postgres.ts'
import { temporaryDirectory } from '../support/process.ts'
import { type Answer, type Service, startApp } from '../support/service.ts'
import { type Listed, walk } from '../support/walk.ts'

/**
 * A feed begins at a mark that is at least 60 s older than `updatedSince`. A mark with this time lets it begin only 1.5 s back: the
 * longest lag of the test, and the time between two walks.
 */
const MARK_BACK = `insert into change_mark (marked_at, change)
                    select clock_timestamp() - interval '60 seconds' + interval '1.5 seconds', change_horizon()`

const LONG_MS = 30_000
const SHORT_MS = 1_000
const OLD = { 'cache-control': 'max-age=60' }
const STREAM = { accept: 'application/x-ndjson' }

let cluster: ReplicatedPostgres
const directory = temporaryDirectory()
chmodSync(directory, 0o755)
let admin: TextDatabase

const urlOf = ({ port }: PostgresServer) => `postgres://postgres@127.0.0.1:${port}/postgres`
const serverOf = (server: PostgresServer) => parseReplicasUrl(urlOf(server))[0] as DatabaseServer
const onStandbys = (sql: string) => Promise.all(cluster.standbys.map((standby) => standby.ask(sql)))
const resume = () => onStandbys('select pg_wal_replay_resume()')
const pauseForTest = async () => {
  await onStandbys('select pg_wal_replay_pause()')
  onTestFinished(() => resume().then(() => undefined))
}

/** The service, which by default reads from both standbys. */
async function startReading(
  maxLagMs: number,
  servers = cluster.standbys.map(serverOf),
  url = urlOf(cluster.primary),
) {
  const database = openDatabase(url, { servers, maxLagMs })
  const metrics = new Metrics([])
  const service = await startApp(database)
  onTestFinished(() => metrics.close())
  /** Number of reads with this outcome. */
  const counted = async (outcome: string): Promise<number> => {
    const text = await metrics.registry.getSingleMetricAsString('oa_audience_reads_total')
    return Number(new RegExp(`outcome="${outcome}"} (\\d+)`).exec(text)?.[1] ?? 0)
  }
  return { database, service, counted }
}

async function addMember(service: Service, tenant: Tenant): Promise<string> {
  const userId = randomUserId()
  expect((await service.deliver(tenant, [lineEvent('follow', userId)])).status).toBe(200)
  return userId
}

const caughtUp = async () => {
  const position = await cluster.primary.ask('select pg_current_wal_flush_lsn()')
  await expect
    .poll(() => onStandbys(`select pg_last_wal_replay_lsn() >= '${position}'`))
    .toSatisfy((replies) => replies.every((reply: string) => reply === 't'))
}

const list = (service: Service, tenant: Tenant, headers: Record<string, string> = {}, query = '') =>
  service.call('GET', `/api/audience?${query}`, { headers: { ...tenant.headers, ...headers } })

const userIds = (answer: Answer): string[] => answer.json.data.map(({ userId }: Listed) => userId)
const lines = ({ text }: Answer): Listed[] =>
  text
    .split('\n')
    .filter(Boolean)
    .map((line) => JSON.parse(line))

describe.runIf(hasDebianPostgres('reads on replicas are'))('replicas', () => {
  beforeAll(async () => {
    cluster = await ReplicatedPostgres.start(DEBIAN_POSTGRES ?? '', join(directory, 'cluster'), {
      standbys: 2,
      settings: '',
    })
    admin = new TextDatabase(urlOf(cluster.primary), () => undefined)
    await migrate(admin)
    admin.markReady()
    await addCheckpoint(admin)
  })
  afterAll(async () => {
    await admin.close()
    await cluster.stop()
  })

  it('serve pages and feeds of clients that accept their age, and searches of the console', async () => {
    const tenant = await addTenant(admin)
    const { database, service, counted } = await startReading(LONG_MS)
    const before = await addMember(service, tenant)
    await caughtUp()
    await list(service, tenant, OLD)
    await pauseForTest()
    const since = await addMember(service, tenant)
    for (const query of ['', 'updatedSince=2020-01-01T00:00:00Z']) {
      expect(userIds(await list(service, tenant, OLD, query))).toEqual([before])
      expect(userIds(await list(service, tenant, {}, query))).toEqual([before, since])
    }
    expect(await counted('replica')).toBe(3)
    const { operator } = await startSignedIn(database)
    const members = `/api/accounts/${tenant.accountId}/members`
    const erase = `/api/accounts/${tenant.accountId}/erase-member`
    expect(userIds(await operator.get(members))).toEqual([before])
    // The next page includes what an operator changed, because the primary serves it.
    const { json } = await operator.get(`/api/accounts/${tenant.accountId}/member?user=${before}`)
    expect((await operator.post(erase, { member: json.member.id })).status).toBe(204)
    expect(userIds(await operator.get(members))).toEqual([since])
    // Credentials are always read from the primary.
    await admin.query(`update api_client set status = 'revoked' where id = $1`, [tenant.clientRowId])
    expect((await list(service, tenant, OLD)).status).toBe(401)
  })

  it('serve streams that include all that their client has written before', async () => {
    const tenant = await addTenant(admin)
    const { service, counted } = await startReading(LONG_MS)
    await addMember(service, tenant)
    const [{ id }] = (await list(service, tenant)).json.data
    const delayReplay = async (setting: string) => {
      for (const standby of cluster.standbys) await standby.ask(`alter system ${setting}`)
      await onStandbys('select pg_reload_conf()')
    }
    await delayReplay(`set recovery_min_apply_delay = '100ms'`)
    onTestFinished(() => delayReplay('reset recovery_min_apply_delay'))
    const writeAndStream = async (no: number) => {
      const updated = await service.put(tenant, id, { externalId: `customer ${no}` })
      expect(lines(await list(service, tenant, STREAM))).toEqual([updated.json])
    }
    for (let no = 0; no < 20; no += 1) await writeAndStream(no)
    expect(await counted('replica')).toBeGreaterThan(0)
    await pauseForTest()
    const behind = await counted('behind')
    await writeAndStream(20)
    expect(await counted('behind')).toBe(behind + 1)
  })

  it.each([
    ['READ_MAX_LAG_MS', SHORT_MS, OLD],
    ['the accepted age', LONG_MS, { 'cache-control': 'max-age=1' }],
  ])('serve no page that is older than %s', async (_, maxLagMs, headers) => {
    const tenant = await addTenant(admin)
    const { service, counted } = await startReading(maxLagMs)
    const isOnReplica = async () => {
      const count = await counted('replica')
      await list(service, tenant, headers)
      return (await counted('replica')) > count
    }
    await expect.poll(isOnReplica).toBe(true)
    await pauseForTest()
    const userId = await addMember(service, tenant)
    await sleep(SHORT_MS)
    expect(userIds(await list(service, tenant, headers))).toEqual([userId])
    expect(await counted('behind')).toBeGreaterThan(0)
    await resume()
    await expect.poll(isOnReplica).toBe(true)
  })

  it('may die or hang without a failed read, and are read again afterwards', async () => {
    const tenant = await addTenant(admin)
    const { service, counted } = await startReading(LONG_MS)
    const userId = await addMember(service, tenant)
    await caughtUp()
    let isFinished = false
    let slowestMs = 0
    const reader = async () => {
      while (!isFinished) {
        const startedAtMs = performance.now()
        const answer = await list(service, tenant, OLD)
        slowestMs = Math.max(slowestMs, performance.now() - startedAtMs)
        expect([answer.status, userIds(answer)]).toEqual([200, [userId]])
        await sleep(20)
      }
    }
    // An account has two connections, so most of them wait for one to the replica that hangs.
    const readers = Promise.all(Array.from({ length: 20 }, reader))
    readers.catch(() => undefined)
    const more = async (outcome: string) => {
      const count = await counted(outcome)
      await expect.poll(() => counted(outcome)).toBeGreaterThan(count + 20)
    }
    await more('replica')
    const [first, second] = cluster.standbys as [PostgresServer, PostgresServer]
    await first.kill()
    await more('replica')
    second.freeze()
    await more('unavailable')
    second.thaw()
    await more('replica')
    await second.kill()
    await more('unavailable')
    await first.start()
    await more('replica')
    await second.start()
    isFinished = true
    await readers
    console.info({ slowestReadMs: Math.round(slowestMs) })
    // Two replicas may each take a second to time out. The rest is for a busy machine.
    expect(slowestMs).toBeLessThan(6_000)
  })

  it('are never another database, nor a standby that was promoted by mistake', async () => {
    const tenant = await addTenant(admin)
    const [lost] = cluster.standbys as [PostgresServer]
    const [other] = parseReplicasUrl(urlOf(lost).replace(/postgres$/, 'template1')) as [DatabaseServer]
    const { service, counted, database } = await startReading(LONG_MS, [other, serverOf(lost)])
    const userId = await addMember(service, tenant)
    await caughtUp()
    const lags = async () => (await database.replicaLags()).map(({ behindBytes }) => behindBytes)
    expect(await lags()).toEqual([null, 0])
    expect(userIds(await list(service, tenant, OLD))).toEqual([userId])
    await lost.promote()
    // The promoted server is ahead of the primary.
    await lost.ask('create table ballast as select generate_series(1, 100000)')
    const before = await counted('replica')
    const [{ id }] = (await list(service, tenant)).json.data
    await service.put(tenant, id, { tags: ['vip'] })
    for (let no = 0; no < 4; no += 1) {
      expect((await list(service, tenant, OLD)).json.data[0].tags).toEqual(['vip'])
    }
    expect([await counted('replica'), await lags()]).toEqual([before, [null, null]])
    await cluster.rebuild(lost)
  })

  it('keep a copy of the audience complete while pages and streams come from servers of different age', async () => {
    const tenant = await addTenant(admin)
    const { service, counted } = await startReading(SHORT_MS)
    for (let no = 0; no < 20; no += 1) await addMember(service, tenant)
    const copy = new Map<string, Listed>()
    let isFinished = false
    const change = async () => {
      while (!isFinished) {
        const members = (await service.members(tenant)) as unknown as Listed[]
        const member = members[Math.floor(Math.random() * members.length)] as Listed
        await service.put(tenant, member.id, { tags: [String(Math.random())] })
        if (Math.random() < 0.2) await service.erase(tenant, member.id)
        if (Math.random() < 0.3) await addMember(service, tenant)
      }
    }
    const delay = async () => {
      while (!isFinished) {
        const standby = cluster.standbys[Math.random() < 0.5 ? 0 : 1] as PostgresServer
        await standby.ask('select pg_wal_replay_pause()')
        await sleep(Math.random() * 900)
        await standby.ask('select pg_wal_replay_resume()')
      }
    }
    const work = Promise.all([change(), change(), delay()])
    work.catch(() => undefined)
    /** Some of the pages of a walk may be old, the others may not. */
    const mixed: Tenant = {
      ...tenant,
      get headers() {
        return Math.random() < 0.8 ? { ...tenant.headers, ...OLD } : tenant.headers
      },
    }
    let since = new Date(0).toISOString()
    const follow = async (isStream: boolean) => {
      const beganAt = new Date().toISOString()
      const query = `updatedSince=${encodeURIComponent(since)}`
      const entries = isStream
        ? lines(await list(service, tenant, STREAM, query))
        : await walk(service, mixed, query, 3)
      for (const entry of entries) {
        if (entry.deletedAt === undefined) copy.set(entry.id, entry)
        else copy.delete(entry.id)
      }
      since = beganAt
    }
    for (let no = 0; no < 24; no += 1) {
      await follow(no % 4 === 3)
      await sleep(125)
      await admin.query(MARK_BACK)
    }
    isFinished = true
    await work
    await sleep(SHORT_MS)
    await follow(false)
    expect([...copy.values()].toSorted((a, b) => Number(BigInt(a.id) - BigInt(b.id)))).toEqual(
      await service.members(tenant),
    )
    expect(await counted('replica')).toBeGreaterThan(50)
  })

  // This test is the last one, because it leaves another primary.
  it('are never a former primary that still runs, nor its standby', async () => {
    const tenant = await addTenant(admin)
    const former = cluster.primary
    const [one, two] = cluster.standbys.map(serverOf)
    const servers = [serverOf(former), one, two].filter((server) => server !== undefined)
    const { service, counted, database } = await startReading(SHORT_MS, servers, cluster.url)
    const userId = await addMember(service, tenant)
    await caughtUp()
    await cluster.failOver()
    const [follower] = cluster.standbys.filter((standby) => standby !== former) as [PostgresServer]
    await expect
      .poll(() => database.query<{ port: number }>('select inet_server_port() as port').catch(() => []))
      .toSatisfy(([row]) => row?.port === cluster.primary.port)
    const isOnReplica = async () => {
      const count = await counted('replica')
      expect(userIds(await list(service, tenant, OLD))).toEqual([userId])
      return (await counted('replica')) > count
    }
    // A standby of the new primary names its timeline after a restartpoint.
    await expect
      .poll(async () => {
        await cluster.primary.ask('checkpoint')
        await follower.ask('checkpoint')
        return isOnReplica()
      })
      .toBe(true)
    await follower.kill()
    await follower.copy(former)
    await follower.start()
    await former.ask('create table ballast_of_former as select generate_series(1, 100000)')
    const before = await counted('replica')
    const [{ id }] = (await list(service, tenant)).json.data
    expect((await service.put(tenant, id, { tags: ['vip'] })).status).toBe(200)
    await sleep(SHORT_MS)
    for (let no = 0; no < 6; no += 1) {
      expect((await list(service, tenant, OLD)).json.data[0].tags).toEqual(['vip'])
    }
    expect(await counted('replica')).toBe(before)
    expect((await database.replicaLags()).map(({ behindBytes }) => behindBytes)).toEqual([null, null, null])
  })
})
