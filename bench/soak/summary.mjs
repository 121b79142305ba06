/** The result of a run in words and numbers. */
import { PANELS, wholeMinutes } from './series.mjs'

const HOUR_MINUTES = 60

/**
 * @param {object} outcome of the run
 * @param {object[]} lines of figures
 * @returns {{text: string, summary: object}}
 */
export function summarize(outcome, lines) {
  const minutes = wholeMinutes(lines)
  // The first and the last hour, or the halves of a shorter run.
  const span = Math.min(HOUR_MINUTES, Math.ceil(minutes.length / 2))
  const trends = PANELS.flatMap(({ title, unit, series }) =>
    series.map(({ name, value }) => {
      const values = minutes.map(({ line, before }) => value(line, before))
      const known = values.filter((one) => one !== null)
      return {
        title,
        name,
        unit,
        max: known.length === 0 ? null : Math.max(...known),
        first: median(values.slice(0, span)),
        last: median(values.slice(-span)),
      }
    }),
  )
  return { text: describe(outcome, trends, span), summary: { ...outcome, trends } }
}

function median(values) {
  const known = values.filter((value) => value !== null).sort((a, b) => a - b)
  return known[Math.floor(known.length / 2)] ?? null
}

function describe({ seed, hours, books, checks, kills, acknowledged, received }, trends, span) {
  const rows = trends.map(({ title, name, unit, max, first, last }) => {
    const numbers = [max, first, last].map((value) => shown(value).padStart(10)).join('')
    return `${`${title.replace(/ \(.*/, '')}, ${name}`.padEnd(56)}${numbers}  ${unit.replace(/,.*/, '')}`
  })
  const { line, chat, tracking, updates, erasures, read } = acknowledged
  return [
    '',
    `${hours.toFixed(2)} h, seed ${seed}; ${kills.service} kills of a service, ${kills.postgres} of PostgreSQL; ${checks} checks`,
    `books: ${books}`,
    `acknowledged: ${line + chat + tracking} events (LINE ${line}, chat ${chat}, tracking ${tracking}), ${updates} updates, ${erasures} erasures; ${read} members read`,
    `endpoints received: ${received.line} events (${received.repeated} of them again), ${received.members} changes; ${received.refused} refused with 503`,
    '',
    `${`median of the first and of the last ${span} minutes`.padEnd(56)}${['maximum', 'first', 'last'].map((name) => name.padStart(10)).join('')}`,
    ...rows,
  ].join('\n')
}

export function shown(value) {
  if (value === null) return '-'
  return value >= 100 ? String(Math.round(value)) : String(Number(value.toPrecision(3)))
}
