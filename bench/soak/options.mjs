/** The options of `npm run soak`. */
import { randomInt } from 'node:crypto'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { parseArgs } from 'node:util'

const MINUTES_MIN = 1
const HOURS_MAX = 168

export const HELP = `npm run soak -- [--hours H | --minutes M] [--rate max] [--seed N] [--output DIR]

Runs the service under load with random kills, checks the books, and records one line of figures a minute.

  --hours H      duration; fractions are allowed (default 2)
  --minutes M    duration in minutes instead
  --rate max     adds as many events of LINE as the machine can take (default: a fixed load only)
  --seed N       draws the same times of kills again (default: random, printed)
  --output DIR   for figures.jsonl, summary.json, plot.svg and the services' logs (default: a new directory in the
                 system's one for temporary files)

Exit status: 0 if the books are right, 1 if one is wrong, 2 if an option is wrong. Ctrl-C ends the run early, with a last
check and the summary. bench/soak/README.md explains the figures.
`

/**
 * Throws an Error with one line if an option is wrong.
 * @param {string[]} args
 * @returns {{help: boolean, durationMs: number, isFullRate: boolean, seed: number, directory: string}}
 */
export function readOptions(args) {
  const { values } = parseArgs({
    args,
    options: {
      hours: { type: 'string' },
      minutes: { type: 'string' },
      rate: { type: 'string' },
      seed: { type: 'string' },
      output: { type: 'string' },
      help: { type: 'boolean', short: 'h', default: false },
    },
  })
  if (values.hours !== undefined && values.minutes !== undefined) {
    throw new Error('--hours and --minutes exclude each other')
  }
  if (values.rate !== undefined && values.rate !== 'max') throw new Error('--rate must be max')
  const minutes =
    values.minutes === undefined
      ? 60 * number('--hours', values.hours ?? '2', MINUTES_MIN / 60, HOURS_MAX)
      : number('--minutes', values.minutes, MINUTES_MIN, HOURS_MAX * 60)
  const seed = values.seed === undefined ? randomInt(2 ** 31) : number('--seed', values.seed, 0, 2 ** 31 - 1)
  if (!Number.isInteger(seed)) throw new Error('--seed must be an integer')
  const started = new Date().toISOString().slice(0, 19).replaceAll(':', '')
  return {
    help: values.help,
    durationMs: minutes * 60_000,
    isFullRate: values.rate === 'max',
    seed,
    directory: values.output ?? join(tmpdir(), `oa-audience-soak-${started}`),
  }
}

function number(name, text, min, max) {
  const value = Number(text)
  if (text.trim() === '' || !(value >= min && value <= max)) {
    throw new Error(`${name} must be a number from ${Number(min.toFixed(3))} to ${max}`)
  }
  return value
}
