/** DATABASE_URL against a PostgreSQL with TLS and an authority of its own: each form in the service, doctor, backup and restore. */
import { chownSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { beforeAll, beforeEach, describe, expect, it, vi } from 'vitest'
import { type DatabaseServer, parseReplicasUrl } from '../../src/config/database-url.ts'
import { Connector } from '../../src/postgres/pool/connector.ts'
import { migrate } from '../../src/postgres/schema/migrate.ts'
import type { ReplicatedPostgres } from '../../tools/simulator/replicated-postgres.ts'
import { canMakeCertificates, makeAuthority } from '../support/certificates.ts'
import { findingsOf, runCommand } from '../support/command.ts'
import { openDatabase } from '../support/database.ts'
import { DEBIAN_POSTGRES, hasDebianPostgres, startCluster } from '../support/debian-postgres.ts'
import { NO_LIMITS, runProgramAsync, startHealthy, temporaryDirectory } from '../support/process.ts'

const isTestable =
  hasDebianPostgres('DATABASE_URL with TLS is') && canMakeCertificates('DATABASE_URL with TLS is')

const PASSWORD = 'p/w?#é%'
const LOGIN = `app:${encodeURIComponent(PASSWORD)}`

/** `app` must use TLS except for the database `plain`, and `device` logs in by its certificate. */
const ACCESS = `
local all all trust
host all postgres 127.0.0.1/32 trust
host plain app 127.0.0.1/32 scram-sha-256
hostssl all app 127.0.0.1/32 scram-sha-256
hostssl device device 127.0.0.1/32 cert
`

const files = temporaryDirectory()
const path = (name: string) => join(files, name)
/** Debian's server runs as nobody if the tests run as root. */
const NOBODY = 65_534
const isRoot = process.getuid?.() === 0

function saveForServer(name: string, text: string): void {
  writeFileSync(path(name), text, { mode: 0o600 })
  if (isRoot) chownSync(path(name), NOBODY, NOBODY)
}

describe.skipIf(!isTestable)('DATABASE_URL of a server with TLS', () => {
  const sockets = temporaryDirectory()
  let cluster: ReplicatedPostgres
  let port = 0
  let created = 0

  const ask = (sql: string) => cluster.primary.ask(sql)
  const urlOf = (query: string, { database = 'oa', host = 'localhost', login = LOGIN } = {}) =>
    `postgres://${login}@${host}:${port}/${database}?${query}`

  async function createDatabase(): Promise<string> {
    created += 1
    await ask(`create database db${created} owner app`)
    return `db${created}`
  }

  async function backUp(url: string) {
    const directory = join(temporaryDirectory(), 'backup')
    return { directory, ...(await runCommand(['backup', directory], { DATABASE_URL: url })) }
  }

  async function examine(url: string) {
    const findings = await findingsOf({ DATABASE_URL: url })
    return findings.filter(({ check }) => /^(database|migrations|role .*)$/.test(check))
  }

  beforeAll(async () => {
    const authority = makeAuthority()
    writeFileSync(path('ca.pem'), authority.authority)
    writeFileSync(path('other.pem'), makeAuthority().authority)
    const [server, client] = [authority.issue('localhost'), authority.issue('device')]
    writeFileSync(path('device.pem'), client.cert)
    writeFileSync(path('device.key'), client.key, { mode: 0o600 })
    if (isRoot) for (const directory of [files, sockets]) chownSync(directory, NOBODY, NOBODY)
    saveForServer('server.crt', server.cert)
    saveForServer('server.key', server.key)
    saveForServer('access.conf', ACCESS)
    const settings = {
      ...{
        ssl: 'on',

        hba_file: path('access.conf'),
        unix_socket_directories: `${sockets},/tmp`,
      },
      ...{ ssl_cert_file: path('server.crt'), ssl_key_file: path('server.key'), ssl_ca_file: path('ca.pem') },
    }
    const lines = Object.entries(settings).map(([name, value]) => `${name} = '${value}'`)
    cluster = await startCluster(0, lines.join('\n'))
    port = cluster.primary.port
    await ask(`create role app login password '${PASSWORD}'`)
    await ask('create role device login')
    for (const [name, owner] of Object.entries({ oa: 'app', plain: 'app', device: 'device' }))
      await ask(`create database ${name} owner ${owner}`)
    for (const [query, where] of [
      ['', {}],
      ['', PLAIN],
      [device, DEVICE],
    ] as const)
      await migrate(openDatabase(urlOf(`sslmode=require&${query}`, where)))
  })
  beforeEach(() => {
    vi.stubEnv('PATH', `${DEBIAN_POSTGRES}:${process.env.PATH}`)
    return () => void vi.unstubAllEnvs()
  })

  const ca = path('ca.pem')
  const unverified = /Set sslrootcert=FILE in DATABASE_URL .* docs\/operate\/managed-postgresql\.md/
  const PLAIN = { database: 'plain' }
  const DEVICE = { database: 'device', login: 'device' }
  const NAMED_OTHERWISE = { host: '127.0.0.1' }
  const device = `sslcert=${path('device.pem')}&sslkey=${path('device.key')}`

  /** The form, what differs from the usual URL, variables, and why it is refused. */
  type Form = [
    query: string,
    where: { database?: string; host?: string; login?: string },
    env: Record<string, string>,
    refusal?: RegExp,
  ]
  const FORMS: Form[] = [
    ['', {}, {}],
    ['sslmode=disable', PLAIN, {}],
    ['sslmode=disable', {}, {}, /no encryption\. Set sslmode=verify-full or sslmode=require/],
    ['sslmode=allow', {}, {}],
    ['sslmode=prefer', {}, {}],
    ['sslmode=require', NAMED_OTHERWISE, {}],
    [`sslmode=require&sslrootcert=${path('other.pem')}`, {}, {}, unverified],
    [`sslmode=verify-ca&sslrootcert=${ca}`, NAMED_OTHERWISE, {}],
    [`sslmode=verify-full&sslrootcert=${ca}`, {}, {}],
    [`sslmode=verify-full&sslrootcert=${ca}`, NAMED_OTHERWISE, {}, /or set sslmode=verify-ca/],
    ['sslrootcert=system&channel_binding=require', {}, { SSL_CERT_FILE: ca }],
    ['sslmode=verify-full', {}, {}, unverified],
    ['sslmode=verify-full', {}, { PGSSLROOTCERT: ca }],
    [`sslmode=verify-full&sslrootcert=${ca}&${device}`, DEVICE, {}],
    [
      'sslmode=verify-full&sslrootcert=/missing.pem',
      {},
      {},
      /\/missing\.pem in sslrootcert, which cannot be read/,
    ],
  ]

  it.each(FORMS)(
    'service, doctor, backup and restore agree on %s, %o, %o',
    async (query, where, env, refusal) => {
      for (const [name, value] of Object.entries(env)) vi.stubEnv(name, value)
      const url = urlOf(query, where)
      if (refusal !== undefined) {
        const { stderr } = await runCommand(['accounts', 'list'], { DATABASE_URL: url })
        expect(stderr).toMatch(refusal)
        expect((await backUp(url)).stderr).toMatch(refusal)
        if (!query.includes('missing'))
          expect(await examine(url)).toMatchObject([{ message: expect.stringMatching(refusal) }])
        return
      }
      expect(await openDatabase(url).state()).toBe('up')
      const severities = (await examine(url)).map(({ severity }) => severity)
      expect(severities).toEqual([...(query === 'sslmode=require' ? ['warning'] : []), 'ok', 'ok'])
      const { directory, status, stderr } = await backUp(url)
      expect(status, stderr).toBe(0)
      // No other database has its rule of access.
      const { database = await createDatabase(), login = 'app' } = where
      if (where.database !== undefined) {
        await ask(`drop database ${database} with (force)`)
        await ask(`create database ${database} owner ${login}`)
      }
      const empty = urlOf(query, { ...where, database })
      const restored = await runCommand(['restore', directory], { DATABASE_URL: empty })
      expect(restored.status, restored.stderr).toBe(0)
    },
  )

  it.each([
    (directory: string) => [`postgres://app@/oa?host=${encodeURIComponent(directory)}&port=${port}`, {}],
    (directory: string) => [
      `postgres://app@${encodeURIComponent(directory)}:${port}/oa?sslmode=verify-full`,
      {},
    ],
    (directory: string) => ['postgres:///oa?user=app', { PGHOST: directory, PGPORT: String(port) }],
    () => [`postgres://app@:${port}/oa`, {}],
  ] as Array<(directory: string) => [url: string, env: Record<string, string>]>)(
    'a socket in a directory serves the service, doctor, backup and restore: %s',
    async (form) => {
      const [url, env] = form(sockets)
      for (const [name, value] of Object.entries(env)) vi.stubEnv(name, value)
      expect(await openDatabase(url).state()).toBe('up')
      expect(await examine(url)).toMatchObject([{ severity: 'ok' }, { severity: 'ok' }])
      const { directory, status, stderr } = await backUp(url)
      expect(status, stderr).toBe(0)
      const empty = url.replace('/oa?', `/${await createDatabase()}?`).replace(/\/oa$/, `/db${created}`)
      expect((await runCommand(['restore', directory], { DATABASE_URL: empty })).stderr).toBe('')
    },
  )

  it('parameters of the connection have their meaning, and those of other drivers are reported and ignored', async () => {
    const ofOthers = 'pgbouncer=true&connection_limit=5&pool_timeout=10&uselibpqcompat=true&schema=public'
    const options = 'application_name=crm&connect_timeout=10&options=-c%20work_mem%3D5MB'
    const url = urlOf(`sslmode=require&${ofOthers}&${options}`)
    const [row] = await openDatabase(url).query(
      `select current_setting('application_name') as name, current_setting('work_mem') as memory, ssl
         from pg_stat_ssl where pid = pg_backend_pid()`,
    )
    expect(row).toEqual({ name: 'crm', memory: '5MB', ssl: true })
    const names = 'pgbouncer, connection_limit, pool_timeout, uselibpqcompat, schema'
    const message = `DATABASE_URL has parameters of other drivers, which are ignored: ${names}`
    expect(await examine(url)).toMatchObject([{}, { severity: 'warning', message }, {}, {}])
    const { status, stderr } = await backUp(url)
    expect(status, stderr).toBe(0)
    const service = await startHealthy({ DATABASE_URL: url, ...NO_LIMITS })
    expect(service.output()).toContain(message)
  })

  it("a service whose URL names a missing file says so and exits, and libpq's variables apply to one that starts", async () => {
    const missing = { DATABASE_URL: urlOf('sslmode=verify-full&sslrootcert=/missing.pem') }
    const { status, stderr } = await runProgramAsync(['serve'], missing)
    expect([status, stderr]).toEqual([
      1,
      'oa-audience: DATABASE_URL names the file /missing.pem in sslrootcert, which cannot be read: no such file or directory (ENOENT)\n',
    ])
    await startHealthy({ DATABASE_URL: urlOf('sslmode=verify-full'), PGSSLROOTCERT: ca, ...NO_LIMITS })
  })

  it('the certificate of a replica is verified like that of the primary', async () => {
    const connect = async (where: Form[1]) => {
      const url = urlOf(`sslmode=verify-full&sslrootcert=${ca}`, where)
      const [replica] = parseReplicasUrl(url) as [DatabaseServer]
      const client = await new Connector(replica).openSession()
      await client.end()
    }
    await connect({})
    await expect(connect(NAMED_OTHERWISE)).rejects.toMatchObject({
      cause: { code: 'ERR_TLS_CERT_ALTNAME_INVALID' },
    })
  })

  it('prefer and allow continue in plain text if the server has no TLS, and require is refused', async () => {
    await ask('alter system set ssl = off')
    await ask('select pg_reload_conf()')
    try {
      await expect.poll(() => ask('show ssl')).toBe('off')
      for (const query of ['', 'sslmode=allow']) {
        const [row] = await openDatabase(urlOf(query, PLAIN)).query(
          'select ssl from pg_stat_ssl where pid = pg_backend_pid()',
        )
        expect(row).toEqual({ ssl: false })
        expect((await backUp(urlOf(query, PLAIN))).status).toBe(0)
      }
      const refusal = /Turn TLS on there, or set sslmode=disable in DATABASE_URL/
      expect((await backUp(urlOf('sslmode=require', PLAIN))).stderr).toMatch(refusal)
    } finally {
      await ask('alter system reset ssl')
      await ask('select pg_reload_conf()')
      await expect.poll(() => ask('show ssl')).toBe('on')
    }
  })

  const page = readFileSync('docs/operate/managed-postgresql.md', 'utf8')
  const providers = [...page.matchAll(/^\| ([\w ]+) \| `(sslmode=.+?)` \|/gm)].map(([, ...cells]) => cells)

  it('the page has a URL for each of five providers', () => {
    expect(page).toContain('postgres://USER:PASSWORD@HOST:5432/DATABASE?PARAMETERS')
    expect(providers.map(([name]) => name)).toEqual([
      ...['Amazon RDS', 'Google Cloud SQL', 'Azure', 'Supabase', 'Neon'],
    ])
  })

  it.each(providers)(
    'service, doctor and backup use the URL of the page for %s: %s',
    async (name, text = '') => {
      // An authority of the machine.
      vi.stubEnv('SSL_CERT_FILE', ca)
      const parameters = text.replace(/sslrootcert=[^&]+/, `sslrootcert=${ca}`)
      const url = urlOf(parameters, name === 'Google Cloud SQL' ? NAMED_OTHERWISE : {})
      expect(await openDatabase(url).state()).toBe('up')
      expect(await examine(url)).toMatchObject([{ severity: 'ok' }, { severity: 'ok' }])
      const { status, stderr } = await backUp(url)
      expect(status, stderr).toBe(0)
    },
  )

  it('a backup of a schema that an administrator created is restored into one, and stays closed to the roles of default privileges', async () => {
    vi.stubEnv('SSL_CERT_FILE', ca)
    const [from, to] = [await createDatabase(), await createDatabase()]
    const inSchema = (database: string) =>
      urlOf('sslrootcert=system&options=-c%20search_path%3Doa', { database })
    const run = (database: string, sql: string) => cluster.primary.ask(sql, database)
    await ask('create role anon')
    for (const database of [from, to]) {
      await ask(`alter database ${database} owner to postgres`)
      await run(database, 'create schema auth; create table auth.users ()')
      await run(database, 'alter default privileges for role app grant all on tables to anon')
    }
    await run(from, 'create schema oa authorization app; grant usage on schema oa to public')
    await migrate(openDatabase(inSchema(from)))
    const { directory, status, stderr } = await backUp(inSchema(from))
    expect(status, stderr).toBe(0)
    const restore = () => runCommand(['restore', directory], { DATABASE_URL: inSchema(to) })
    expect((await restore()).stderr).toBe(
      'oa-audience: the backup has its tables in the schema oa, but DATABASE_URL leads to none. Let an administrator create ' +
        'the schema for the database user, and run `alter role … set search_path = oa`.\n',
    )
    await run(to, 'create schema oa authorization app; grant usage on schema oa to public')
    const restored = await restore()
    expect(restored.status, restored.stderr).toBe(0)
    expect(await examine(inSchema(to))).toMatchObject([{ severity: 'ok' }, { severity: 'ok' }])
    const shared = `select count(*) from pg_class where relnamespace = 'oa'::regnamespace and relacl::text ~ 'anon'`
    expect(await run(to, shared)).toBe('0')
    expect((await restore()).stderr).toContain('the schema oa of DATABASE_URL is not empty')
    await run(to, 'grant select on all tables in schema oa to anon')
    expect(await examine(inSchema(to))).toMatchObject([
      {},
      {},
      { check: 'role anon', message: expect.stringContaining('in schema oa from anon') },
    ])
  })
})
