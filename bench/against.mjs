/**
 * `npm run bench -- NAME --against REF`: runs a benchmark of this checkout and of a commit in turn, each with its own code and schema, and
 * compares the processor times that `intake` prints.
 */
import { spawnSync } from 'node:child_process'
import { mkdtempSync, readFileSync, symlinkSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { median } from './load.mjs'

const HERE = fileURLToPath(new URL('..', import.meta.url))
/** The machine's speed drifts, so one run of each says little. */
const ROUNDS = 3

/** The commit is built with its own packages, which are those of this checkout if the lock files are equal. */
export function runAgainst(name, ref, flags) {
  const directory = join(mkdtempSync(join(tmpdir(), 'bench-')), 'before')
  run(HERE, 'git', 'worktree', 'add', '--detach', directory, ref)
  try {
    const [lock, lockBefore] = [HERE, directory].map((checkout) =>
      readFileSync(join(checkout, 'package-lock.json'), 'utf8'),
    )
    if (lock === lockBefore) symlinkSync(join(HERE, 'node_modules'), join(directory, 'node_modules'))
    else run(directory, 'npm', 'ci', '--silent')
    for (const checkout of [directory, HERE]) run(checkout, 'npm', 'run', '--silent', 'build')
    const costs = [[], []]
    for (let round = 1; round <= (flags.includes('--smoke') ? 1 : ROUNDS); round += 1) {
      for (const [index, checkout] of [directory, HERE].entries()) {
        console.log(`\n== ${name}, round ${round}, ${index === 0 ? ref : 'this checkout'}`)
        const output = run(checkout, process.execPath, 'bench/main.mjs', name, ...flags)
        const cost = /service \d+ µs = ([\d.]+) × bare, PostgreSQL \d+ µs = ([\d.]+) × bare/.exec(output)
        if (cost !== null) costs[index].push(cost.slice(1).map(Number))
      }
    }
    compare(costs, ref)
  } finally {
    run(HERE, 'git', 'worktree', 'remove', '--force', directory)
  }
}

/** @param {number[][][]} costs of the commit and of this checkout: service and PostgreSQL of each round */
function compare([before, after], ref) {
  if (before.length === 0 || after.length === 0) return
  const ratio = (part) =>
    (median(after.map((cost) => cost[part])) / median(before.map((cost) => cost[part]))).toFixed(2)
  console.log(
    `\nprocessor time per delivery, this checkout / ${ref}: service ${ratio(0)}, PostgreSQL ${ratio(1)}`,
  )
}

function run(cwd, program, ...args) {
  const { status, stdout } = spawnSync(program, args, {
    cwd,
    stdio: ['ignore', 'pipe', 'inherit'],
    encoding: 'utf8',
  })
  process.stdout.write(stdout)
  if (status !== 0) throw new Error(`${program} ${args.join(' ')} failed`)
  return stdout
}
