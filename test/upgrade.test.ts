/** Upgrades are promised from 0.3.0 on: what each release has stored is upgraded and used. scripts/upgrade-fixture.mjs writes the files. */
import { readdirSync, readFileSync } from 'node:fs'
import { describe, expect, it } from 'vitest'
import { migrate, readMigrations } from '../src/postgres/schema/migrate.ts'
import { lineEvent, randomUserId } from '../tools/simulator/events.ts'
import { runCommand } from './support/command.ts'
import { createTestDatabase, type Tenant } from './support/database.ts'
import { load } from './support/load.ts'
import { startApp } from './support/service.ts'

const FIXTURES = new URL('fixtures/', import.meta.url)
const files = readdirSync(FIXTURES).filter((name) => name.endsWith('.sql'))
const known = readMigrations()

/** A running task of a kind that only 0.3.0 had. */
const RESUMPTION = `insert into job (kind, actor_kind, actor, parameters) values ('endpoint.resume', 'command', 'command', '{}');`

it('has a file of each release since 0.3.0', () => {
  expect(files).toContain('0.3.0.sql')
})

describe.each(files)('a database of %s', async (file) => {
  const sql = readFileSync(new URL(file, FIXTURES), 'utf8')
  const applied = [...sql.matchAll(/^-- migration (\S+) (\S+)$/gm)].map(([, name, checksum]) => ({
    name,
    checksum,
  }))

  it('has migrations that nobody has edited since: a change of the schema is a new file', () => {
    const present = applied.map(({ name }) => known.find((migration) => migration.name === name))
    expect(present.map((migration) => ({ name: migration?.name, checksum: migration?.checksum }))).toEqual(
      applied,
    )
  })

  it('is upgraded, shows what was stored, and takes new deliveries', async () => {
    const { database, env } = await createTestDatabase('template0')
    await migrate(
      database,
      known.filter(({ name }) => applied.some((migration) => migration.name === name)),
    )
    // Foreign keys and triggers have seen the rows already.
    await database.session((session) =>
      session.query(`set session_replication_role = replica;\n${sql}\n${RESUMPTION}`),
    )
    await migrate(database)
    database.markReady()

    const [account] = await load<
      Record<'channelSecret' | 'botUserId' | 'key' | 'client_id' | 'client_secret', string>
    >(
      database,
      `select a.id as "accountId", a.channel_secret as "channelSecret", a.bot_user_id as "botUserId", k.key, c.client_id, c.client_secret
         from official_account a join api_key k on k.channel_oa_id = a.id join api_client c on c.id = k.api_client_id`,
    )
    if (account === undefined) throw new Error('the file has no account with a key')
    const tenant = account as unknown as Tenant
    const headers = {
      'x-client-id': account.client_id,
      'x-client-secret': account.client_secret,
      'x-api-key': account.key,
    }
    const service = await startApp(database)
    const list = async (query = '') =>
      (await service.call('GET', `/api/audience?${query}`, { headers })).json.data as Array<{
        id: string
        tags: string[]
      }>
    const before = await list()
    expect(before.length).toBeGreaterThan(1)
    expect(before).toContainEqual(expect.objectContaining({ tags: ['vip'], attributes: { cups: 3 } }))
    expect(await list('segment=Regulars')).toEqual(before.filter(({ tags }) => tags.includes('vip')))
    expect((await service.deliver(tenant, [lineEvent('follow', randomUserId())])).status).toBe(200)
    const after = await list()
    expect(after.length).toBe(before.length + 1)
    expect(BigInt(after.at(-1)?.id ?? 0)).toBeGreaterThan(BigInt(before.at(-1)?.id ?? 0))

    for (const [command, expected] of [
      [
        'endpoints list',
        { condition: { tagsAll: ['vip'], lastSeenAfter: '30d' }, status: 'paused', pending: 1 },
      ],
      ['segments list', { name: 'Regulars', sync: false, syncState: 'deleting' }],
      ['segments list', { name: 'Guests', condition: { tagsNone: ['vip'] } }],
      ['tasks list', { kind: 'members.tag', status: 'done' }],
      ['tasks list', { kind: 'endpoint.resume', status: 'done' }],
      ['events list', { kind: 'follow' }],
      ['operators list', { email: 'ann@example.com', role: 'manager' }],
      ['notifications list', { name: 'Chat', format: 'slack' }],
    ] as const) {
      const { status, stdout } = await runCommand([...command.split(' '), '--json'], env)
      expect(status).toBe(0)
      expect(JSON.parse(stdout)).toContainEqual(expect.objectContaining(expected))
    }
    const { stdout } = await runCommand(['activity', 'list', '--json'], env)
    expect(JSON.parse(stdout).length).toBeGreaterThan(3)
  })
})
