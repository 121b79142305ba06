/** Upgrades are promised from 0.3.0 on: what each release has stored is upgraded and used. scripts/upgrade-fixture.mjs writes the files. */
import { readdirSync, readFileSync } from 'node:fs'
import { describe, expect, it, onTestFinished } from 'vitest'
import { finishErasures } from '../../src/accounts/erasure-lock.ts'
import { ErasureLedger } from '../../src/audience/erasure/erasure-ledger.ts'
import { readConfig } from '../../src/config/config.ts'
import { SecretKeys } from '../../src/config/secret-keys.ts'
import { Sender } from '../../src/endpoints/sender.ts'
import { startService } from '../../src/main.ts'
import { migrate, readMigrations } from '../../src/postgres/schema/migrate.ts'
import { examineSecrets } from '../../src/upkeep/stored-secrets.ts'
import { storeStatuses } from '../../src/watch/store-statuses.ts'
import { lineEvent, randomUserId } from '../../tools/simulator/events.ts'
import { runCommand, runJson } from '../support/command.ts'
import { Operator, PASSWORD, startConsole } from '../support/console.ts'
import {
  addCredentials,
  addTenant,
  createTestDatabase,
  openDatabase,
  type Tenant,
  urlOf,
} from '../support/database.ts'
import { startReceiver } from '../support/endpoints.ts'
import { endWaitsOfJobs, finishJobs } from '../support/jobs.ts'
import { activityOf, load } from '../support/load.ts'
import { startOutbox } from '../support/notifications.ts'
import { eventually, temporaryDirectory } from '../support/process.ts'
import { startApp } from '../support/service.ts'

const FIXTURES = new URL('../fixtures/', import.meta.url)
const files = readdirSync(FIXTURES).filter((name) => name.endsWith('.sql'))
const known = readMigrations()
const upgrading = readFileSync('docs/upgrading.md', 'utf8')

/** As scripts/upgrade-fixture.mjs has them. */
const SECRETS_KEYS = `fixture:${Buffer.alloc(32, 7).toString('base64')}`
const SESSION = 'a-session-of-the-fixture'.padEnd(43, '-')
const [ERASED, LEAVING] = ['e', 'f'].map((digit) => `U${digit.repeat(32)}`) as [string, string]

/** Tables without rows in a file, and why. */
const EMPTY: Record<string, string> = {
  schema_migration: 'migrations fill it',
  schema_function: 'migrations fill it',
  pending_reapply: 'no service starts while it has a row',
}
/** Since 0.4.0 */
const EMPTY_SINCE_0_4: Record<string, string> = { kept_delivery: 'nothing can be stored in it' }

/** A running job of a kind that only 0.3.0 had. */
const RESUMPTION = `insert into job (kind, actor_kind, actor, parameters) values ('endpoint.resume', 'command', 'command', '{}');`

const KEEP = `insert into kept_delivery (channel_oa_id, tried_version, address_hash, person_hashes, signature, body, bytes)
              select id, 0, 0, '{}', '', '', 0 from official_account`

type Fleet = { name: string; problems: Array<{ muted?: { reason: string } }> }

it('has a file of each release since 0.3.0', () => {
  expect(files).toContain('0.3.0.sql')
})

describe.each(files)('a database of %s', async (file) => {
  const sql = readFileSync(new URL(file, FIXTURES), 'utf8')
  const applied = [...sql.matchAll(/^-- migration (\S+) (\S+)$/gm)].map(([, name, checksum]) => ({
    name,
    checksum,
  }))
  const isOf0_3 = file === '0.3.0.sql'

  /** A database of the release, without rows. */
  async function createOld() {
    const created = await createTestDatabase('template0')
    await migrate(
      created.database,
      known.filter(({ name }) => applied.some((migration) => migration.name === name)),
    )
    return created
  }

  /** The database after the upgrade, and the client of the first account. */
  async function upgrade() {
    const { database: plain, connection } = await createOld()
    // Foreign keys and triggers have seen the rows already.
    await plain.session((session) =>
      session.query(`set session_replication_role = replica;\n${sql}\n${isOf0_3 ? RESUMPTION : ''}`),
    )
    const [planned = ''] = /select format\([^\\]+/.exec(upgrading) ?? []
    const byHand = isOf0_3 ? await load<{ format: string }>(plain, planned) : []
    for (const { format } of byHand) await load(plain, format)
    const database = openDatabase(connection, null, SecretKeys.parse(SECRETS_KEYS))
    await migrate(database)
    // The upgrade uses the indexes that docs/upgrading.md creates before, and makes no others.
    const indexes = `select from pg_class where relkind = 'i' and pg_get_indexdef(oid) like '%unfollow%'`
    if (isOf0_3) expect(await load(database, indexes)).toHaveLength(byHand.length)
    const [account] = await load<
      Record<'channelSecret' | 'botUserId' | 'key' | 'client_id' | 'client_secret', string>
    >(
      database,
      `select a.id as "accountId", a.channel_secret as "channelSecret", a.bot_user_id as "botUserId", k.key, c.client_id, c.client_secret
         from official_account a join api_key k on k.channel_oa_id = a.id join api_client c on c.id = k.api_client_id
        order by k.id limit 1`,
    )
    if (account === undefined) throw new Error('the file has no account with a key')
    const headers = {
      'x-client-id': account.client_id,
      'x-client-secret': account.client_secret,
      'x-api-key': account.key,
    }
    const tenant = { ...account, headers } as unknown as Tenant
    return { database, env: { DATABASE_URL: urlOf(connection), SECRETS_KEYS }, tenant, headers }
  }

  it('has migrations that nobody has edited since: a change of the schema is a new file', () => {
    const present = applied.map(({ name }) => known.find((migration) => migration.name === name))
    expect(present.map((migration) => ({ name: migration?.name, checksum: migration?.checksum }))).toEqual(
      applied,
    )
  })

  it('has rows of every table', async () => {
    const { database } = await createOld()
    const tables = await load<{ name: string }>(
      database,
      `select relname as name from pg_class where relkind in ('r', 'p') and not relispartition and relnamespace = 'public'::regnamespace`,
    )
    const filled = [...sql.matchAll(/^insert into (\w+) /gm)].map(([, name]) => name as string)
    const empty = { ...EMPTY, ...(isOf0_3 ? {} : EMPTY_SINCE_0_4) }
    expect(filled.concat(Object.keys(empty)).sort()).toEqual(tables.map(({ name }) => name).sort())
  })

  it('is upgraded, shows what was stored, and takes new deliveries', async () => {
    const { database, env, tenant, headers } = await upgrade()
    // As a process of 0.3.0 beside this one.
    await load(database, KEEP)
    expect(await load(database, 'select from kept_delivery')).toEqual([])

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
    expect(await list('segment=Guests')).toEqual(before.filter(({ tags }) => !tags.includes('vip')))
    expect((await service.deliver(tenant, [lineEvent('follow', randomUserId())])).status).toBe(200)
    const after = await list()
    expect(after.length).toBe(before.length + 1)
    expect(BigInt(after.at(-1)?.id ?? 0)).toBeGreaterThan(BigInt(before.at(-1)?.id ?? 0))

    for (const [command, expected] of [
      [
        'endpoints list',
        { condition: { tagsAll: ['vip'], lastSeenAfter: '30d' }, status: 'paused', pending: 1 },
      ],
      [
        'segments list',
        { name: 'Guests', condition: { tagsNone: ['vip'] }, sync: false, syncState: 'deleting' },
      ],
      ['jobs list', { kind: 'members.tag', status: 'done' }],
      ...(isOf0_3 ? [['jobs list', { kind: 'endpoint.resume', status: 'done' }] as const] : []),
      ['events list', { kind: 'follow' }],
      ['operators list', { email: 'ann@example.com', role: 'manager' }],
      ['notifications list', { name: 'Chat of slack', format: 'slack' }],
    ] as const)
      expect(await runJson(command.split(' '), env)).toContainEqual(expect.objectContaining(expected))
    expect((await runJson(['activity', 'list'], env)).length).toBeGreaterThan(3)
  })

  it('accepts the clients and operators that were accepted, and no others', async () => {
    const { database } = await upgrade()
    const service = await startApp(database)
    const clients = await load<{ name: string; secrets: string[]; id: string; key: string }>(
      database,
      `select c.name, array[c.client_secret, c.previous_client_secret] as secrets, c.client_id as id, k.key
         from api_client c join api_key k on k.api_client_id = c.id order by c.id`,
    )
    const accepted: string[] = []
    for (const { name, secrets, id, key } of clients)
      for (const secret of secrets.filter((each) => each !== null)) {
        const headers = { 'x-client-id': id, 'x-client-secret': secret, 'x-api-key': key }
        const { status, json } = await service.call('GET', '/api/audience', { headers })
        if (status === 200 && json !== null) accepted.push(name)
      }
    expect(accepted).toEqual(['Demo CRM', 'Rotated', 'Rotated', ...(isOf0_3 ? ['Ends later'] : [])])

    const { url } = await startConsole(database)
    const operator = new Operator(url)
    const signIn = async (name: string) =>
      (await operator.send('/sign-in', { email: `${name}@example.com`, password: PASSWORD })).status
    expect(await Promise.all(['olga', 'ann', 'vic', 'dan'].map(signIn))).toEqual([200, 401, 401, 401])
    operator.cookie = `oa-audience-console=${SESSION}`
    const { json } = await operator.get('/api/operators')
    expect(json.operators).toMatchObject(
      [
        { name: 'Ann', role: 'manager', status: 'active', organizationIds: null },
        { name: 'Olga', role: 'owner', status: 'active', organizationIds: null },
        { name: 'Vic', role: 'viewer', status: 'active', organizationIds: ['1'] },
        { name: 'Dan', role: 'manager', status: 'disabled', organizationIds: null },
      ].map((each) => expect.objectContaining(each)),
    )
  })

  it('keeps erased people erased, completes open erasures, and records them in a ledger', async () => {
    const { database, env, tenant, headers } = await upgrade()
    const service = await startApp(database)
    const past = { timestamp: Date.parse('2026-11-01') }
    for (const userId of [ERASED, LEAVING]) await service.deliver(tenant, [lineEvent('follow', userId, past)])
    expect(await service.member(tenant, ERASED)).toBeUndefined()
    await finishErasures(database)
    expect(await load(database, 'select from pending_erasure')).toEqual([])
    const events = await load(
      database,
      'select from event where user_id = $1 and received_at < now() - interval $$1 minute$$',
      [LEAVING],
    )
    expect(events).toEqual([])

    const directory = temporaryDirectory()
    await new ErasureLedger(directory).recordAll(database)
    const status = await runJson(['erasures', 'status'], { ...env, ERASURE_LEDGER: directory })
    expect(status).toMatchObject({ notRecorded: 0, lost: 0 })
    expect(await load(database, 'select from unrecorded_revocation')).toEqual([])
    // From before a restore of the database.
    const feed = async (since: string) =>
      (await service.call('GET', `/api/audience?updatedSince=${since}`, { headers })).status
    expect([await feed('2026-11-20T00:30:00Z'), await feed('2026-11-21T00:00:00Z')]).toEqual([410, 200])
  })

  it('reads encrypted secrets, sends each open delivery and notification once, and keeps mutes', async () => {
    const { database, env } = await upgrade()
    const { unreadable, counts } = await examineSecrets(database)
    expect(unreadable).toEqual([])
    expect(counts.map(({ keyId }) => keyId)).toContain('fixture')

    const receiver = await startReceiver()
    await load(database, `update endpoint set url = $1 || '?' || id, allow_private_network = true`, [
      receiver.url,
    ])
    const paused = (await runJson(['endpoints', 'list'], env)).find(
      ({ status }: { status: string }) => status === 'paused',
    )
    await runJson(['endpoints', 'resume', paused.id], env)
    await runJson(['endpoints', 'retry', paused.id], env)
    await finishJobs(database, { kinds: ['endpoint.retry'] })
    const sender = new Sender(database, () => false)
    sender.start()
    onTestFinished(() => sender.stop())
    await eventually(
      () => load(database, 'select from endpoint_delivery'),
      (rows) => rows.length === 0,
    )
    expect(receiver.received.map(({ path }) => path)).toEqual(Array(2).fill(`/webhook?${paused.id}`))

    await load(
      database,
      `update notification_channel set target = $1, format = 'webhook', allow_private_network = true`,
      [`${receiver.url}?notified`],
    )
    startOutbox(database)
    await eventually(
      () => load(database, 'select from notification where sent_at is null'),
      (rows) => rows.length === 0,
    )
    const notified = receiver.received.filter(({ path }) => path.endsWith('notified'))
    expect(notified.map(({ body }) => JSON.parse(body).type)).toEqual(['account.status'])

    await storeStatuses(database, null, Date.now())
    const { stdout } = await runCommand(['fleet', '--json'], env)
    const muted = JSON.parse(stdout).map(({ name, problems }: Fleet) => [name, problems[0]?.muted?.reason])
    expect(muted.filter(([, reason]: [string, string?]) => reason)).toEqual([['Muted', 'closed']])
  })

  it('continues the jobs that were running', async () => {
    const { database, tenant } = await upgrade()
    const service = await startApp(database)
    const receiver = await startReceiver()
    await load(database, `update endpoint set url = $1 || '?' || id, allow_private_network = true`, [
      receiver.url,
    ])
    const sender = new Sender(database, () => false)
    sender.start()
    onTestFinished(() => sender.stop())
    await eventually(
      async () => {
        await endWaitsOfJobs(database)
        await finishJobs(database, { onQueued: (endpointId) => sender.expect([endpointId]) })
        return load(database, `select kind from job where status = 'running'`)
      },
      (running) => running.length === 0,
    )
    expect(await load(database, 'select kind, status, reason from job where status <> $1', ['done'])).toEqual(
      [],
    )
    const tags = (await service.members(tenant)).map(({ tags, attributes }) => ({ tags, attributes }))
    expect(tags).toContainEqual({ tags: ['vip', 'upgraded'], attributes: { cups: 3 } })
    expect(tags).toContainEqual({ tags: [], attributes: { imported: true } })
    expect(await load(database, 'select from event where failure = $1', ['for once'])).toEqual([])
    const mutes = await load(
      database,
      `select mute_reason from account_check where mute_reason is not null order by 1`,
    )
    expect(mutes).toEqual([{ mute_reason: 'by a job' }, { mute_reason: 'closed' }])
    const members = await load(database, 'select from audience_member where channel_oa_id = 1')
    const received = (id: number) => receiver.received.filter(({ path }) => path.endsWith(`?${id}`))
    expect(received(3).length).toBeGreaterThanOrEqual(members.length)
    expect(received(1).length).toBeGreaterThan(0)
  })

  it.runIf(isOf0_3)(
    'keeps clients and keys refused that had expired, and names those that no longer end by themselves',
    async () => {
      const { database, env } = await createOld()
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
      expect(await load(database, 'select kind, object_id from unrecorded_revocation order by kind')).toEqual(
        [
          { kind: 'client', object_id: endedClient.clientRowId },
          { kind: 'key', object_id: endedKey.keyId },
        ],
      )
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
    },
  )
})
