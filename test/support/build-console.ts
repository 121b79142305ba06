/** Builds the pages of the console before tests with browsers, unless they are newer than their sources. */
import { spawnSync } from 'node:child_process'

export default function buildConsole(): void {
  // With the NODE_ENV of Vitest, the bundle would have the development build of its libraries.
  const env = { ...process.env, NODE_ENV: 'production' }
  const { status } = spawnSync(process.execPath, ['scripts/bundle.mjs', 'dist'], { stdio: 'inherit', env })
  if (status !== 0) throw new Error('The pages of the console could not be built: see the message above.')
}
