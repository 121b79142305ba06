/** Reads on replicas: the service on a primary and two standbys that replay late, stop or hang. */
import { chmodSync, mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest'
import type { AccountId, OrganizationId } from '../../src/accounts/account.ts'
import { markChanges } from '../../src/audience/change-marks.ts'
import { readPage } from '../../src/audience/select-list.ts'
import { Metrics } from '../../src/observability/metrics.ts'
import { migrate } from '../../src/postgres/migrate.ts'
import { lineEvent, randomUserId } from '../../tools/simulator/events.ts'
import {
  findDebianPostgres,
  type PostgresServer,
  ReplicatedPostgres,
} from '../../tools/simulator/replicated-postgres.ts'
import { TextDatabase } from '../../tools/text-database.ts'
import { signedIn, startConsoleForTest } from '../support/console.ts'
import { addTenant, type Tenant } from '../support/database.ts'
import { eventually } from '../support/process.ts'
import { type Answer, type Service, startAppForTest } from '../support/service.ts'
import { type Listed, walk } from '../support/walk.ts'

const tools = findDebianPostgres()
if (tools === null) {
  console.warn(
    '\n!!! no PostgreSQL of Debian is installed: READS ON REPLICAS ARE NOT TESTED. Install the package postgresql.\n',
  )
}

/**
 * A feed begins at a mark that is at least 60 s older than `updatedSince`. A mark with this time lets it begin only 1.5 s back: the
 * longest lag of the test, and the time between two walks.
 */
const MARK_BACK = `insert into change_mark (marked_at, change)
                    select clock_timestamp() - interval '60 seconds' + interval '1.5 seconds', change_horizon()`

const LONG_MS = 30_000
const SHORT_MS = 1_000

let cluster: ReplicatedPostgres
let directory: string
let admin: TextDatabase

const urlOf = ({ port }: PostgresServer) => `postgres://postgres@127.0.0.1:${port}/postgres`
const serverOf = (server: PostgresServer) => ({ name: `127.0.0.1:${server.port}`, url: urlOf(server) })
const onStandbys = (sql: string) => Promise.all(cluster.standbys.map((standby) => standby.ask(sql)))
const pause = () => onStandbys('select pg_wal_replay_pause()')
const resume = () => onStandbys('select pg_wal_replay_resume()')

/** The service, which reads from both standbys. */
async function startReading(maxLagMs: number, servers = cluster.standbys.map(serverOf)) {
  const database = new TextDatabase(urlOf(cluster.primary), () => undefined, { servers, maxLagMs })
  database.markReady()
  const metrics = new Metrics([])
  const service = await startAppForTest(database)
  onTestFinished(async () => {
    metrics.close()
    await database.close()
  })
  /** Number of reads with this outcome. */
  const answered = async (outcome: string): Promise<number> => {
    const text = await metrics.registry.getSingleMetricAsString('oa_audience_reads_total')
    return Number(new RegExp(`outcome="${outcome}"} (\\d+)`).exec(text)?.[1] ?? 0)
  }
  return { database, service, answered }
}

async function addMember(service: Service, tenant: Tenant): Promise<string> {
  const userId = randomUserId()
  expect((await service.deliver(tenant, [lineEvent('follow', userId)])).status).toBe(200)
  return userId
}

const caughtUp = async () => {
  const position = await cluster.primary.ask('select pg_current_wal_flush_lsn()')
  await eventually(
    () => onStandbys(`select pg_last_wal_replay_lsn() >= '${position}'`),
    (answers) => answers.every((answer) => answer === 't'),
  )
}

const list = (service: Service, tenant: Tenant, query = '', headers: Record<string, string> = {}) =>
  service.call('GET', `/api/audience?${query}`, { headers: { ...tenant.headers, ...headers } })

const userIds = (answer: Answer): string[] => answer.json.data.map(({ userId }: Listed) => userId)
const put = (service: Service, tenant: Tenant, path: string, update: object) =>
  service.call('PUT', path, {
    headers: { ...tenant.headers, 'content-type': 'application/json' },
    body: JSON.stringify(update),
  })
const tokenOf = (answer: Answer) => ({
  'x-consistency-token': answer.headers.get('x-consistency-token') as string,
})

describe.runIf(tools !== null)('reads on replicas', () => {
  beforeAll(async () => {
    directory = mkdtempSync(join(tmpdir(), 'oa-audience-test-'))
    chmodSync(directory, 0o755)
    cluster = await ReplicatedPostgres.start(tools ?? '', join(directory, 'cluster'), {
      standbys: 2,
      settings: '',
    })
    admin = new TextDatabase(urlOf(cluster.primary), () => undefined)
    await migrate(admin)
    admin.markReady()
    await markChanges(admin)
  })
  afterAll(async () => {
    await admin.close()
    await cluster.stop()
    rmSync(directory, { recursive: true, force: true, maxRetries: 20, retryDelay: 100 })
  })

  it('answer pages, streams, feeds and searches of the console, while the primary checks credentials', async () => {
    const tenant = await addTenant(admin)
    const { database, service, answered } = await startReading(LONG_MS)
    const before = await addMember(service, tenant)
    await caughtUp()
    await eventually(
      () => list(service, tenant).then(() => answered('replica')),
      (count) => count > 0,
    )
    await pause()
    onTestFinished(() => resume().then(() => undefined))
    const since = await addMember(service, tenant)
    expect(userIds(await list(service, tenant))).toEqual([before])
    expect(userIds(await list(service, tenant, 'updatedSince=2020-01-01T00:00:00Z'))).toEqual([before])
    for (const accept of ['application/x-ndjson', 'text/csv']) {
      const { text } = await list(service, tenant, '', { accept })
      expect([text.includes(before), text.includes(since)]).toEqual([true, false])
    }
    const { url } = await startConsoleForTest(database)
    const operator = await signedIn(url)
    const members = `/api/accounts/${tenant.accountId}/members`
    expect(userIds(await operator.get(members))).toEqual([before])
    // The next answer includes what an operator changed, because the primary gives it.
    const { json } = await operator.get(`${members}/${before}`)
    expect((await operator.post(`${members}/${json.member.id}/erase`)).status).toBe(204)
    expect(userIds(await operator.get(members))).toEqual([since])
    await admin.query(`update api_client set status = 'revoked' where id = $1`, [tenant.clientRowId])
    expect((await list(service, tenant)).status).toBe(401)
  })

  it('include the own writes of a client that sends their tokens', async () => {
    const tenant = await addTenant(admin)
    const { service, answered } = await startReading(LONG_MS)
    await addMember(service, tenant)
    await addMember(service, tenant)
    await caughtUp()
    const {
      json: {
        data: [one, two],
      },
    } = await list(service, tenant)
    for (const standby of cluster.standbys)
      await standby.ask(`alter system set recovery_min_apply_delay = '100ms'`)
    await onStandbys('select pg_reload_conf()')
    onTestFinished(async () => {
      for (const standby of cluster.standbys) await standby.ask('alter system reset recovery_min_apply_delay')
      await onStandbys('select pg_reload_conf()')
    })
    for (let no = 0; no < 20; no += 1) {
      const path = `/api/audience/${one.id}`
      const updated = await put(service, tenant, path, { externalId: `customer ${no}` })
      const query = `externalId=customer%20${no}`
      expect((await list(service, tenant, query, tokenOf(updated))).json.data).toEqual([updated.json])
      const stream = await list(service, tenant, query, {
        accept: 'application/x-ndjson',
        ...tokenOf(updated),
      })
      expect(JSON.parse(stream.text)).toEqual(updated.json)
    }
    expect(await answered('replica')).toBeGreaterThan(0)
    await pause()
    onTestFinished(() => resume().then(() => undefined))
    const erased = await service.call('DELETE', `/api/audience/${two.id}`, { headers: tenant.headers })
    expect(userIds(await list(service, tenant, '', tokenOf(erased)))).toEqual([one.userId])
    expect(userIds(await list(service, tenant))).toEqual([one.userId, two.userId])
    // A client whose answer was lost sends the DELETE again.
    const again = await service.call('DELETE', `/api/audience/${two.id}`, { headers: tenant.headers })
    expect(again.status).toBe(404)
    expect(userIds(await list(service, tenant, '', tokenOf(again)))).toEqual([one.userId])
    expect(await answered('behind')).toBeGreaterThan(0)
  })

  it('are never older than READ_MAX_LAG_MS', async () => {
    const tenant = await addTenant(admin)
    const { service, answered } = await startReading(SHORT_MS)
    await list(service, tenant)
    for (const paused of [true, false, true]) {
      if (paused) await pause()
      const userId = await addMember(service, tenant)
      await sleep(SHORT_MS)
      expect(userIds(await list(service, tenant))).toContain(userId)
      if (paused) await resume()
      await eventually(
        async () => {
          const count = await answered('replica')
          await list(service, tenant)
          return (await answered('replica')) > count
        },
        (isReplica) => isReplica,
      )
    }
    expect(await answered('behind')).toBeGreaterThan(0)
  })

  it('succeed when replicas die or hang, and use the replicas again afterwards', async () => {
    const tenant = await addTenant(admin)
    const { service, answered } = await startReading(LONG_MS)
    const userId = await addMember(service, tenant)
    await caughtUp()
    let isFinished = false
    let slowestMs = 0
    const reader = async () => {
      while (!isFinished) {
        const startedAtMs = performance.now()
        const answer = await list(service, tenant)
        slowestMs = Math.max(slowestMs, performance.now() - startedAtMs)
        expect([answer.status, userIds(answer)]).toEqual([200, [userId]])
        await sleep(2)
      }
    }
    const readers = Promise.all([reader(), reader(), reader()])
    readers.catch(() => undefined)
    const more = async (outcome: string) => {
      const count = await answered(outcome)
      await eventually(
        () => answered(outcome),
        (now) => now > count + 20,
      )
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

  it('never come from another database, nor from a standby that was promoted by mistake', async () => {
    const tenant = await addTenant(admin)
    const other = new TextDatabase(urlOf(cluster.primary).replace(/postgres$/, 'other'), () => undefined)
    await cluster.primary.ask('create database other')
    onTestFinished(() => other.close())
    await migrate(other)
    other.markReady()
    await markChanges(other)
    await addTenant(other)
    const url = urlOf(cluster.primary).replace(/postgres$/, 'other')
    const { service, answered } = await startReading(LONG_MS, [{ name: 'other', url }])
    const userId = await addMember(service, tenant)
    expect(userIds(await list(service, tenant))).toEqual([userId])
    expect(await answered('replica')).toBe(0)

    // A standby that somebody promoted by mistake has all positions, but none of the later marks.
    const [lost] = cluster.standbys as [PostgresServer]
    const { service: second, answered: answeredSecond } = await startReading(LONG_MS, [serverOf(lost)])
    await caughtUp()
    await list(second, tenant)
    expect(await answeredSecond('replica')).toBe(1)
    await lost.promote()
    await lost.ask('create table ballast as select generate_series(1, 100000)')
    const [{ id }] = (await list(second, tenant)).json.data
    const updated = await put(second, tenant, `/api/audience/${id}`, { tags: ['vip'] })
    expect((await list(second, tenant, '', tokenOf(updated))).json.data).toEqual([updated.json])
    await sleep(10)
    await admin.query('delete from change_mark')
    await markChanges(admin)
    const { service: third, answered: answeredThird } = await startReading(SHORT_MS, [serverOf(lost)])
    const later = await addMember(third, tenant)
    expect(userIds(await list(third, tenant))).toEqual([userId, later])
    expect(await answeredThird('replica')).toBe(0)
    await cluster.rebuild(lost)
  })

  it('keep a copy of the audience complete while pages come from replicas of different lag', async () => {
    const tenant = await addTenant(admin)
    const { service, answered } = await startReading(SHORT_MS)
    for (let no = 0; no < 20; no += 1) await addMember(service, tenant)
    const copy = new Map<string, Listed>()
    let isFinished = false
    const change = async () => {
      while (!isFinished) {
        const members = (await service.members(tenant)) as unknown as Listed[]
        const member = members[Math.floor(Math.random() * members.length)] as Listed
        const path = `/api/audience/${member.id}`
        await put(service, tenant, path, { tags: [String(Math.random())] })
        if (Math.random() < 0.2) await service.call('DELETE', path, { headers: tenant.headers })
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
    let since = new Date(0).toISOString()
    const follow = async () => {
      const beganAt = new Date().toISOString()
      for (const entry of await walk(service, tenant, `updatedSince=${encodeURIComponent(since)}`, 3)) {
        if (entry.deletedAt === undefined) copy.set(entry.id, entry)
        else copy.delete(entry.id)
      }
      since = beganAt
    }
    for (let no = 0; no < 24; no += 1) {
      await follow()
      await sleep(125)
      await admin.query(MARK_BACK)
    }
    isFinished = true
    await work
    await sleep(SHORT_MS)
    await follow()
    expect([...copy.values()].toSorted((a, b) => Number(BigInt(a.id) - BigInt(b.id)))).toEqual(
      await service.members(tenant),
    )
    expect(await answered('replica')).toBeGreaterThan(50)
  })

  it('compare times of a feed with the clock of the primary', async () => {
    const tenant = await addTenant(admin)
    const { service } = await startReading(LONG_MS)
    await addMember(service, tenant)
    await caughtUp()
    const [standby] = cluster.standbys as [PostgresServer]
    const replica = new TextDatabase(urlOf(standby), () => undefined)
    replica.markReady()
    onTestFinished(() => replica.close())
    const scope = {
      keyId: null,
      accountId: tenant.accountId as AccountId,
      organizationId: tenant.organizationId as OrganizationId,
    }
    await addMember(service, tenant)
    await caughtUp()
    await pause()
    onTestFinished(() => resume().then(() => undefined))
    await sleep(10)
    const { next } = await readPage(replica, scope, {}, { kind: 'time', ms: 0 }, 1, 'page')
    if (next?.kind !== 'change') throw new Error('there is no next page')
    const replayedUs = `(extract(epoch from pg_last_xact_replay_timestamp()) * 1000000)::bigint`
    expect(String(next.walk.beganUs)).toBe(await standby.ask(`select ${replayedUs}`))
  })

  // This test is the last one, because it leaves another primary.
  it('never come from a former primary that still runs', async () => {
    const tenant = await addTenant(admin)
    const former = cluster.primary
    const database = new TextDatabase(cluster.url, () => undefined, {
      servers: [serverOf(former)],
      maxLagMs: SHORT_MS,
    })
    database.markReady()
    const metrics = new Metrics([])
    onTestFinished(async () => {
      metrics.close()
      await database.close()
    })
    const service = await startAppForTest(database)
    const answered = async () => {
      const text = await metrics.registry.getSingleMetricAsString('oa_audience_reads_total')
      return Number(/outcome="replica"} (\d+)/.exec(text)?.[1])
    }
    await addMember(service, tenant)
    await caughtUp()
    await list(service, tenant)
    expect(await answered()).toBe(1)
    await cluster.failOver()
    await former.ask('create table ballast_of_former as select generate_series(1, 100000)')
    await eventually(
      () => database.query<{ port: number }>('select inet_server_port() as port').catch(() => []),
      ([row]) => row?.port === cluster.primary.port,
    )
    // The positions of the former timeline are forgotten by now.
    await sleep(2 * SHORT_MS)
    const { data } = (await list(service, tenant)).json
    const updated = await put(service, tenant, `/api/audience/${data[0].id}`, { tags: ['vip'] })
    expect(updated.status).toBe(200)
    expect((await list(service, tenant, '', tokenOf(updated))).json.data).toEqual([updated.json])
    expect(await answered()).toBe(1)
  })
})
