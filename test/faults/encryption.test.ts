/** A day of a service whose secrets are encrypted: where secrets and keys may be found afterwards, and kills during a rotation. */
import { execFileSync, spawn } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, it } from 'vitest'
import { SecretKeys } from '../../src/config/secret-keys.ts'
import { commandActor } from '../../src/operators/actor.ts'
import { rotateSecrets } from '../../src/upkeep/change-secrets.ts'
import { requireReadableSecrets } from '../../src/upkeep/stored-secrets.ts'
import { freePort } from '../../tools/prove/service.ts'
import { lineEvent, randomUserId } from '../../tools/simulator/events.ts'
import { runCommand } from '../support/command.ts'
import { CONSOLE_TOKEN, Operator } from '../support/console.ts'
import { connectionTo, serverPid, setUpDataDirectories } from '../support/data-directory.ts'
import { addTenant, openDatabase, type Tenant, urlOf } from '../support/database.ts'
import { type Received, startReceiver } from '../support/endpoints.ts'
import { load, readEverything } from '../support/load.ts'
import { startPlatform } from '../support/platform.ts'
import {
  environment,
  eventually,
  MAIN,
  runProgram,
  startHealthy,
  temporaryDirectory,
} from '../support/process.ts'
import { createEncrypted, newKey, valuesByKey } from '../support/secret-keys.ts'
import { Service } from '../support/service.ts'

const createDataDirectory = setUpDataDirectories()

const childrenOf = (pid: number): number[] =>
  execFileSync('ps', ['-o', 'pid=', '--ppid', String(pid)], { encoding: 'utf8' })
    .split('\n')
    .filter(Boolean)
    .map(Number)

const textsOf = (directory: string) =>
  readdirSync(directory)
    .map((name) => readFileSync(join(directory, name), 'utf8'))
    .join('\n')

it('leaves no secret in a dump, a log or a process of the database, and no key in a report of Node.js', async () => {
  const dataDir = createDataDirectory()
  const reports = temporaryDirectory()
  const platform = await startPlatform()
  const receiver = await startReceiver()
  const keys = newKey('2026a')
  const [port, consolePort] = [await freePort(), await freePort()]
  const service = await startHealthy({
    ...{
      DATA_DIR: dataDir,
      SECRETS_KEYS: keys,
      WEB_CONCURRENCY: '2',
      PORT: String(port),
      LOG_LEVEL: 'trace',
    },
    ...{ CONSOLE_PORT: String(consolePort), CONSOLE_TOKEN, LINE_API_URL: platform.url },
    NODE_OPTIONS: `--report-on-signal --report-signal=SIGUSR2 --report-directory=${reports}`,
  })
  const connection = connectionTo(dataDir)
  const env = { DATABASE_URL: urlOf(connection), SECRETS_KEYS: keys }
  const database = openDatabase(connection, null, SecretKeys.parse(keys))
  const printed = async (...args: string[]) => {
    const { stdout, stderr } = await runCommand([...args, '--json'], env)
    if (stdout === '') throw new Error(stderr)
    return JSON.parse(stdout)
  }

  // Accounts, one of them behind a module channel. Endpoints, a notification channel, an operator.
  const tenant = await addTenant(database, {
    ...{ channelId: platform.account.channelId, channelSecret: platform.account.channelSecret },
    ...{ channelAccessToken: platform.account.channelAccessToken, botUserId: platform.account.botUserId },
    chatSecret: 'chat-secret-of-the-day',
  })
  const { organizationId, channelSecret } = tenant
  const attached = await addTenant(database, { organizationId, channelSecret })
  const account = ['--account', String(tenant.accountId)]
  const target = ['--url', receiver.url, '--allow-private-network']
  const members = await printed('endpoints', 'add', ...account, ...target, '--format', 'members')
  await printed('endpoints', 'add', ...account, ...target, '--format', 'line')
  const hook = `${receiver.url}/unguessable-path-of-a-hook`
  const channel = ['--format', 'webhook', '--target', hook, '--allow-private-network']
  const notifications = await printed('notifications', 'add', ...channel)
  const invited = await printed('operators', 'add', '--email', 'ann@example.com', '--role', 'owner')
  // The token is the last part of the link.
  const invitation = /[\w-]+$/.exec(invited.invitation)?.[0] as string
  const operator = new Operator(`http://127.0.0.1:${consolePort}`)
  const password = `password ${randomBytes(8).toString('hex')}`
  const joined = await operator.send('/invitation/accept', { invitation, password })
  expect(joined.text + joined.status).toContain('200')

  // The day.
  const app = Object.assign(Object.create(Service.prototype), { url: service.url }) as Service
  const deliver = async (to: Tenant, botUserId = to.botUserId) =>
    (await app.deliver({ ...to, botUserId }, [lineEvent('follow', randomUserId())])).status
  expect(await deliver(tenant)).toBe(200)
  expect(await deliver(tenant, attached.botUserId)).toBe(200)
  expect((await app.members(attached)).length).toBe(1)
  expect((await app.chat(tenant, { event: 'conversation_updated' })).status).toBe(200)
  expect(
    (await app.chat({ ...tenant, chatSecret: 'forged' }, { event: 'conversation_updated' })).status,
  ).toBe(403)
  const verified = await app.call('POST', '/api/line-oa/verify', { headers: tenant.headers })
  expect([verified.status, verified.json.checks[0].ok]).toEqual([200, true])
  const rotated = await printed('endpoints', 'rotate', String(members.id))
  await deliver(tenant)
  // Signed with both secrets.
  const isTwiceSigned = ({ headers }: Received) =>
    String(headers['webhook-signature']).split(' ').length === 2
  await expect.poll(() => receiver.received.some(isTwiceSigned)).toBe(true)
  await expect
    .poll(() => receiver.received.some(({ headers }) => headers['x-line-signature'] !== undefined))
    .toBe(true)
  await printed('notifications', 'test', String(notifications.id))
  expect(receiver.received.some(({ path }) => path.includes('unguessable'))).toBe(true)

  // Where secrets are searched for.
  const key = keys.split(':')[1] as string
  const found = {
    ...{
      channelSecret,
      accessToken: platform.account.channelAccessToken,
      chatSecret: 'chat-secret-of-the-day',
    },
    ...{ endpoint: members.secret, rotatedEndpoint: rotated.secret },
    ...{ notifications: notifications.secret, hook: 'unguessable-path-of-a-hook' },
    ...{ consoleToken: CONSOLE_TOKEN, password, invitation, session: operator.cookie.split('=')[1], key },
  }
  for (const [name, secret] of Object.entries(found)) expect(String(secret).length, name).toBeGreaterThan(15)
  const workers = childrenOf(service.child.pid as number).filter((pid) => pid !== serverPid(dataDir))
  for (const pid of [service.child.pid as number, ...workers]) process.kill(pid, 'SIGUSR2')
  await expect.poll(() => readdirSync(reports)).toHaveLength(3)
  const report = await eventually(
    async () => textsOf(reports),
    (text) => text.split('"environmentVariables"').length === 4,
  )
  const serverProcesses = [serverPid(dataDir), ...childrenOf(serverPid(dataDir))]
  const environs = serverProcesses
    .map((pid) => `/proc/${pid}/environ`)
    .filter(existsSync)
    .map((path) => readFileSync(path, 'utf8'))
  const args = execFileSync('ps', ['-eo', 'args='], { encoding: 'utf8' })
  const texts = {
    dump: await readEverything(database),
    log: readFileSync(join(dataDir, 'postgres.log'), 'utf8'),
    output: service.output(),
    statements: JSON.stringify(await load(database, 'select query from pg_stat_activity')),
  }
  for (const [where, text] of Object.entries(texts))
    for (const [name, secret] of Object.entries(found))
      expect(text.includes(String(secret)), `${name} in ${where}`).toBe(false)
  // The search finds what is there.
  expect(texts.dump).toContain(tenant.headers['x-client-secret'])
  expect(texts.dump).toContain('enc:v1:2026a:')
  expect(report).toContain('"PATH"')
  const places = { report, environments: environs.join('\n'), arguments: args }
  for (const [where, text] of Object.entries(places))
    expect(text.includes(key), `the key in ${where}`).toBe(false)
  expect(report).not.toContain('SECRETS_KEYS')
  expect(environs.length).toBeGreaterThan(2)
})

it('loses no secret when a rotation is killed, and the next run continues it', async () => {
  const { plain, database, keys, withKeys, env } = await createEncrypted()
  const { organizationId } = await addTenant(plain)
  await load(
    plain,
    `insert into official_account (organization_id, name, channel_secret, oa_hash)
     select $1, '', 'secret ' || n, 'hash ' || n from generate_series(1, 2000) n`,
    [organizationId],
  )
  await rotateSecrets(database, commandActor())
  const newer = newKey('2027a')
  const rotatedEnv = { ...env, SECRETS_KEYS: `${newer},${keys}` }
  const both = withKeys(rotatedEnv.SECRETS_KEYS)
  const rotation = spawn(process.execPath, [MAIN, 'secrets', 'rotate'], {
    env: environment(rotatedEnv),
    stdio: 'ignore',
  })
  const exited = new Promise((resolve) => rotation.once('exit', (_, signal) => resolve(signal)))
  await eventually(
    () => load(plain, `select from official_account where channel_secret like 'enc:v1:2027a:%' limit 1`),
    (rows) => rows.length > 0,
  )
  rotation.kill('SIGKILL')
  expect(await exited).toBe('SIGKILL')
  const { '2026a': left = 0, '2027a': done = 0 } = await valuesByKey(both)
  expect([left > 0, done > 0, left + done]).toEqual([true, true, 2001])
  await requireReadableSecrets(both)
  const { status, stdout } = runProgram(['secrets', 'rotate', '--json'], rotatedEnv)
  expect({ status, ...JSON.parse(stdout) }).toEqual({ status: 0, encrypted: left, unreadable: 0 })
  expect(await valuesByKey(withKeys(newer))).toEqual({ '2027a': 2001 })
})
