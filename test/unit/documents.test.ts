/** The documents name files that exist, and limits as they are in the code. */
import { readdirSync, readFileSync } from 'node:fs'
import { basename } from 'node:path'
import { fileURLToPath } from 'node:url'
import { expect, it } from 'vitest'
import { FAILURE_REASONS } from '../../src/accounts/verification.ts'
import { REASONS } from '../../src/watch/account-status.ts'

const ROOT = fileURLToPath(new URL('../..', import.meta.url))
/** Names files of other projects. */
const TOOLS = 'docs/tools.md'
const NOT_OURS = /^(node_modules|dist(\.\d+)?|\.git)$/

function filesBelow(directory: string): string[] {
  return readdirSync(`${ROOT}/${directory}`, { withFileTypes: true }).flatMap((entry) => {
    const path = directory === '' ? entry.name : `${directory}/${entry.name}`
    if (!entry.isDirectory()) return [path]
    return NOT_OURS.test(entry.name) ? [] : filesBelow(path)
  })
}

const files = filesBelow('')
const documents = files.filter(
  (file) => file.endsWith('.md') && file !== TOOLS && basename(file) !== 'CHANGELOG.md',
)

/** The files and folders of code in a text that do not exist. */
function missingIn(text: string): string[] {
  const named =
    text.match(/(?<![\w/.:*@-])(?:[\w.][\w./-]*\.(?:ts|tsx|mjs|sql)\b|src\/[\w/-]+\b(?!\.))/g) ?? []
  return named.filter((name) => {
    const path = name.replace(/^(\.\.?\/)+/, '').replace(/\/$/, '')
    return !files.some((file) => `/${file}`.endsWith(`/${path}`) || file.startsWith(`${path}/`))
  })
}

it.each(documents)('%s names files and folders of code that exist', (document) => {
  expect(missingIn(readFileSync(`${ROOT}/${document}`, 'utf8'))).toEqual([])
})

it.each(documents.filter((file) => /decisions\/\d/.test(file)))(
  '%s says what would change it',
  (document) => {
    expect(readFileSync(`${ROOT}/${document}`, 'utf8')).toMatch(/\*\*What would change our mind:\*\* /)
  },
)

it('comments name files and folders of code that exist', () => {
  const missing = files
    .filter((file) => /\.(ts|tsx|mjs|sql)$/.test(file))
    .flatMap((file) => {
      const text = readFileSync(`${ROOT}/${file}`, 'utf8')
      const comments = text.match(/\/\*\*[\s\S]*?\*\/|^\s*(?:\/\/|--) .*$/gm) ?? []
      return missingIn(comments.join('\n')).map((name) => `${file}: ${name}`)
    })
  expect(missing).toEqual([])
})

it('docs/attacks.md names a test that exists for each attack', () => {
  const table = readFileSync(`${ROOT}/docs/attacks.md`, 'utf8').match(/^\|(?! attack |-).*$/gm) ?? []
  const cells = table.map((row) => [...(row.split('|').at(-2) ?? '').matchAll(/`([^`]+)`/g)])
  expect(cells.filter((found) => found.length === 0)).toEqual([])
  const names = cells.flat().map(([, name]) => name)
  expect(names.length).toBeGreaterThan(100)
  expect(names.filter((name) => !files.includes(`test/${name}.test.ts`))).toEqual([])
})

it('docs/verify.md names checks and reasons that exist, and each of them', () => {
  const rows = readFileSync(`${ROOT}/docs/verify.md`, 'utf8').match(/^\|(?! fault |-).*$/gm) ?? []
  const codesIn = (column: number) =>
    rows.flatMap((row) => [...(row.split('|')[column] ?? '').matchAll(/`(\w+)`/g)].map(([, code]) => code))
  // A call that LINE refuses for another reason, and a test that fails for a new one, say what LINE said.
  const unnamed = ['call_refused', 'test_failed', 'nothing_to_test']
  expect([...new Set(codesIn(2)), ...unnamed].sort()).toEqual([...FAILURE_REASONS].sort())
  // These are no faults of the account's set-up.
  const others = ['deliveries_failed', 'events_unapplied', 'endpoint_failing', 'endpoint_failed']
  expect([...new Set(codesIn(3)), ...others].sort()).toEqual(Object.keys(REASONS).sort())
})

/** The value of a constant, or of a property, that a file gives as a number or a product. */
function limitOf(file: string, name: string): number {
  const text = readFileSync(`${ROOT}/src/${file}`, 'utf8')
  const [, product] = new RegExp(`\\b${name}(?: =|:) ([\\d_]+(?: \\* [\\d_]+)*)`).exec(text) ?? []
  if (product === undefined) throw new Error(`src/${file} has no number ${name}`)
  const factors = product.replaceAll('_', '').split(' * ').map(Number)
  return factors.reduce((value, factor) => value * factor)
}

/** How a document writes a limit: the divisor of the constant and the unit. */
const UNITS: Record<string, number> = { s: 1_000, ms: 1, KiB: 1024, MiB: 1024 ** 2, Mi: 1024 ** 2 }
const inUnit = (value: number, unit?: string) =>
  unit === undefined ? value.toLocaleString('en') : `${value / (UNITS[unit] as number)} ${unit}`

/** The document and the beginning of a row of its tables, and below it the constants that the row contains, with their units. */
const LIMITS = `
  operate/monitor | events of one source that wait for a flush
    intake/line/line-source.ts maxEvents
    intake/mbox/mbox-source.ts maxEvents
    intake/tracking/tracking-source.ts maxEvents
  operate/monitor | payload of one source that waits for a flush
    intake/line/line-source.ts maxPayload Mi
    intake/mbox/mbox-source.ts maxPayload Mi
    intake/tracking/tracking-source.ts maxPayload Mi
  operate/monitor | levels of arrays and objects in one event
    intake/event-fields.ts MAX_LEVELS
  operate/monitor | request bodies of one source in memory
    intake/line/line-source.ts maxBodyBytes MiB
    intake/mbox/mbox-source.ts maxBodyBytes MiB
    intake/tracking/tracking-source.ts maxBodyBytes MiB
    http/body.ts OTHER_BODIES_MAX_BYTES MiB
  operate/monitor | large bodies
    http/body.ts LARGE_BODY_BYTES KiB
  operate/monitor | connections without a request per instance
    http/server.ts IDLE_MAX
  operate/monitor | ID tokens that wait
    line-api/id-tokens.ts WAITING_MAX
  operate/monitor | concurrent statements of one account
    postgres/pool/turns.ts ACCOUNT_MAX
    postgres/pool/turns.ts WAIT_MAX_MS s
  operate/monitor | one SQL statement of a request
    postgres/pool/connection-settings.ts STATEMENT_TIMEOUT_MS s
  operate/monitor | wait for a row lock
    postgres/pool/connection-settings.ts LOCK_TIMEOUT_MS ms
  operate/monitor | concurrent streams per instance
    http/streamer.ts STREAMS_MAX
  operate/monitor | concurrent streams per client, and per organization
    http/streamer.ts STREAMS_PER_OWNER_MAX
  operate/monitor | downloads of the console per instance
    http/streamer.ts STREAMS_MAX
    http/streamer.ts STREAMS_PER_OWNER_MAX
  operate/monitor | time that the client of a stream may take
    http/streamer.ts PIECE_MAX_MS s
    http/streamer.ts PIECE_BYTES KiB
  operate/monitor | members that one page examines
    audience/list-statements.ts SCAN_MAX
  operate/monitor | lookups of endpoints' names at a time
    endpoints/resolver.ts LOOKUPS_MAX
    endpoints/resolver.ts LOOKUP_MAX_MS s
  operate/monitor | requests to endpoints in flight per instance
    endpoints/queue.ts IN_FLIGHT_MAX
    endpoints/queue.ts ENDPOINT_IN_FLIGHT_MAX
  operate/monitor | notifications in flight per instance
    watch/notifications/outbox.ts IN_FLIGHT_MAX
    watch/notifications/outbox.ts LEASE_SECONDS
  operate/monitor | deliveries in memory per endpoint and instance
    endpoints/queue.ts WAITING_MAX_PROVEN
    endpoints/queue.ts WAITING_MAX_SLOW
    endpoints/queue.ts UNCERTAIN_MAX
  api | request body
    config/limits.ts BODY_MAX_BYTES MiB
    http/body.ts GZIP_RATIO_MAX
  api | \`limit\`
    audience/list.ts LIMIT_MAX
    audience/list.ts LIMIT_DEFAULT
  api | \`tags\`
    audience/update.ts TAGS_MAX
  api | \`attributes\`
    audience/update.ts ATTRIBUTES_MAX_BYTES KiB
`
  .trim()
  .split(/\n {2}(?! )/)
  .map((block) => block.split('\n').map((line) => line.trim()))

it.each(LIMITS)('docs/%s states the limits as they are in the code', (place, ...constants) => {
  const [document = '', beginning] = place.split(' | ')
  const lines = readFileSync(`${ROOT}/docs/${document}.md`, 'utf8').split('\n')
  const row = lines.find((line) => line.startsWith(`| ${beginning}`))
  for (const constant of constants) {
    const [file = '', name = '', unit] = constant.split(' ')
    expect(row).toMatch(new RegExp(`(?<![\\d,])${inUnit(limitOf(file, name), unit)}(?![\\d,]\\d)`))
  }
})

// A decision explains what the forbidden form does.
const instructions = documents.filter((document) => !document.startsWith('docs/decisions/'))

it.each(instructions)(
  '%s runs no package of a stranger: outside a checkout, npx would download one',
  (document) => {
    const text = readFileSync(`${ROOT}/${document}`, 'utf8')
    expect(text.match(/npx (?!--no )\S*oa-audience.*/g) ?? []).toEqual([])
  },
)
