/** The documents name files that exist, and limits as they are in the code. */
import { readdirSync, readFileSync } from 'node:fs'
import { basename } from 'node:path'
import { fileURLToPath } from 'node:url'
import { expect, it } from 'vitest'

const ROOT = fileURLToPath(new URL('../..', import.meta.url))
/** Names files of other projects. */
const TOOLS = 'docs/tools.md'
const NOT_OURS = new Set(['node_modules', 'dist', '.git', '.versions'])

function filesBelow(directory: string): string[] {
  return readdirSync(`${ROOT}/${directory}`, { withFileTypes: true }).flatMap((entry) => {
    const path = directory === '' ? entry.name : `${directory}/${entry.name}`
    if (!entry.isDirectory()) return [path]
    return NOT_OURS.has(entry.name) ? [] : filesBelow(path)
  })
}

const files = filesBelow('')
const documents = files.filter(
  (file) => file.endsWith('.md') && file !== TOOLS && basename(file) !== 'CHANGELOG.md',
)

it.each(documents)('%s names files of code that exist', (document) => {
  const text = readFileSync(`${ROOT}/${document}`, 'utf8')
  const named = text.match(/(?<![\w/.:*-])[\w.][\w./-]*\.(?:ts|tsx|mjs|sql)\b/g) ?? []
  const missing = named.filter((name) => {
    const path = name.replace(/^(\.\.?\/)+/, '')
    return !files.some((file) => file === path || file.endsWith(`/${path}`))
  })
  expect(missing).toEqual([])
})

/** The value of a constant, or of a property, that a file gives as a number or a product. */
function limitOf(file: string, name: string): number {
  const text = readFileSync(`${ROOT}/src/${file}`, 'utf8')
  const [, product] = new RegExp(`\\b${name}(?: =|:) ([\\d_]+(?: \\* [\\d_]+)*)`).exec(text) ?? []
  if (product === undefined) throw new Error(`src/${file} has no number ${name}`)
  const factors = product.replaceAll('_', '').split(' * ').map(Number)
  return factors.reduce((value, factor) => value * factor)
}

const plain = (value: number) => value.toLocaleString('en')
const seconds = (ms: number) => `${ms / 1000} s`
const milliseconds = (ms: number) => `${ms} ms`
const kibibytes = (bytes: number) => `${bytes / 1024} KiB`
const mebibytes = (bytes: number) => `${bytes / 1024 ** 2} MiB`
const mebi = (characters: number) => `${characters / 1024 ** 2} Mi`

/** The document, the beginning of a row of its tables, and what the row has to contain. */
const LIMITS: Array<[string, string, Array<[file: string, name: string, show: (value: number) => string]>]> =
  [
    [
      'operations',
      'events of one source that wait for a flush',
      [
        ['intake/line/line-source.ts', 'maxEvents', plain],
        ['intake/mbox/mbox-source.ts', 'maxEvents', plain],
        ['intake/tracking/tracking-source.ts', 'maxEvents', plain],
      ],
    ],
    [
      'operations',
      'payload of one source that waits for a flush',
      [
        ['intake/line/line-source.ts', 'maxPayload', mebi],
        ['intake/mbox/mbox-source.ts', 'maxPayload', mebi],
        ['intake/tracking/tracking-source.ts', 'maxPayload', mebi],
      ],
    ],
    [
      'operations',
      'levels of arrays and objects in one event',
      [['intake/json-depth.ts', 'MAX_LEVELS', plain]],
    ],
    [
      'operations',
      'request bodies of one source in memory',
      [
        ['intake/line/line-source.ts', 'maxBodyBytes', mebibytes],
        ['intake/mbox/mbox-source.ts', 'maxBodyBytes', mebibytes],
        ['intake/tracking/tracking-source.ts', 'maxBodyBytes', mebibytes],
        ['http/body.ts', 'OTHER_BODIES_MAX_BYTES', mebibytes],
      ],
    ],
    ['operations', 'large bodies', [['http/body-reader.ts', 'LARGE_BODY_BYTES', kibibytes]]],
    [
      'operations',
      'connections without a request per instance',
      [['http/idle-connections.ts', 'IDLE_MAX', plain]],
    ],
    ['operations', 'ID tokens that wait', [['line-api/waiting-tokens.ts', 'WAITING_MAX', plain]]],
    [
      'operations',
      'concurrent statements of one account',
      [
        ['postgres/pool/turns.ts', 'ACCOUNT_MAX', plain],
        ['postgres/pool/turns.ts', 'WAIT_MAX_MS', seconds],
      ],
    ],
    [
      'operations',
      'one SQL statement of a request',
      [['postgres/pool/connection-settings.ts', 'STATEMENT_TIMEOUT_MS', seconds]],
    ],
    [
      'operations',
      'wait for a row lock',
      [['postgres/pool/connection-settings.ts', 'LOCK_TIMEOUT_MS', milliseconds]],
    ],
    ['operations', 'concurrent streams per instance', [['audience/stream.ts', 'STREAMS_MAX', plain]]],
    [
      'operations',
      'time that the client of a stream may take',
      [
        ['audience/stream.ts', 'PIECE_MAX_MS', seconds],
        ['audience/stream.ts', 'PIECE_BYTES', kibibytes],
      ],
    ],
    ['operations', 'members that one page examines', [['audience/list-statements.ts', 'SCAN_MAX', plain]]],
    [
      'operations',
      "lookups of endpoints' names at a time",
      [
        ['endpoints/resolver.ts', 'LOOKUPS_MAX', plain],
        ['endpoints/resolver.ts', 'LOOKUP_MAX_MS', seconds],
      ],
    ],
    [
      'operations',
      'requests to endpoints in flight per instance',
      [
        ['endpoints/queue.ts', 'IN_FLIGHT_MAX', plain],
        ['endpoints/endpoint-state.ts', 'ENDPOINT_IN_FLIGHT_MAX', plain],
      ],
    ],
    [
      'operations',
      'deliveries in memory per endpoint and instance',
      [
        ['endpoints/endpoint-state.ts', 'WAITING_MAX_PROVEN', plain],
        ['endpoints/endpoint-state.ts', 'WAITING_MAX_SLOW', plain],
        ['endpoints/endpoint-state.ts', 'UNCERTAIN_MAX', plain],
      ],
    ],
    [
      'api',
      'request body',
      [
        ['config/limits.ts', 'BODY_MAX_BYTES', mebibytes],
        ['http/body.ts', 'GZIP_RATIO_MAX', plain],
      ],
    ],
    [
      'api',
      '`limit`',
      [
        ['audience/list.ts', 'LIMIT_MAX', plain],
        ['audience/list.ts', 'LIMIT_DEFAULT', plain],
      ],
    ],
    ['api', '`tags`', [['audience/update.ts', 'TAGS_MAX', plain]]],
    ['api', '`attributes`', [['audience/update.ts', 'ATTRIBUTES_MAX_BYTES', kibibytes]]],
  ]

it.each(LIMITS)('docs/%s.md states the limit of "%s" as it is in the code', (document, beginning, values) => {
  const lines = readFileSync(`${ROOT}/docs/${document}.md`, 'utf8').split('\n')
  const row = lines.find((line) => line.startsWith(`| ${beginning}`))
  for (const [file, name, show] of values)
    expect(row).toMatch(new RegExp(`(?<![\\d,])${show(limitOf(file, name))}(?![\\d,]\\d)`))
})
