/** Upgrades are promised from 0.3.0 on: what each release has stored is upgraded and used. scripts/upgrade-fixture.mjs writes the files. */
import { readdirSync, readFileSync } from 'node:fs'
import { describe, expect, it } from 'vitest'
import { readConfig } from '../../src/config/config.ts'
import { startService } from '../../src/main.ts'
import { migrate, readMigrations } from '../../src/postgres/schema/migrate.ts'
import { lineEvent, randomUserId } from '../../tools/simulator/events.ts'
import { runCommand } from '../support/command.ts'
import { addCredentials, addTenant, createTestDatabase, type Tenant } from '../support/database.ts'
import { activityOf, load } from '../support/load.ts'
import { startApp } from '../support/service.ts'

const FIXTURES = new URL('../fixtures/', import.meta.url)
const files = readdirSync(FIXTURES).filter((name) => name.endsWith('.sql'))
const known = readMigrations()
const upgrading = readFileSync('docs/upgrading.md', 'utf8')

/** A running job of a kind that only 0.3.0 had. */
const RESUMPTION = `insert into job (kind, actor_kind, actor, parameters) values ('endpoint.resume', 'command', 'command', '{}');`

const KEEP = `insert into kept_delivery (channel_oa_id, tried_version, address_hash, person_hashes, signature, body, bytes)
              select id, 0, 0, '{}', '', '', 0 from official_account`

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
    const [planned = ''] = /select format\([^\\]+/.exec(upgrading) ?? []
    const byHand = file === '0.3.0.sql' ? await load<{ format: string }>(database, planned) : []
    for (const { format } of byHand) await load(database, format)
    await migrate(database)
    // The upgrade uses the indexes that docs/upgrading.md creates before, and makes no others.
    const indexes = `select from pg_class where relkind = 'i' and pg_get_indexdef(oid) like '%unfollow%'`
    if (file === '0.3.0.sql') expect(await load(database, indexes)).toHaveLength(byHand.length)
    database.markReady()
    // As a process of 0.3.0 beside this one.
    await load(database, KEEP)
    expect(await load(database, 'select from kept_delivery')).toEqual([])

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
      ['jobs list', { kind: 'members.tag', status: 'done' }],
      ['jobs list', { kind: 'endpoint.resume', status: 'done' }],
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

  it('keeps clients and keys refused that had expired, and names those that no longer end by themselves', async () => {
    const { database, env } = await createTestDatabase('template0')
    await migrate(
      database,
      known.filter(({ name }) => applied.some((migration) => migration.name === name)),
    )
    database.markReady()
    const tenant = await addTenant(database)
    const add = async (ofClient: string, ofKey: string) => {
      const { accountId, organizationId } = tenant
      const { clientRowId, keyId, headers } = await addCredentials(database, accountId, organizationId)
      await load(database, `update api_client set ${ofClient} where id = $1`, [clientRowId])
      await load(database, `update api_key set ${ofKey} where id = $1`, [keyId])
      return { clientRowId, keyId, headers }
    }
    const [expired, later] = [`expires_at = now()`, `expires_at = now() + interval '1 hour'`]
    const unchanged = 'status = status'
    const endedClient = await add(expired, later)
    const endedKey = await add(unchanged, expired)
    const ending = await add(later, later)
    const revoked = await add(`status = 'suspended', ${expired}`, `expires_at = 'infinity'`)
    await load(database, 'delete from unrecorded_revocation')

    const { status, stdout, stderr } = await runCommand(['migrate'], env)
    expect([status, stdout]).toEqual([0, expect.stringContaining('applied 0009-no-expiry.sql')])
    const named = [
      `client ${ending.clientRowId}`,
      ...[endedClient, ending].map(({ keyId }) => `key ${keyId}`),
    ]
    expect(stderr).toMatch(new RegExp(`^oa-audience: expires_at no longer ends .*: ${named.join(', ')}\n$`))
    const service = await startApp(database)
    const list = async ({ headers }: { headers: Record<string, string> }) =>
      (await service.call('GET', '/api/audience', { headers })).json
    const refused = { message: 'Invalid client credentials' }
    expect([await list(endedClient), await list(revoked)]).toMatchObject([refused, refused])
    expect([await list(endedKey), await list(ending)]).toEqual([null, { data: [], nextCursor: null }])

    // A restore lists them like any other revocation.
    expect(await load(database, 'select kind, object_id from unrecorded_revocation order by kind')).toEqual([
      { kind: 'client', object_id: endedClient.clientRowId },
      { kind: 'key', object_id: endedKey.keyId },
    ])
    const changes = { status: ['active', 'expired'] }
    for (const [kind, id] of [
      ['client', endedClient.clientRowId],
      ['key', endedKey.keyId],
    ] as const)
      expect(await activityOf(database, kind, id)).toMatchObject([{ action: `${kind}.revoked`, changes }])
    const statuses = await load(database, 'select status from api_client where id = $1', [
      revoked.clientRowId,
    ])
    expect(statuses).toEqual([{ status: 'suspended' }])

    const lines: string[] = []
    const config = readConfig({ ...env, PORT: '0' })
    const started = await startService(config, { write: (line) => lines.push(line) })
    await started.ready.finally(() => started.close())
    expect(lines.filter((line) => line.includes(named.join(', ')))).toHaveLength(1)
  })
})
