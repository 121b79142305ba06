/** Invalid variables are reported by name and without their values. */
import { execFileSync } from 'node:child_process'
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, it } from 'vitest'
import { describeVariables, readConfig } from '../../src/config/config.ts'
import { FatalError } from '../../src/errors.ts'
import { temporaryDirectory, writeTemporaryFile } from '../support/process.ts'

function faultsOf(env: Record<string, string>): string[] {
  try {
    readConfig(env)
    return []
  } catch (error) {
    expect(error).toBeInstanceOf(FatalError)
    return (error as Error).message.split('\n')
  }
}

const NAMES = [
  ...['PORT', 'HOST', 'WEB_CONCURRENCY', 'DATABASE_URL', 'DATABASE_READ_URL', 'READ_MAX_LAG_MS'],
  ...['DATA_DIR', 'PUBLIC_URL', 'REDIS_URL'],
  ...['RATE_LIMIT_MAX', 'RATE_LIMIT_WINDOW_MS', 'RATE_LIMIT_SPARE_SIGNED', 'TRUST_PROXY'],
  ...['LINE_API_URL', 'EGRESS_PROXY', 'LOG_LEVEL', 'METRICS_PORT', 'CONSOLE_PORT', 'CONSOLE_TOKEN'],
  ...['CONSOLE_USER_HEADER', 'CONSOLE_URL', 'SMTP_URL', 'HEARTBEAT_URL'],
  ...['SECRETS_KEYS', 'ERASURE_LEDGER'],
  ...['RETENTION_DAYS', 'DEDUPLICATION_DAYS', 'AUDIT_RETENTION_DAYS', 'TRACKING_RETENTION_DAYS'],
]

it('the configuration describes every variable for --help', () => {
  expect(
    describeVariables()
      .match(/^ {2}[A-Z_]+(?= {2})/gm)
      ?.map((name) => name.trim()),
  ).toEqual(NAMES)
})

it('the configuration shows the default of every variable as it would be set', () => {
  const shown = [...describeVariables().matchAll(/^ {2}([A-Z_]+) +(\S+)/gm)].filter(
    ([, name = '', text]) => NAMES.includes(name) && text !== 'unset',
  )
  expect(shown.length).toBeGreaterThan(10)
  for (const [, name = '', text = ''] of shown)
    expect(readConfig({ [name]: text }), name).toEqual(readConfig({}))
})

it('the configuration treats an empty variable as unset', () => {
  expect(readConfig(Object.fromEntries(NAMES.map((name) => [name, ''])))).toEqual(readConfig({}))
})

it.each([
  ['without the line break at its end', 'postgres://user:secret@db:5432/oa\n'],
  ['of Windows, with a byte order mark and a carriage return', '\uFEFFpostgres://user:secret@db:5432/oa\r\n'],
])('the configuration reads a secret from the file that NAME_FILE names, %s', (_, content) => {
  const file = writeTemporaryFile('database_url', content)
  const { database } = readConfig({ DATABASE_URL_FILE: file })
  expect(database.kind === 'url' && database.url.reveal()).toBe('postgres://user:secret@db:5432/oa')
})

it('the configuration refuses a secret that is set twice, and a file that is empty or cannot be read', () => {
  const directory = temporaryDirectory()
  const empty = join(directory, 'empty')
  writeFileSync(empty, '\n')
  const missing = join(directory, 'missing')
  expect(
    faultsOf({
      ...{ DATABASE_URL: 'postgres://db/oa', DATABASE_URL_FILE: empty },
      ...{ REDIS_URL_FILE: missing, CONSOLE_TOKEN_FILE: empty, SMTP_URL_FILE: directory },
    }),
  ).toEqual([
    'DATABASE_URL and DATABASE_URL_FILE are both set: set one of them',
    'REDIS_URL has no value: the file of REDIS_URL_FILE cannot be read: no such file or directory (ENOENT)',
    'CONSOLE_TOKEN has no value: the file of CONSOLE_TOKEN_FILE is empty',
    'SMTP_URL has no value: the file of SMTP_URL_FILE cannot be read: illegal operation on a directory (EISDIR)',
  ])
})

it('the configuration refuses a pipe, a device and a file that is too large for a secret, without reading them', () => {
  const directory = temporaryDirectory()
  const pipe = join(directory, 'pipe')
  execFileSync('mkfifo', [pipe])
  const large = join(directory, 'large')
  writeFileSync(large, 'x'.repeat(64 * 1024 + 1))
  expect(
    faultsOf({ CONSOLE_TOKEN_FILE: large, REDIS_URL_FILE: '/dev/zero', DATABASE_URL_FILE: pipe }),
  ).toEqual([
    'DATABASE_URL has no value: the file of DATABASE_URL_FILE is not a regular file',
    'REDIS_URL has no value: the file of REDIS_URL_FILE is not a regular file',
    'CONSOLE_TOKEN has no value: the file of CONSOLE_TOKEN_FILE is larger than 64 KiB',
  ])
})

it.each([
  ['postgres://u@db1,db2/oa', /several hosts and needs \?target_session_attrs=read-write/],
  ['postgres://u@db1/oa?target_session_attrs=standby', /a target_session_attrs other than read-write/],
  ['postgres://u@db1/oa?service=oa', /the parameter service, which is not supported/],
])('the configuration refuses DATABASE_URL=%s with one line', (DATABASE_URL, reason) => {
  const faults = faultsOf({ DATABASE_URL })
  expect(faults).toEqual([expect.stringMatching(/^DATABASE_URL .+$/)])
  expect(faults[0]).toMatch(reason)
  expect(faults[0]).not.toContain('u@')
})

it.each(['/', '#', '?', '1/2', '1#2', '1?2'])(
  'the configuration says how to write a password with %s in an address of a server',
  (password) => {
    for (const [name, address] of [
      ['DATABASE_URL', `postgres://me:${password}@db:5432/oa`],
      ['DATABASE_READ_URL', `postgres://me:${password}@db1,db2/oa`],
      ['REDIS_URL', `redis://me:${password}@cache:6379`],
    ] as const) {
      const env = { DATABASE_URL: 'postgres://db/oa', [name]: address }
      expect(faultsOf(env)).toEqual([expect.stringMatching(`^${name} must be .+ write / as %2F`)])
    }
  },
)

it('the configuration accepts a password whose special characters are encoded, and those that need not be', () => {
  for (const password of ['%2F%23%3F%40%25%5B', 'a@b', 'a[b]', 'a:b', '%', '%zz'])
    expect(faultsOf({ DATABASE_URL: `postgres://me:${password}@db:5432/oa` })).toEqual([])
  expect(faultsOf({ DATABASE_URL: 'postgres://db/oa?user=me@server' })).toEqual([])
})

it('the configuration refuses a token of the console that somebody could guess', () => {
  const CONSOLE_TOKEN = 'a'.repeat(24)
  const { console } = readConfig({ CONSOLE_PORT: '3001', CONSOLE_TOKEN })
  expect([console?.port, console?.token?.reveal()]).toEqual([3001, CONSOLE_TOKEN])
  expect(readConfig({ CONSOLE_TOKEN }).console).toBeNull()
  const short = faultsOf({ CONSOLE_PORT: '3001', CONSOLE_TOKEN: 'a'.repeat(23) })
  expect(short).toEqual(['CONSOLE_TOKEN must have at least 24 characters'])
})

it.each([
  'http://proxy:3128',
  'http://10.0.0.1:80/',
  'http://[fd00::1]:3128',
  'http://user:p%40ss@proxy.example:3128',
])('the configuration reads the proxy %s as a secret', (EGRESS_PROXY) => {
  const { egressProxy } = readConfig({ EGRESS_PROXY })
  expect([`${egressProxy}`, egressProxy?.reveal()]).toEqual(['[secret]', EGRESS_PROXY])
})

it('the configuration reads the mail server and the watchdog as secrets, and wants the address of a sender', () => {
  const { smtpUrl, heartbeatUrl } = readConfig({
    SMTP_URL: 'smtps://alerts%40example.com:password@mail.example.com',
    HEARTBEAT_URL: 'https://hc-ping.com/secret',
  })
  expect(`${smtpUrl} ${heartbeatUrl}`).toBe('[secret] [secret]')
  expect(faultsOf({ SMTP_URL: 'smtp://mail.example.com' })).toEqual([
    expect.stringMatching(/^SMTP_URL must have the address of the sender/),
  ])
  expect(faultsOf({ SMTP_URL: 'smtp://mail.example.com?from=alerts@example.com' })).toEqual([])
  expect(faultsOf({ SMTP_URL: 'mail.example.com', HEARTBEAT_URL: 'ping' })).toHaveLength(2)
  const server = 'mail.example.com?from=alerts@example.com'
  expect(
    faultsOf({ SMTP_URL: `smtp://a:%zz@${server}`, HEARTBEAT_URL: 'https://a:b@hc-ping.com/x' }),
  ).toEqual([
    'SMTP_URL must have a percent-encoded user and password',
    'HEARTBEAT_URL must be a URL without credentials',
  ])
  expect(faultsOf({ SMTP_URL: `smtp://${server}&requireTLS=true` })).toEqual([
    'SMTP_URL must have no parameter but from',
  ])
})

it('the configuration believes a header with the operator only from a proxy that TRUST_PROXY names', () => {
  const CONSOLE_USER_HEADER = 'X-Forwarded-Email'
  const env = { CONSOLE_PORT: '3001', CONSOLE_USER_HEADER, TRUST_PROXY: 'loopback' }
  expect(readConfig(env).console?.userHeader).toBe('x-forwarded-email')
  expect(faultsOf({ CONSOLE_USER_HEADER })).toEqual([
    expect.stringMatching(/^CONSOLE_USER_HEADER is set, but TRUST_PROXY is not/),
  ])
  expect(faultsOf({ ...env, CONSOLE_USER_HEADER: 'two words' })).toEqual([
    expect.stringMatching(/^CONSOLE_USER_HEADER must be/),
  ])
})

it('the configuration rejects DATABASE_READ_URL without the DATABASE_URL of the primary', () => {
  const DATABASE_READ_URL = 'postgres://user:hunter2@db2:5432/oa'
  for (const env of [{}, { DATABASE_URL: 'none' }]) {
    expect(faultsOf({ ...env, DATABASE_READ_URL })).toEqual([
      'DATABASE_READ_URL is set, but DATABASE_URL is not: set DATABASE_URL to the primary of the replicas',
    ])
  }
})

it('the configuration reports all invalid variables together, by name and without the value', () => {
  const faults = faultsOf({ PORT: 'abc', DATABASE_URL: 'mysql://root:hunter2@db/oa', LOG_LEVEL: 'loud' })
  expect(faults.map((line) => line.split(' ')[0]).sort()).toEqual(['DATABASE_URL', 'LOG_LEVEL', 'PORT'])
  expect(faults.join()).not.toContain('hunter2')
})

it('the configuration refuses a port for two listeners, but not any free one', () => {
  for (const name of ['CONSOLE_PORT', 'METRICS_PORT'])
    expect(faultsOf({ HOST: '999.1.1.1', [name]: '3000' })).toEqual([
      expect.stringMatching(/^HOST must be /),
      'PORT, CONSOLE_PORT and METRICS_PORT must differ',
    ])
  expect(faultsOf({ PORT: '0', CONSOLE_PORT: '0', METRICS_PORT: '0' })).toEqual([])
})

it('the configuration ignores the addresses of Kubernetes Services that have the names of its variables', () => {
  const ports = NAMES.filter((name) => name.endsWith('_PORT'))
  expect(ports).toEqual(['METRICS_PORT', 'CONSOLE_PORT'])
  for (const address of ['tcp://10.96.0.10:80', 'udp://10.96.0.10:53', 'sctp://[fd00::1]:80']) {
    const env = Object.fromEntries(ports.map((name) => [name, address]))
    expect(readConfig(env), address).toEqual({ ...readConfig({}), serviceLinks: ports })
  }
  expect(readConfig({ CONSOLE_PORT: '3001' }).serviceLinks).toEqual([])
  expect(faultsOf({ CONSOLE_PORT: 'http://10.96.0.10:80' })).toEqual([
    expect.stringMatching(/^CONSOLE_PORT must/),
  ])
})

it('every variable that a Kubernetes Service of some name can set is ignored if a Service sets it', () => {
  // Kubernetes' getServiceEnvVariables: NAME_SERVICE_HOST, NAME_SERVICE_PORT[_name], NAME_PORT, NAME_PORT_80_TCP[_PROTO|_PORT|_ADDR].
  const settable = NAMES.filter((name) =>
    /^.+_(SERVICE_HOST|SERVICE_PORT(_.+)?|PORT(_\d+_(TCP|UDP|SCTP).*)?)$/.test(name),
  )
  expect(settable).toEqual(NAMES.filter((name) => name.endsWith('_PORT')))
})

it('the configuration accepts addresses and names of hosts', () => {
  for (const host of ['127.0.0.1', '0.0.0.0', '::', '::1', 'localhost', 'a-b_c.example.com', '1und1.de'])
    expect(faultsOf({ HOST: host }), host).toEqual([])
  for (const host of ['[::1]', '10.0.0.1', 'db.example.com'])
    expect(
      faultsOf({
        ...{ DATABASE_URL: `postgres://${host}/oa`, REDIS_URL: `rediss://${host}:6379` },
        ...{ SMTP_URL: `smtp://${host}?from=alerts@example.com`, HEARTBEAT_URL: `http://${host}/x` },
      }),
      host,
    ).toEqual([])
  expect(faultsOf({ DATABASE_URL: 'postgres:///oa?host=%2Frun%2Fa:b' })).toEqual([])
})

it.each([
  ['PORT', '65536'],
  ['HOST', 'not a host'],
  ['HOST', '999.1.1.1'],
  ['HOST', '127.0.0.1.1'],
  ['HOST', '10::1::2'],
  ['REDIS_URL', 'redis://127.0.0.1:6379?connectTimeout=abc'],
  ['REDIS_URL', 'redis://999.1.1.1:6379'],
  ['SMTP_URL', 'smtp://10.0.0.256?from=alerts@example.com'],
  ['DATABASE_URL', 'postgres://999.1.1.1/oa'],
  ['DATABASE_URL', 'postgres:///oa?host=1.2.3'],
  ['PUBLIC_URL', 'https://999.1.1.1'],
  ['HEARTBEAT_URL', 'https://999.1.1.1/x'],
  ['TRUST_PROXY', '0.0.0.0/0'],
  ['LINE_API_URL', 'http://127.0.0.1:4612#'],
  ['WEB_CONCURRENCY', '0'],
  ['EGRESS_PROXY', 'proxy.example:3128'],
  ['EGRESS_PROXY', 'http://proxy.example'],
  ['EGRESS_PROXY', 'https://proxy.example:3128'],
  ['EGRESS_PROXY', 'socks5://proxy.example:1080'],
  ['EGRESS_PROXY', 'http://999.1.1.1:3128'],
  ['EGRESS_PROXY', 'http://proxy.example:3128/path'],
  ['EGRESS_PROXY', 'http://user:%zz@proxy.example:3128'],
  ['EGRESS_PROXY', 'http://proxy.example:65536'],
])('the configuration rejects %s=%s', (name, value) => {
  expect(faultsOf({ [name]: value })).toEqual([expect.stringMatching(new RegExp(`^${name} must `))])
})
