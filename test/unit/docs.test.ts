/** What the documents say of errors, answers and commands is complete and true. Their commands are run by `npm run docs`. */

import { spawnSync } from 'node:child_process'
import { readdirSync, readFileSync } from 'node:fs'
import Value from 'typebox/value'
import { describe, expect, it } from 'vitest'
import { VerificationSchema } from '../../src/accounts/verification.ts'
import { MemberSchema } from '../../src/audience/member.ts'
import { ERROR_MESSAGES, type ErrorCode } from '../../src/errors.ts'
import { ERROR_STATUS, ErrorEnvelopeSchema } from '../../src/http/error-envelope.ts'
import { Metrics } from '../../src/http/metrics.ts'
import { createServer } from '../../src/http/server.ts'

const read = (path: string) => readFileSync(new URL(`../../${path}`, import.meta.url), 'utf8')

it('docs/errors.md has one row for each error, with its status and message, and no other', () => {
  const text = read('docs/errors.md')
  const rows = [...text.matchAll(/^\| (\d{3}) +\| (.+?) +\| .+ \|$/gm)].map(
    ([, status, message]) => `${status} ${message}`,
  )
  const codes = Object.keys(ERROR_MESSAGES) as ErrorCode[]
  const expected = new Set(codes.map((code) => `${ERROR_STATUS[code]} ${ERROR_MESSAGES[code]}`))
  expect(rows.toSorted()).toEqual([...expected].sort())
})

it.each([
  ['docs/errors.md', [ErrorEnvelopeSchema]],
  ['docs/api.md', [MemberSchema, VerificationSchema]],
])('the answers shown in %s have the shape of real ones', (path, schemas) => {
  const shown = [...read(path).matchAll(/^```json\n([\s\S]*?)^```$/gm)].map(([, text]) =>
    JSON.parse(text as string),
  )
  expect(shown).toHaveLength(schemas.length)
  for (const [i, schema] of schemas.entries()) expect([...Value.Errors(schema, shown[i])]).toEqual([])
})

it('alerts and the dashboard ask for metrics that there are', async () => {
  const metrics = new Metrics()
  const app = createServer({ logLevel: 'silent', trustProxy: [] })
  metrics.measureRequests(app)
  metrics.watchPool(() => ({ total: 0, idle: 0, waiting: 0 }))
  metrics.watchProfileBacklog(async () => 0)
  const names = (await metrics.registry.getMetricsAsArray()).map(({ name }) => name)
  for (const file of ['deploy/alerts.yaml', 'deploy/grafana-dashboard.json']) {
    for (const [asked] of read(file).matchAll(/oa_audience_[a-z_]+/g)) {
      expect(names, `${file}: ${asked}`).toContain(asked.replace(/_(bucket|sum|count)$/, ''))
    }
  }
  const counted = await metrics.registry.getSingleMetricAsString('oa_audience_events_total')
  expect(counted).toContain('oa_audience_events_total{source="line",outcome="unapplied"} 0')
})

describe('every command that the documents name', () => {
  const files = ['README.md', 'SECURITY.md', 'CONTRIBUTING.md', 'bench/README.md']
  for (const name of readdirSync(new URL('../../docs', import.meta.url))) {
    if (name.endsWith('.md')) files.push(`docs/${name}`)
  }
  const help = (...group: string[]) =>
    spawnSync(process.execPath, ['dist/src/cli/main.js', ...group, '--help'], { encoding: 'utf8' }).stdout
  const commandsOf = (text: string) =>
    [...text.matchAll(/^ {2}([a-z][a-z-]+)/gm)].map(([, name]) => name as string)

  it('is one of the command line', () => {
    const groups = new Map<string, string[]>()
    const commands = commandsOf(help())
    for (const file of files) {
      for (const [mention, group = '', command] of read(file).matchAll(
        /oa-audience ([a-z]+)(?: ([a-z][a-z-]+))?/g,
      )) {
        expect(commands, `${file}: ${mention}`).toContain(group)
        if (!groups.has(group)) groups.set(group, commandsOf(help(group)))
        const subcommands = groups.get(group)?.filter((name) => name !== 'help') ?? []
        if (command !== undefined && subcommands.length > 0) {
          expect(subcommands, `${file}: ${mention}`).toContain(command)
        }
      }
    }
  })

  it('is one of the npm scripts', () => {
    const { scripts } = JSON.parse(read('package.json')) as { scripts: Record<string, string> }
    for (const file of files) {
      for (const [mention, name = ''] of read(file).matchAll(/npm run ([a-z:]+)/g)) {
        expect(Object.keys(scripts), `${file}: ${mention}`).toContain(name)
      }
    }
  })
})
