/** Directories that the server's user can enter. */
import { existsSync, mkdirSync, statSync } from 'node:fs'
import { dirname } from 'node:path'

/** Like `mkdir -p`. Node's recursive mkdir does not terminate below /proc. */
export function makeDirectories(path: string): void {
  if (existsSync(path)) return
  makeDirectories(dirname(path))
  try {
    mkdirSync(path)
  } catch (error) {
    // Another process may have created it meanwhile.
    if (!existsSync(path)) throw error
  }
}

export function canEveryoneEnter(path: string): boolean {
  for (let directory = path; ; directory = dirname(directory)) {
    if ((statSync(directory).mode & 0o001) === 0) return false
    if (directory === dirname(directory)) return true
  }
}
