/** Every program that a person starts refuses a Node.js that is too old. */
import { spawnSync } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { expect, it } from 'vitest'

const ROOT = fileURLToPath(new URL('../..', import.meta.url))
const { scripts } = JSON.parse(readFileSync(`${ROOT}/package.json`, 'utf8')) as {
  scripts: Record<string, string>
}

const BUILD = 'npm run --silent build'

/** Runs the program on this Node.js, which reports another version. */
function runOn(version: string, program: string) {
  const fake = `Object.defineProperty(process, 'version', { value: '${version}' })`
  const args = ['--import', `data:text/javascript,${encodeURIComponent(fake)}`, program, '--version']
  const { status, stdout, stderr } = spawnSync(process.execPath, args, { cwd: ROOT, encoding: 'utf8' })
  return { status, stdout, stderr }
}

it.each(['dist/src/cli/main.js', 'scripts/build.mjs', 'scripts/build-if-possible.mjs', 'scripts/dev.mjs'])(
  '%s refuses an older Node.js in one sentence',
  (program) => {
    expect(runOn('v20.9.0', program)).toEqual({
      status: 1,
      stdout: '',
      stderr: `oa-audience: this is Node v20.9.0. Install Node 20.19 or newer (https://nodejs.org).\n`,
    })
  },
)

it('runs on the oldest and on newer versions', () => {
  for (const version of ['v20.19.0', 'v100.1.0'])
    expect(runOn(version, 'dist/src/cli/main.js')).toMatchObject({ status: 0, stderr: '' })
})

it('builds before every npm script that starts another program, and the build checks the version', () => {
  const checked = /^(exec )?node scripts\/(build|build-if-possible|dev)\.mjs$/
  // Formats, or runs for the registry only; `check` ends with `npm test`, and Biome and the compiler run on any Node.js.
  const others = ['format', 'check', 'prepack', 'postpack']
  for (const [name, command] of Object.entries(scripts).filter(([each]) => !others.includes(each)))
    expect(
      [command, scripts[`pre${name}`]].some((each) => checked.test(each ?? '') || each === BUILD),
      name,
    ).toBe(true)
})
