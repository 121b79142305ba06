/** The options of `npm run soak`. */
import { randomInt } from 'node:crypto'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { parseArgs } from 'node:util'

const HOURS_MAX = 168

export const HELP = `npm run soak -- [--hours H | --minutes M] [--rate max] [--seed N] [--output DIR]
npm run soak -- --pressure [--minutes M] [--output DIR]

Runs the service under load with random kills, checks the books, and records one line of figures a minute.

  --hours H      duration; fractions are allowed (default 2)
  --minutes M    duration in minutes instead
  --rate max     adds as many events of LINE as the machine can take (default: a fixed load only)
  --pressure     locks, killed sessions and other kinds of pressure in turn instead, for 15 minutes by default
  --seed N       draws the same times of kills again (default: random, printed)
  --output DIR   for figures.jsonl, summary.json and the services' logs (default: a new directory in the
                 system's one for temporary files)

Exit status: 0 if the books are right, 1 if one is wrong, 2 if an option is wrong. Ctrl-C ends the run early, with a last
check and the summary. bench/soak/README.md explains the figures.
`

const TEXT = { type: 'string' }

/** Throws an Error with one line if an option is wrong. */
export function readOptions(args) {
  const { values } = parseArgs({
    args,
    options: {
      hours: TEXT,
      minutes: TEXT,
      rate: TEXT,
      pressure: { type: 'boolean', default: false },
      seed: TEXT,
      output: TEXT,
      help: { type: 'boolean', short: 'h' },
    },
  })
  const { hours, minutes, rate, pressure, seed, output, help = false } = values
  if (hours !== undefined && minutes !== undefined)
    throw new Error('--hours and --minutes exclude each other')
  if (rate !== undefined && rate !== 'max') throw new Error('--rate must be max')
  const durationMs =
    minutes === undefined
      ? 3_600_000 * number('--hours', hours ?? (pressure ? '0.25' : '2'), 1 / 60, HOURS_MAX)
      : 60_000 * number('--minutes', minutes, 1, HOURS_MAX * 60)
  return {
    help,
    durationMs,
    isPressure: pressure,
    isFullRate: rate === 'max',
    seed: Math.trunc(number('--seed', seed ?? String(randomInt(2 ** 31)), 0, 2 ** 31 - 1)),
    directory:
      output ??
      join(tmpdir(), `oa-audience-soak-${new Date().toISOString().slice(0, 19).replaceAll(':', '')}`),
  }
}

function number(name, text, min, max) {
  const value = Number(text)
  if (text.trim() !== '' && value >= min && value <= max) return value
  throw new Error(`${name} must be a number from ${Number(min.toFixed(3))} to ${max}`)
}
