/** The last release, built from git, and the current version as a release that adds a migration. */
import { execFile } from 'node:child_process'
import {
  cpSync,
  existsSync,
  mkdirSync,
  readlinkSync,
  renameSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { readMigrations } from '../../src/postgres/schema/migrate.ts'

/** The version from which the tests upgrade. Each release changes it: see CONTRIBUTING.md. */
const PREVIOUS = { version: '0.2.0', commit: 'b75d555e43a85ceaf930666e6089ee78184e61db' }

const ROOT = fileURLToPath(new URL('../..', import.meta.url))
/** Git ignores this directory. A build is named after its commit, and later runs reuse it. */
const BUILDS = join(ROOT, '.versions')
const PROGRAM = 'dist/src/cli/main.js'
const LOCK_POLL_MS = 500

/** The program of the last release. The first call takes a minute or two. Throws with one line that says what to do. */
export async function buildPreviousVersion(): Promise<string> {
  const directory = join(BUILDS, PREVIOUS.commit)
  if (!existsSync(directory)) await whileLocked(async () => existsSync(directory) || build(directory))
  return join(directory, PROGRAM)
}

/** Two test files may need the build at the same time. The lock of a process that was interrupted does not count. */
async function whileLocked(work: () => Promise<unknown>): Promise<void> {
  const lock = join(BUILDS, 'lock')
  mkdirSync(BUILDS, { recursive: true })
  for (;;) {
    try {
      // Unlike a file, a symbolic link appears together with its content.
      symlinkSync(String(process.pid), lock)
      break
    } catch {
      if (!isRunning(ownerOf(lock))) rmSync(lock, { force: true })
      await sleep(LOCK_POLL_MS)
    }
  }
  try {
    await work()
  } finally {
    rmSync(lock, { force: true })
  }
}

/** Returns null if the owner has removed the lock. */
function ownerOf(lock: string): number | null {
  try {
    return Number(readlinkSync(lock))
  } catch {
    return null
  }
}

function isRunning(pid: number | null): boolean {
  try {
    return pid === null || process.kill(pid, 0)
  } catch {
    return false
  }
}

/** @param directory exists only after the build has succeeded, so that an interrupted build is not reused */
async function build(directory: string): Promise<void> {
  const unfinished = `${directory}.unfinished`
  rmSync(unfinished, { recursive: true, force: true })
  mkdirSync(unfinished, { recursive: true })
  await fetchCommit()
  const archive = join(unfinished, 'source.tar')
  await run('git', ['archive', '--output', archive, PREVIOUS.commit], ROOT)
  await run('tar', ['-xf', archive], unfinished)
  try {
    await run('npm', ['ci', '--ignore-scripts', '--no-audit', '--no-fund'], unfinished)
  } catch (error) {
    throw notTested('Its dependencies cannot be installed. Check that npm reaches its registry', error)
  }
  await run('npm', ['run', 'build'], unfinished)
  renameSync(unfinished, directory)
}

/** A shallow clone, as in CI, has the last commit alone. */
async function fetchCommit(): Promise<void> {
  try {
    await run('git', ['cat-file', '-e', `${PREVIOUS.commit}^{commit}`], ROOT)
  } catch {
    try {
      await run('git', ['fetch', '--quiet', '--depth', '1', 'origin', PREVIOUS.commit], ROOT)
    } catch (error) {
      throw notTested(`This clone lacks its commit. Run "git fetch origin ${PREVIOUS.commit}"`, error)
    }
  }
}

function notTested(advice: string, error: unknown): Error {
  const { stderr, message } = error as Error & { stderr?: string }
  const lines = (stderr || message).split('\n')
  const reason = lines.find((line) => line !== '' && !line.startsWith('npm warn'))
  return new Error(`!!! UPGRADES ARE NOT TESTED from ${PREVIOUS.version}. ${advice}. (${reason})`)
}

const execute = promisify(execFile)

const run = (program: string, args: string[], cwd: string) => execute(program, args, { cwd })

/** A column and an index on the table of members, like those that releases add. */
const NEXT_MIGRATION = `
alter table audience_member add column of_next_release text;
create index audience_member_of_next_release on audience_member (channel_oa_id, of_next_release)
 where of_next_release is not null;
`

/** Copies the current build into `directory` and adds a migration, so that its schema is always newer than that of the last release. */
export function assembleNextVersion(directory: string): string {
  for (const name of ['dist', 'migrations', 'package.json']) {
    cpSync(join(ROOT, name), join(directory, name), { recursive: true })
  }
  symlinkSync(join(ROOT, 'node_modules'), join(directory, 'node_modules'))
  const number = String((readMigrations().at(-1)?.version ?? 0) + 1).padStart(4, '0')
  writeFileSync(join(directory, 'migrations', `${number}-of-next-release.sql`), NEXT_MIGRATION)
  return join(directory, PROGRAM)
}
