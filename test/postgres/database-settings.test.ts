/** The service does not depend on the settings that an administrator gave the database or its role. */
import { expect, it } from 'vitest'
import { readConfig } from '../../src/config/config.ts'
import { migrate } from '../../src/postgres/schema/migrate.ts'
import { examineSystem } from '../../src/watch/system-health.ts'
import { lineEvent, textMessage } from '../../tools/simulator/events.ts'
import { runCommand } from '../support/command.ts'
import { startSignedIn } from '../support/console.ts'
import { addTenant, createTestDatabase, openDatabase, urlOf } from '../support/database.ts'
import { load } from '../support/load.ts'
import { startApp } from '../support/service.ts'

const SETTINGS = {
  ...{ datestyle: `'German'`, extra_float_digits: '-15', intervalstyle: `'sql_standard'` },
  ...{ bytea_output: 'escape', idle_session_timeout: '200', default_transaction_deferrable: 'on' },
  check_function_bodies: 'off',
}

it('a database with unusual settings is migrated, examined, read and written as any other', async () => {
  const { database: first, connection } = await createTestDatabase()
  const tenant = await addTenant(first)
  for (const [name, value] of Object.entries(SETTINGS))
    await load(first, `alter database ${connection.database} set ${name} = ${value}`)
  await first.close()
  const database = openDatabase(connection)
  expect(await migrate(database)).toEqual([])
  const service = await startApp(database)
  const events = [lineEvent('follow', 'Uann'), textMessage('Uann', 'hello')]
  expect((await service.deliver(tenant, events)).json).toEqual({ accepted: 2, duplicates: 0 })
  expect((await service.deliver(tenant, events)).json).toEqual({ accepted: 0, duplicates: 2 })
  await load(database, `update audience_member set display_name = 'Ann' || i from generate_series(1, 1) i`)
  const id = (await service.member(tenant, 'Uann'))?.id
  const fields = { externalId: 'null', tags: ['NULL', 'vip'], attributes: { note: null, ratio: 0.1 } }
  const put = await service.put(tenant, id, fields)
  expect(put.json).toMatchObject({
    ...fields,
    version: 2,
    followedAt: expect.stringMatching(/^\d{4}-.*Z$/),
  })
  for (const filter of ['tag=NULL', 'q=Ann', 'updatedSince=2020-01-01T00:00:00Z']) {
    const found = await service.call('GET', `/api/audience?${filter}`, { headers: tenant.headers })
    expect(found.json.data).toEqual([put.json])
  }
  const { operator } = await startSignedIn(database)
  const account = `/api/accounts/${tenant.accountId}`
  const members = [`${account}/members`, `${account}/member?user=${id}`]
  const pages = ['/api/fleet', account, ...members, '/api/clients', '/api/endpoints']
  for (const page of [...pages, '/api/events'])
    expect([page, (await operator.get(page)).status]).toEqual([page, 200])
  const config = readConfig({ DATABASE_URL: urlOf(connection), LINE_API_URL: 'http://127.0.0.1:9' })
  const upToDate = { check: 'migrations', severity: 'ok' }
  expect(await examineSystem(config)).toContainEqual(expect.objectContaining(upToDate))
  expect((await service.erase(tenant, id)).status).toBe(204)
  const late = lineEvent('follow', 'Uann', { timestamp: Date.now() - 60_000 })
  expect((await service.deliver(tenant, [late])).status).toBe(200)
  const tombstones = await service.call('GET', '/api/audience?updatedSince=2020-01-01T00:00:00Z', {
    headers: tenant.headers,
  })
  expect(tombstones.json.data).toEqual([{ id, deletedAt: expect.stringMatching(/Z$/) }])
})

it('says in one line that search_path names no schema in which tables can be', async () => {
  const { database, connection, env } = await createTestDatabase()
  await load(database, `alter database ${connection.database} set search_path = nowhere`)
  await database.close()
  for (const command of [['migrate'], ['accounts', 'list']]) {
    const { status, stderr } = await runCommand(command, env)
    expect(status).toBe(1)
    expect(stderr).toMatch(/^oa-audience: .*search_path.*nowhere.*\n$/)
  }
})
