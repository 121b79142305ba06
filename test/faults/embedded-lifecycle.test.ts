/** The embedded PostgreSQL starts in any directory, survives kills at inconvenient moments, and serves one service. */
import { execFileSync, spawn } from 'node:child_process'
import {
  chmodSync,
  cpSync,
  existsSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs'
import { dirname, join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { expect, it, onTestFinished } from 'vitest'
import { readConfig } from '../../src/config/config.ts'
import { startService } from '../../src/main.ts'
import { findServer } from '../../src/postgres/embedded/postmaster.ts'
import { EmbeddedServer } from '../../src/postgres/embedded/server.ts'
import { serverPid, setUpDataDirectories, withServer } from '../support/data-directory.ts'
import { acceptForTest } from '../support/http-server.ts'
import {
  becomesWell,
  runProgram,
  runProgramAsync,
  startHealthy,
  temporaryDirectory,
  writeTemporaryFile,
} from '../support/process.ts'

const createDataDirectory = setUpDataDirectories()

const startIn = (dataDir: string) => startHealthy({ DATA_DIR: dataDir })

const addOrganization = (dataDir: string, name: string) =>
  withServer(dataDir, (database) => database.query('insert into organization (name) values ($1)', [name]))

const organizations = (dataDir: string) =>
  withServer(dataDir, (database) =>
    database.query<{ name: string }>('select name from organization order by id'),
  ).then((rows) => rows.map(({ name }) => name))

it('a service creates its server on first use, which syncs every commit and opens no TCP port', async () => {
  const dataDir = temporaryDirectory()
  await startIn(dataDir)
  const command = execFileSync('ps', ['-o', 'args=', '-p', String(serverPid(dataDir))], {
    encoding: 'utf8',
  })
  expect(command).toContain('fsync=on')
  expect(command).toContain('synchronous_commit=on')
  expect(command).toMatch(/listen_addresses=( |$)/)
})

it('a service stops the server of a killed service and starts its own, with the same data', async () => {
  const dataDir = createDataDirectory()
  const first = await startIn(dataDir)
  await addOrganization(dataDir, 'kept')
  const pid = serverPid(dataDir)
  first.child.kill('SIGKILL')
  await first.exited
  expect(findServer(join(dataDir, 'postgres'))).toBe(pid)
  const second = await startIn(dataDir)
  expect(serverPid(dataDir)).not.toBe(pid)
  expect(await organizations(dataDir)).toEqual(['kept'])
  second.child.kill('SIGINT')
  expect((await second.exited).code).toBe(0)
  expect(() => serverPid(dataDir)).toThrow()
})

it('a service keeps the server that a command has started and uses', async () => {
  const dataDir = createDataDirectory()
  const command = new EmbeddedServer(dataDir)
  await command.use()
  const pid = serverPid(dataDir)
  const service = await startIn(dataDir)
  await command.release()
  expect(serverPid(dataDir)).toBe(pid)
  await becomesWell(service.url)
  service.child.kill('SIGINT')
  expect((await service.exited).code).toBe(0)
  expect(() => serverPid(dataDir)).toThrow()
})

const isRunning = (dataDir: string) => existsSync(join(dataDir, 'postgres', 'postmaster.pid'))

it.each([
  ['PORT', /^oa-audience: PORT \d+ on 127\.0\.0\.1 is already in use\..*\n$/],
  ['CONSOLE_PORT', /^oa-audience: CONSOLE_PORT \d+ on 127\.0\.0\.1 cannot be used: .*\n$/],
  ['METRICS_PORT', /^oa-audience: METRICS_PORT \d+ on 127\.0\.0\.1 cannot be used: .*\n$/],
])(
  'a service that does not start exits with 1 and one line, and stops its server, if %s is already in use',
  async (name, line) => {
    const dataDir = createDataDirectory()
    const port = String(await acceptForTest(() => undefined))
    const env = { DATA_DIR: dataDir, [name]: port, CONSOLE_TOKEN: 'x'.repeat(24) }
    const { status, stderr } = await runProgramAsync(['serve'], env)
    expect([status, stderr]).toEqual([1, expect.stringMatching(line)])
    expect(isRunning(dataDir)).toBe(false)
  },
)

it('a service that does not start stops its server if a part cannot be created', async () => {
  const dataDir = createDataDirectory()
  const config = { ...readConfig({ DATA_DIR: dataDir }), trustProxy: ['nobody'] }
  await expect(startService(config)).rejects.toThrow('invalid IP address: nobody')
  expect(isRunning(dataDir)).toBe(false)
})

it('a command does not stop the server while another command uses it', async () => {
  const dataDir = createDataDirectory()
  const runs = Array.from({ length: 6 }, (_, i) =>
    runProgramAsync(['organizations', 'add', '--name', `n${i}`, '--json'], { DATA_DIR: dataDir }),
  )
  const ids = (await Promise.all(runs)).map(({ stdout }) => JSON.parse(stdout).id)
  expect(ids.toSorted()).toEqual(['1', '2', '3', '4', '5', '6'])
  expect(() => serverPid(dataDir)).toThrow()
})

it('a command ignores a lock file whose process id now belongs to another program', () => {
  const dataDir = createDataDirectory()
  writeFileSync(join(dataDir, 'postgres/postmaster.pid'), `${process.pid}\n/nowhere\n0\n5432\n.\n`)
  expect(runProgram(['migrate'], { DATA_DIR: dataDir }).stdout).toBe('nothing to do\n')
})

it.runIf(existsSync('/proc/self'))(
  'a command ignores a lock file whose killed server is a zombie',
  async () => {
    const dataDir = createDataDirectory()
    const program = join(temporaryDirectory(), 'postgres')
    cpSync('/bin/sleep', program)
    chmodSync(dirname(program), 0o755)
    // The first program ends after the second one, which does not reap it, has replaced the shell.
    const { uid } = statSync(join(dataDir, 'postgres'))
    const parent = spawn('sh', ['-c', `${program} 1 & echo $!; exec sleep 60`], {
      uid,
      stdio: ['ignore', 'pipe', 'inherit'],
    })
    onTestFinished(() => void parent.kill())
    const pid = String(await new Promise((resolve) => parent.stdout.once('data', resolve))).trim()
    await expect.poll(() => readFileSync(`/proc/${pid}/stat`, 'utf8').includes(') Z ')).toBe(true)
    writeFileSync(join(dataDir, 'postgres/postmaster.pid'), `${pid}\n/nowhere\n0\n5432\n.\n`)
    expect(runProgram(['migrate'], { DATA_DIR: dataDir }).stdout).toBe('nothing to do\n')
  },
)

it('a command fails with one line if DATA_DIR is a file', () => {
  const { status, stderr } = runProgram(['serve'], { DATA_DIR: fileURLToPath(import.meta.url) })
  expect(status).toBe(1)
  expect(stderr).toMatch(/^oa-audience: cannot set up a PostgreSQL in DATA_DIR .+\n$/)
})

it.each([0, 500])(
  'leaves no server behind when the service ends %i ms after its server was killed',
  async (delayMs) => {
    const dataDir = createDataDirectory()
    const service = await startHealthy({ DATA_DIR: dataDir })
    process.kill(serverPid(dataDir), 'SIGKILL')
    await sleep(delayMs)
    service.child.kill('SIGINT')
    expect(await service.exited).toMatchObject({ code: 0 })
    // On a slow machine the server may outlive the service while it ends its recovery.
    await expect.poll(() => findServer(join(dataDir, 'postgres'))).toBe(null)
  },
)

it('writes nothing to the temporary directory with a DATA_DIR whose path is too long for a unix socket', async () => {
  const dataDir = createDataDirectory('x'.repeat(150))
  const env = { DATA_DIR: dataDir, TMPDIR: temporaryDirectory() }
  const first = await startHealthy(env)
  expect(readdirSync(env.TMPDIR)).toEqual([])
  first.child.kill('SIGKILL')
  await first.exited
  await startHealthy(env)
  expect(readdirSync(env.TMPDIR)).toEqual([])
})

it.runIf(process.getuid?.() === 0)('follows no symbolic link of root in the place of the log', () => {
  const dataDir = createDataDirectory()
  const target = writeTemporaryFile('file', '')
  rmSync(join(dataDir, 'postgres.log'))
  symlinkSync(target, join(dataDir, 'postgres.log'))
  const { stderr } = runProgram(['migrate'], { DATA_DIR: dataDir })
  expect(stderr).toMatch(/^oa-audience: DATA_DIR cannot be used \(ELOOP: .+\n$/)
  expect(statSync(target)).toMatchObject({ uid: 0, size: 0 })
})
