/** Complete backups and restores. test/upkeep/backup.test.ts has their refusals. */
import { execFileSync, spawn } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { chownSync, existsSync, mkdirSync, readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, it, onTestFinished } from 'vitest'
import { findServer } from '../../src/postgres/embedded/postmaster.ts'
import { EmbeddedServer } from '../../src/postgres/embedded/server.ts'
import { backUpServer } from '../../src/upkeep/backup/embedded.ts'
import { lineEvent, randomUserId } from '../../tools/simulator/events.ts'
import { connectionTo, serverPid, setUpDataDirectories, withServer } from '../support/data-directory.ts'
import { addTenant, openDatabase } from '../support/database.ts'
import { insertRow } from '../support/load.ts'
import {
  environment,
  MAIN,
  NO_LIMITS,
  runProgramAsync,
  startHealthy,
  temporaryDirectory,
} from '../support/process.ts'
import { sendDelivery } from '../support/service.ts'

const createDataDirectory = setUpDataDirectories()

async function run(args: string[], env: Record<string, string>) {
  const { status, stdout, stderr } = await runProgramAsync([...args, '--json'], env)
  expect(status, stderr).toBe(0)
  return { result: JSON.parse(stdout), stderr }
}

const userIdsIn = (dataDir: string) =>
  withServer(dataDir, async (database) => {
    const rows = await database.query<{ user_id: string }>('select user_id from audience_member')
    return rows.map(({ user_id }) => user_id)
  })

it('a backup refuses a running service, and one of the stopped database has everything and can be restored repeatedly', async () => {
  const dataDir = createDataDirectory()
  const service = await startHealthy({ DATA_DIR: dataDir, ...NO_LIMITS })
  const database = openDatabase(connectionTo(dataDir))
  const tenant = await addTenant(database)
  const settings = { url: 'https://crm.example.com/', format: 'members', status: 'paused' }
  const endpoint = await insertRow(database, 'endpoint', { channel_oa_id: tenant.accountId, ...settings })
  await database.close()
  const acknowledged: string[] = []
  while (acknowledged.length < 50) {
    const userId = randomUserId()
    expect((await sendDelivery(service.url, tenant, [lineEvent('follow', userId)])).status).toBe(200)
    acknowledged.push(userId)
  }
  let source = join(temporaryDirectory(), 'backup')
  const refused = await runProgramAsync(['backup', source], { DATA_DIR: dataDir })
  expect(refused.status).toBe(1)
  expect(refused.stderr).toMatch(/^oa-audience: DATA_DIR is in use by another oa-audience service .+\n$/)
  expect(existsSync(source)).toBe(false)
  service.child.kill('SIGINT')
  await service.exited
  await run(['backup', source], { DATA_DIR: dataDir })

  // The last one is a backup of a restored database, whose server was killed.
  for (const no of [1, 2]) {
    const restored = join(temporaryDirectory(), 'data')
    const { result } = await run(['restore', source], { DATA_DIR: restored })
    expect(result.membersEndpoints).toEqual([String(endpoint)])
    expect(readdirSync(restored)).toEqual(['postgres'])
    const running = await startHealthy({ DATA_DIR: restored })
    expect((await userIdsIn(restored)).sort()).toEqual(acknowledged.sort())
    running.child.kill('SIGKILL')
    process.kill(serverPid(restored), 'SIGKILL')
    await running.exited
    if (no === 2) continue
    source = join(temporaryDirectory(), 'again')
    await run(['backup', source], { DATA_DIR: restored })
  }
})

it('a backup fails if the database is started during the copy', async () => {
  const dataDir = createDataDirectory()
  const control = join(dataDir, 'postgres/global/pg_control')
  const backup = join(temporaryDirectory(), 'backup')
  const data = join(backup, 'data')
  const started = setInterval(() => {
    // The state 6 is "in production".
    if (existsSync(data) && readdirSync(data).length > 0)
      writeFileSync(control, readFileSync(control).fill(6, 16, 17))
  }, 1)
  onTestFinished(() => clearInterval(started))
  const backingUp = backUpServer({ kind: 'embedded', dataDir }, backup, () => undefined)
  await expect(backingUp).rejects.toThrow('the database was used during the backup')
  expect(existsSync(join(backup, 'manifest.json'))).toBe(false)
})

it('a backup refuses a database that another command uses', async () => {
  const dataDir = createDataDirectory()
  const server = new EmbeddedServer(dataDir)
  await server.use()
  const { stderr } = await runProgramAsync(['backup', join(temporaryDirectory(), 'backup')], {
    DATA_DIR: dataDir,
  })
  expect(stderr).toBe('oa-audience: another command uses the database. Run the backup when it has ended.\n')
  await withServer(dataDir, (database) => database.query('select'))
  await server.release()
})

it('a restore that is killed leaves no database on which a service could start', async () => {
  const dataDir = createDataDirectory()
  const backup = join(temporaryDirectory(), 'backup')
  await run(['backup', backup], { DATA_DIR: dataDir })
  const target = temporaryDirectory()
  const restoring = spawn(process.execPath, [MAIN, 'restore', backup], {
    env: environment({ DATA_DIR: target }),
  })
  const ended = new Promise((resolve) => restoring.once('exit', resolve))
  const staged = () => readdirSync(target).map((name) => join(target, name, 'postgres'))
  await expect.poll(() => staged().some((server) => existsSync(join(server, 'postmaster.pid')))).toBe(true)
  restoring.kill('SIGKILL')
  await ended
  expect(existsSync(join(target, 'postgres'))).toBe(false)
  for (const server of staged()) {
    const pid = findServer(server)
    if (pid !== null) process.kill(pid, 'SIGQUIT')
    await expect.poll(() => findServer(server)).toBe(null)
  }
  await run(['restore', backup], { DATA_DIR: target })
  expect(existsSync(join(target, 'postgres'))).toBe(true)
})

it('a backup has no platform secret in plain text, not even one that was encrypted after another program inserted it', async () => {
  const dataDir = createDataDirectory()
  const env = { DATA_DIR: dataDir, SECRETS_KEYS: `a:${randomBytes(32).toString('base64')}`, ...NO_LIMITS }
  const service = await startHealthy(env)
  const database = openDatabase(connectionTo(dataDir))
  const tenant = await addTenant(database)
  const secrets = Array.from({ length: 40 }, () => `plain${randomBytes(12).toString('hex')}`)
  // Its samples are in pg_statistic.
  for (const secret of secrets) {
    const [row] = await database.query<{ id: bigint }>(
      `insert into official_account (organization_id, name, channel_secret, channel_access_token, chat_secret)
       values ($1, 'x', $2, $2 || 't', $2 || 'c') returning id`,
      [tenant.organizationId, secret],
    )
    await database.query(
      `insert into endpoint (channel_oa_id, url, format, secret) values ($1, 'https://example.com', 'members', $2)`,
      [row?.id, secret],
    )
  }
  await database.session((session) => session.query('analyze'))
  await run(['secrets', 'rotate'], env)
  // Segments of the WAL with the secrets are recycled.
  for (let no = 0; no < 3; no += 1)
    await database.session(async (session) => {
      await session.query('select pg_switch_wal()')
      await session.query('checkpoint')
    })
  const files = (directory: string) =>
    readdirSync(directory, { recursive: true, encoding: 'utf8' })
      .map((name) => join(directory, name))
      .filter((path) => statSync(path).isFile())
  const leaks = (directory: string) =>
    files(directory).filter((path) => {
      const content = readFileSync(path)
      return [...secrets, tenant.channelSecret].some((secret) => content.includes(secret))
    })
  // The server's own files have them, so the search works.
  expect(leaks(join(dataDir, 'postgres'))).not.toEqual([])
  await database.close()
  service.child.kill('SIGINT')
  await service.exited
  const backup = join(temporaryDirectory(), 'backup')
  const { stderr } = await run(['backup', backup], env)
  expect(stderr).not.toContain('plain text')
  expect(leaks(backup)).toEqual([])
  for (const path of files(backup)) expect(statSync(path).mode & 0o077).toBe(0)

  const server = new EmbeddedServer(dataDir)
  await server.use()
  await withServer(dataDir, (open) => open.query(`update endpoint set secret = 'plain'`))
  await server.release()
  const warned = await run(['backup', join(temporaryDirectory(), 'backup')], env)
  expect(warned.stderr).toMatch(
    /^oa-audience: Rows with secrets in plain text: 40\. Run "oa-audience secrets rotate"/m,
  )
})

const NOBODY = 65_534

it.runIf(process.getuid?.() === 0)(
  'an ordinary user can back up and restore, and root can do it for them',
  () => {
    const home = temporaryDirectory()
    chownSync(home, NOBODY, NOBODY)
    const user = { uid: NOBODY, gid: NOBODY }
    const runAs = (args: string[], dataDir: string, identity = {}) =>
      execFileSync(process.execPath, [MAIN, ...args], {
        env: environment({ DATA_DIR: join(home, dataDir) }),
        encoding: 'utf8',
        stdio: 'pipe',
        ...identity,
      })
    const account = ['--name', 'x', '--channel-id', '1', '--channel-secret', randomBytes(16).toString('hex')]
    runAs(['setup', '--organization-name', 'Corner Coffee', ...account], 'data', user)
    runAs(['backup', join(home, 'first')], 'data', user)
    runAs(['restore', join(home, 'first')], 'restored', user)
    runAs(['backup', join(home, 'second')], 'restored')
    mkdirSync(join(home, 'again'))
    chownSync(join(home, 'again'), NOBODY, NOBODY)
    runAs(['restore', join(home, 'second')], 'again')
    expect(runAs(['organizations', 'list'], 'again', user)).toContain('Corner Coffee')
  },
)
