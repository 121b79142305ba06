/** Backups of a PostgreSQL of DATABASE_URL with its pg_dump, and their restore into another server. */
import { readdirSync, readFileSync, statSync } from 'node:fs'
import { join } from 'node:path'
import { expect, it } from 'vitest'
import { lineEvent, randomUserId } from '../../tools/simulator/events.ts'
import { addTenant, openDatabase } from '../support/database.ts'
import { DEBIAN_POSTGRES, hasDebianPostgres, startCluster } from '../support/debian-postgres.ts'
import { runProgramAsync, startHealthy, temporaryDirectory } from '../support/process.ts'
import { sendDelivery } from '../support/service.ts'

it.runIf(hasDebianPostgres('backups with pg_dump are'))(
  'a dump is restored into another server, whose change numbers continue beyond those of the lost one',
  async () => {
    const [lost, fresh] = [await startCluster(), await startCluster()]
    const PATH = `${DEBIAN_POSTGRES}:${process.env.PATH}`
    const env = { DATABASE_URL: lost.url.replace('postgres@', 'postgres:a%2Fsecret%26@'), PATH }
    const service = await startHealthy(env)
    const database = openDatabase(lost.url)
    const tenant = await addTenant(database)
    const follow = async (url: string) => {
      expect((await sendDelivery(url, tenant, [lineEvent('follow', randomUserId())])).status).toBe(200)
    }
    const list = async (url: string, query = '') => {
      const response = await fetch(`${url}/api/audience${query}`, { headers: tenant.headers })
      return {
        status: response.status,
        json: (await response.json()) as { data: Array<{ id: string; updatedAt: string }> },
      }
    }
    for (let count = 0; count < 3; count += 1) await follow(service.url)
    // The ids of transactions of the new server are lower.
    await database.session((session) =>
      session.query('do $$ begin for step in 1..3000 loop perform txid_current(); commit; end loop; end $$'),
    )
    await follow(service.url)
    const backup = join(temporaryDirectory(), 'backup')
    const done = await runProgramAsync(['backup', backup, '--json'], env)
    expect(done.status, done.stderr).toBe(0)
    expect(JSON.parse(done.stdout)).toMatchObject({ directory: backup, kind: 'dump' })
    expect(readdirSync(backup).sort()).toEqual(['data', 'manifest.json'])
    for (const name of readdirSync(join(backup, 'data')))
      expect(statSync(join(backup, 'data', name)).mode & 0o077, name).toBe(0)
    expect(readFileSync(join(backup, 'manifest.json'), 'utf8')).not.toContain('secret')
    const before = (await list(service.url)).json.data
    await follow(service.url)
    const [newest] = (await list(service.url, '?limit=200')).json.data.slice(-1)
    const [lostChange] = await database.query<{ change: bigint }>(
      'select max(change) as change from audience_member',
    )
    await database.close()
    service.child.kill('SIGINT')
    await service.exited
    await lost.stop()

    const into = { DATABASE_URL: fresh.url, PATH }
    const restored = await runProgramAsync(['restore', backup, '--json'], into)
    expect(restored.status, restored.stderr).toBe(0)
    const again = await runProgramAsync(['restore', backup], into)
    expect(again.stderr).toContain('the database of DATABASE_URL is not empty')
    const next = await startHealthy(into)
    expect((await list(next.url)).json.data.map(({ id }) => id)).toEqual(before.map(({ id }) => id))
    expect((await list(next.url, `?updatedSince=${newest?.updatedAt}`)).status).toBe(410)
    await follow(next.url)
    const found = openDatabase(fresh.url)
    const [change] = await found.query<{ change: bigint }>(
      'select max(change) as change from audience_member',
    )
    expect(change?.change).toBeGreaterThan(lostChange?.change ?? 0n)
    expect(await found.query(`select from activity where action = 'database.restored'`)).toHaveLength(1)
    expect(await found.query(`select to_regclass('unfinished_restore') as marker`)).toEqual([
      { marker: null },
    ])
  },
)
