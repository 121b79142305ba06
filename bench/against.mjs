/** `npm run bench -- NAME --against REF`: runs a benchmark of this checkout and of a commit in turn, each with its own code and schema. */
import { spawnSync } from 'node:child_process'
import { mkdtempSync, symlinkSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'

const HERE = fileURLToPath(new URL('..', import.meta.url))
/** The machine's speed drifts, so one run of each says little. */
const ROUNDS = 3

/** The commit is built with the packages of this checkout. */
export function runAgainst(name, ref, flags) {
  const directory = join(mkdtempSync(join(tmpdir(), 'bench-')), 'before')
  run(HERE, 'git', 'worktree', 'add', '--detach', directory, ref)
  try {
    symlinkSync(join(HERE, 'node_modules'), join(directory, 'node_modules'))
    for (const checkout of [directory, HERE]) run(checkout, 'npm', 'run', '--silent', 'build')
    for (let round = 1; round <= (flags.includes('--smoke') ? 1 : ROUNDS); round += 1) {
      for (const [label, checkout] of [
        [ref, directory],
        ['this checkout', HERE],
      ]) {
        console.log(`\n== ${name}, round ${round}, ${label}`)
        run(checkout, process.execPath, 'bench/main.mjs', name, ...flags)
      }
    }
  } finally {
    run(HERE, 'git', 'worktree', 'remove', '--force', directory)
  }
}

function run(cwd, program, ...args) {
  const { status } = spawnSync(program, args, { cwd, stdio: ['ignore', 'inherit', 'inherit'] })
  if (status !== 0) throw new Error(`${program} ${args.join(' ')} failed`)
}
