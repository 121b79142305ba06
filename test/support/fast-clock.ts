/** libfaketime of Debian's package faketime: the clock of one process, and so its timers, run faster. */
import { existsSync, readdirSync } from 'node:fs'

const libraries = (existsSync('/usr/lib') ? readdirSync('/usr/lib') : [])
  .map((directory) => `/usr/lib/${directory}/faketime/libfaketimeMT.so.1`)
  .filter((path) => existsSync(path))

/** The environment of a process whose clock runs this much faster. Null without the library: the run then reports what it does not test. */
export function fastClock(speed: number, what: string): Record<string, string> | null {
  const [library = process.env.FAKETIME_LIBRARY] = libraries
  if (library !== undefined) return { LD_PRELOAD: library, FAKETIME: `+0 x${speed}` }
  console.warn(`\n!!! faketime is not installed: ${what} is NOT tested\n`)
  return null
}
