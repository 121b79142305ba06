/** DATABASE_URL names one server, or several in libpq's form. */
import { chmodSync, mkdirSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:net'
import { join } from 'node:path'
import { afterAll, beforeEach, expect, it, onTestFinished, vi } from 'vitest'
import {
  addressForPrograms,
  parseDatabaseUrl,
  parseReplicasUrl,
  warnOfParameters,
} from '../../src/config/database-url.ts'
import { temporaryDirectory } from '../support/process.ts'

const serversOf = (text: string) =>
  parseDatabaseUrl(text).servers.map(({ name, settings }) => {
    const { host, port, user, password, database } = settings
    return { name, host, port, user, password, database }
  })

const common = { user: 'me', password: 'p@ss,word', database: 'oa' }
const login = 'postgres://me:p%40ss%2Cword@'

const db1 = { ...common, name: 'db1:5432', host: 'db1', port: 5432 }
const db2 = { ...common, name: 'db2:5433', host: 'db2', port: 5433 }

it.each([
  `${login}db1,db2:5433/oa?target_session_attrs=read-write`,
  `${login}db1:5432,db2:5433/oa?load_balance_hosts=disable&target_session_attrs=read-write`,
  `${login}/oa?host=db1,db2&port=5432,5433&target_session_attrs=read-write`,
  `${login}other/oa?target_session_attrs=read-write&host=db1,db2&port=5432,5433`,
])('a URL with several hosts names each server in order: %s', (text) => {
  expect(parseDatabaseUrl(text).mustWrite).toBe(true)
  expect(serversOf(text)).toEqual([db1, db2])
})

it('a URL with several hosts may name IPv6 addresses and directories of sockets', () => {
  const servers = serversOf('postgres://[::1]:5433,%2Frun%2Fpostgresql/oa?target_session_attrs=read-write')
  expect(servers.map(({ host, port }) => [host, port])).toEqual([
    ['::1', 5433],
    ['/run/postgresql', 5432],
  ])
})

it.each([
  [`${login}db1/oa`, ['db1:5432']],
  [`${login}db1,db2:5433/oa?target_session_attrs=any`, ['db1:5432', 'db2:5433']],
  ['postgres:///oa?host=%2Frun%2Fpostgresql&port=6000', ['/run/postgresql:6000']],
])('a URL of replicas names each of them: %s', (text, names) => {
  expect(parseReplicasUrl(text).map(({ name }) => name)).toEqual(names)
  for (const { settings } of parseReplicasUrl(text)) expect(settings.database).toBe('oa')
})

it.each([
  ['postgres://a,b/oa?target_session_attrs=standby', /target_session_attrs/],
  ['postgres://a,/oa', /an empty host/],
])('a URL of replicas is refused: %s', (text, reason) => {
  expect(() => parseReplicasUrl(text)).toThrow(reason)
})

const home = temporaryDirectory()
const file = (name: string, mode = 0o600, directory = home) => {
  const path = join(directory, name)
  writeFileSync(path, name, { mode })
  chmodSync(path, mode)
  return path
}
const [ca, cert, key, open] = [file('ca'), file('cert'), file('key'), file('open', 0o644)]
const personal = temporaryDirectory()
const ofPerson = join(personal, '.postgresql')
mkdirSync(ofPerson)
for (const name of ['root.crt', 'postgresql.crt', 'postgresql.key']) file(name, 0o600, ofPerson)

beforeEach(() => void vi.stubEnv('HOME', home).stubEnv('SSL_CERT_FILE', ca))
afterAll(() => void vi.unstubAllEnvs())

/** Which certificates the service accepts, and whether it continues in plain text. */
function tlsOf(text: string): string {
  const [server] = parseDatabaseUrl(text).servers
  const ssl = server?.settings.ssl
  if (!ssl || ssl === true) return 'plain'
  const accepted = ssl.rejectUnauthorized ? (ssl.checkServerIdentity ? 'any name' : 'this name') : 'any'
  const others = [ssl.cert && 'own certificate', server?.isTlsOptional && 'or plain']
  return [accepted, ...others].filter(Boolean).join(', ')
}

const parametersOf = (text: string) =>
  Object.fromEntries(new URLSearchParams(addressForPrograms(text).address.split('?')[1]))

const address = { host: 'db', port: '5432', dbname: 'oa' }

/** The parameters of the URL, variables, what the service accepts, and what pg_dump and pg_restore get. */
const FORMS: Array<[query: string, env: Record<string, string>, tls: string, given: Record<string, string>]> =
  [
    ['', {}, 'any, or plain', { sslmode: 'prefer' }],
    ['sslmode=disable', {}, 'plain', { sslmode: 'disable' }],
    ['sslmode=allow', {}, 'any, or plain', { sslmode: 'allow' }],
    ['sslmode=prefer', {}, 'any, or plain', { sslmode: 'prefer' }],
    ['sslmode=require', {}, 'any', { sslmode: 'require' }],
    ['ssl=true', {}, 'any', { sslmode: 'require' }],
    [`sslmode=require&sslrootcert=${ca}`, {}, 'any name', { sslmode: 'require', sslrootcert: ca }],
    [`sslmode=verify-ca&sslrootcert=${ca}`, {}, 'any name', { sslmode: 'verify-ca', sslrootcert: ca }],
    [`sslmode=verify-full&sslrootcert=${ca}`, {}, 'this name', { sslmode: 'verify-full', sslrootcert: ca }],
    ['sslmode=verify-full', {}, 'this name', { sslmode: 'verify-full', sslrootcert: ca }],
    ['sslrootcert=system', {}, 'this name', { sslmode: 'verify-full', sslrootcert: ca }],
    [
      '',
      { PGSSLMODE: 'verify-ca', PGSSLROOTCERT: ca },
      'any name',
      { sslmode: 'verify-ca', sslrootcert: ca },
    ],
    [
      `sslmode=require&sslcert=${cert}`,
      { PGSSLKEY: key },
      'any, own certificate',
      { sslmode: 'require', sslcert: cert, sslkey: key },
    ],
    [
      'sslmode=require',
      { HOME: personal },
      'any name, own certificate',
      {
        sslmode: 'require',
        sslrootcert: join(ofPerson, 'root.crt'),
        sslcert: join(ofPerson, 'postgresql.crt'),
        sslkey: join(ofPerson, 'postgresql.key'),
      },
    ],
  ]

it.each(FORMS)('with "%s" and %o, service and pg_dump do the same: %s', (query, env, tls, given) => {
  for (const [name, value] of Object.entries(env)) vi.stubEnv(name, value)
  onTestFinished(() => void vi.unstubAllEnvs())
  const url = `postgres://db/oa?${query}`
  expect(tlsOf(url)).toBe(tls)
  expect(parametersOf(url)).toEqual({ ...address, ...given })
})

it.each([
  ['sslmode=no-verify', /an sslmode that libpq lacks: use disable, allow,/],
  ['sslmode=verify-ca', /verify-ca, which needs sslrootcert/],
  ['sslmode=require&sslrootcert=system', /sslrootcert=system, which needs sslmode=verify-full/],
  ['sslrootcert=/missing.pem', /the file \/missing\.pem in sslrootcert, which cannot be read: no such file/],
  [`sslrootcert=${home}`, /in sslrootcert, which cannot be read: illegal operation on a directory/],
  [`sslcert=${cert}`, /sslcert, but not sslkey/],
  [`sslcert=${cert}&sslkey=/missing.key`, /the file \/missing\.key in sslkey, which cannot be read/],
  [`sslcert=${cert}&sslkey=${open}`, /in sslkey, which other users can read: run chmod 600/],
  ['sslmode=require&channel_binding=require', /needs sslmode=verify-full/],
  ['ssl=false', /can only be true: use sslmode/],
  ['sslrootcrt=/ca.pem', /the parameter sslrootcrt, which is not supported/],
  ['sslaccept=strict', /the parameter sslaccept, which is not supported: .* sslmode and sslrootcert/],
  ['gssencmode=require', /the parameter gssencmode, which is not supported/],
  ['require_auth=scram-sha-256', /the parameter require_auth, which is not supported/],
  ['passfile=/x', /the parameter passfile, which is not supported: set PGPASSFILE/],
  ['hostaddr=10.0.0.1', /the parameter hostaddr, which is not supported: name the hosts/],
  ['schema=crm', /the parameter schema, which is not supported: write options=-c%20search_path%3DNAME/],
  ['connect_timeout=soon', /a connect_timeout that is not a number/],
  ['p%C3%A4ss=word', /must be a postgres:\/\/ URL/],
])('is refused with %s, before a connection or a backup fails', (query, reason) => {
  expect(() => parseDatabaseUrl(`postgres://db/oa?${query}`)).toThrow(reason)
})

it.each([
  ['pgbouncer=true', ['pgbouncer']],
  ['connection_limit=5&pool_timeout=10', ['connection_limit', 'pool_timeout']],
  ['uselibpqcompat=true&schema=public', ['uselibpqcompat', 'schema']],
  ['supa=base-pooler.x&statement_cache_size=0', ['supa', 'statement_cache_size']],
  ['gssencmode=disable&keepalives_idle=30', []],
])('ignores parameters of other drivers, and reports them: %s', (query, ignored) => {
  const url = `postgres://db/oa?${query}&sslmode=disable`
  const reported: string[] = []
  warnOfParameters(url, (message) => reported.push(message))
  const names = `DATABASE_URL has parameters of other drivers, which are ignored: ${ignored.join(', ')}`
  expect(reported).toEqual(ignored.length > 0 ? [names] : [])
  expect(parametersOf(url)).toEqual({ ...address, sslmode: 'disable' })
})

it('reports sslmode=require without sslrootcert, which verifies nothing', () => {
  const reported: string[] = []
  for (const query of ['require', `require&sslrootcert=${ca}`, 'verify-full', 'prefer'])
    warnOfParameters(`postgres://db/oa?sslmode=${query}`, (message) => reported.push(`${query}: ${message}`))
  expect(reported).toEqual([expect.stringMatching(/^require: sslmode=require of DATABASE_URL verifies no/)])
})

it('has the name, the time limit and the options of connections, in which a plus sign is not a space', () => {
  const url = 'postgres://db/oa?application_name=crm&connect_timeout=1&options=-c%20search_path%3Da+b'
  const settings = {
    application_name: 'crm',
    connectionTimeoutMillis: 2_000,
    options: '-c search_path=a+b',
  }
  expect(parseDatabaseUrl(url).servers[0]?.settings).toMatchObject(settings)
  expect(addressForPrograms(url).address).toContain('options=-c%20search_path%3Da%2Bb&')
  const [unlimited] = parseDatabaseUrl('postgres://db/oa?connect_timeout=0').servers
  expect(unlimited?.settings).not.toHaveProperty('connectionTimeoutMillis')
})

it('without a host, leads to that of PGHOST, or else to the directory of a socket that exists', async () => {
  const directory = temporaryDirectory()
  const nameOf = (text: string) => parseDatabaseUrl(text).servers[0]?.name
  vi.stubEnv('PGHOST', directory).stubEnv('PGPORT', '6000')
  expect(nameOf('postgres:///oa')).toBe(`${directory}:6000`)
  expect(nameOf('postgres://db:1/oa')).toBe('db:1')
  vi.stubEnv('PGHOST', '').stubEnv('PGPORT', '')
  const port = 10_000 + (process.pid % 50_000)
  expect(nameOf(`postgres://:${port}/oa`)).toBe(`localhost:${port}`)
  const server = createServer().listen(`/tmp/.s.PGSQL.${port}`)
  onTestFinished(() => void server.close())
  await expect.poll(() => nameOf(`postgres://:${port}/oa`)).toBe(`/tmp:${port}`)
  expect(tlsOf(`postgres://:${port}/oa?sslmode=verify-full`)).toBe('plain')
})

it.each([
  ['postgres://me:p%40ss@db:5432/oa', { ...address, user: 'me' }, 'p@ss'],
  [
    'postgres://me:a:b%2F@a,b:1/oa?target_session_attrs=read-write',
    { user: 'me', host: 'a,b', port: '5432,1', target_session_attrs: 'read-write' },
    'a:b/',
  ],
  ['postgresql:///oa?user=me&password=x%26y&host=%2Frun', { user: 'me', host: '/run' }, 'x&y'],
  ['postgres://me:%zz@db/oa', { user: 'me' }, '%zz'],
  ['postgres://db/oa?dbname=other', { dbname: 'other' }, null],
])('the arguments of pg_dump have no password: %s', (url, parameters, password) => {
  expect(parametersOf(url)).toMatchObject(parameters)
  expect(parametersOf(url)).not.toHaveProperty('password')
  expect(addressForPrograms(url).password).toBe(password)
})
