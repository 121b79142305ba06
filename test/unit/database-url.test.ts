/** DATABASE_URL names one server, or several in libpq's form. */
import { parse } from 'pg-connection-string'
import { expect, it } from 'vitest'
import { parseDatabaseUrl, parseReplicasUrl, splitPassword } from '../../src/config/database-url.ts'

const serversOf = (text: string) =>
  parseDatabaseUrl(text).servers.map(({ name, url }) => {
    const { host, port, user, password, database, ...others } = parse(url)
    return { name, host, port, user, password, database, ...others }
  })

const common = { user: 'me', password: 'p@ss,word', database: 'oa' }
const login = 'postgres://me:p%40ss%2Cword@'

const db1 = { ...common, name: 'db1:5432', host: 'db1', port: '5432' }
const db2 = { ...common, name: 'db2:5433', host: 'db2', port: '5433' }

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
    ['::1', '5433'],
    ['/run/postgresql', '5432'],
  ])
})

it('a URL with several hosts keeps the other parameters for each server, so TLS verifies the host that is connected to', () => {
  const text = `${login}db1,db2:5433/oa?sslmode=verify-full&target_session_attrs=read-write`
  const tls = { sslmode: 'verify-full', ssl: {} }
  expect(serversOf(text)).toEqual([
    { ...db1, ...tls },
    { ...db2, ...tls },
  ])
})

it.each([
  'postgres://me:secret@db:5432/oa',
  'postgresql://me@/oa?host=%2Frun%2Fpostgresql&port=5432',
  'postgres:///oa',
])('a URL with one host is used as it is: %s', (url) => {
  const { servers, mustWrite } = parseDatabaseUrl(url)
  expect(mustWrite).toBe(false)
  expect(servers.map((server) => server.url)).toEqual([url])
})

it.each([
  [`${login}db1/oa`, ['db1:5432']],
  [`${login}db1,db2:5433/oa?target_session_attrs=any`, ['db1:5432', 'db2:5433']],
  ['postgres:///oa?host=%2Frun%2Fpostgresql&port=6000', ['/run/postgresql:6000']],
])('a URL of replicas names each of them: %s', (text, names) => {
  expect(parseReplicasUrl(text).map(({ name }) => name)).toEqual(names)
  for (const { url } of parseReplicasUrl(text)) expect(parse(url).database).toBe('oa')
})

it.each([
  ['postgres://a,b/oa?target_session_attrs=standby', /target_session_attrs/],
  ['postgres://a,/oa', /an empty host/],
])('a URL of replicas is refused: %s', (text, reason) => {
  expect(() => parseReplicasUrl(text)).toThrow(reason)
})

it.each([
  ['postgres://me:p%40ss@db:5432/oa', 'postgres://me@db:5432/oa', 'p@ss'],
  [
    'postgres://me:a:b%2F@a,b:1/oa?target_session_attrs=any',
    'postgres://me@a,b:1/oa?target_session_attrs=any',
    'a:b/',
  ],
  ['postgresql:///oa?user=me&password=x%26y&host=%2Frun', 'postgresql:///oa?user=me&host=%2Frun', 'x&y'],
  ['postgres://db/oa?options=-c%20a%3Db', 'postgres://db/oa?options=-c%20a%3Db', null],
])('the arguments of pg_dump have no password: %s', (url, address, password) => {
  expect(splitPassword(url)).toEqual({ address, password })
})
