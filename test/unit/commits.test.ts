/** CONTRIBUTING.md asks for a sign-off of each commit. */
import { spawnSync } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import { expect, it } from 'vitest'

const ROOT = fileURLToPath(new URL('../..', import.meta.url))
/** The rule holds for every commit after this one. */
const BASE = 'd7ea3a089dee7beb0cd9ac1f758f97c8e4abee72'
const git = (...args: string[]) => spawnSync('git', args, { cwd: ROOT, encoding: 'utf8' })

// Neither an unpacked release nor a shallow clone has the commit.
it.runIf(git('merge-base', '--is-ancestor', BASE, 'HEAD').status === 0)('each commit is signed off', () => {
  const format = '%h %s%x00%(trailers:key=Signed-off-by)%x01'
  const { stdout } = git('log', '--no-merges', `--format=${format}`, `${BASE}..HEAD`)
  const commits = stdout.split('\x01').map((text) => text.trim().split('\0'))
  const unsigned = commits.filter(([subject, trailer]) => subject !== '' && !trailer?.trim())
  expect(unsigned.map(([subject]) => subject)).toEqual([])
})
