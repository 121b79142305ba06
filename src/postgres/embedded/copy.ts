/** A copy of the binaries that another user may run. */
import {
  chmodSync,
  copyFileSync,
  lstatSync,
  mkdirSync,
  readdirSync,
  readlinkSync,
  renameSync,
  rmSync,
  type Stats,
  symlinkSync,
} from 'node:fs'
import { join } from 'node:path'

/**
 * Copies what is missing or has another size. Each file gets its name when it is complete, so a kill leaves no partial file, and
 * a running server keeps the files that it has opened.
 */
export function completeCopy(from: string, to: string): void {
  const found = lstatSync(from)
  if (!found.isDirectory()) {
    if (lstatSync(to, { throwIfNoEntry: false })?.size !== found.size) copyEntry(from, to, found)
    return
  }
  makeReadableDirectory(to)
  for (const name of readdirSync(from)) completeCopy(join(from, name), join(to, name))
}

/** Lets every user enter. Throws if another user could have changed what is in it. */
export function makeReadableDirectory(directory: string): void {
  mkdirSync(directory, { recursive: true, mode: 0o755 })
  const { uid, mode } = lstatSync(directory)
  if (uid !== process.getuid?.() || (mode & 0o022) !== 0) {
    throw new Error(`other users can write to ${directory}`)
  }
  // This process may have any umask.
  chmodSync(directory, 0o755)
}

function copyEntry(from: string, to: string, found: Stats): void {
  const incomplete = `${to}.${process.pid}`
  rmSync(incomplete, { force: true })
  if (found.isSymbolicLink()) {
    symlinkSync(readlinkSync(from), incomplete)
  } else {
    copyFileSync(from, incomplete)
    chmodSync(incomplete, (found.mode & 0o100) !== 0 ? 0o755 : 0o644)
  }
  renameSync(incomplete, to)
}
