/** The examples of the OpenAPI document match the schemas beside them, and a linter finds no fault in the document. */
import { spawnSync } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import { expect, it } from 'vitest'
import { CSV_HEADER } from '../../src/audience/member.ts'
import { faultsOf, openapi, parts } from '../support/openapi.ts'

const all = [...parts()]
const withoutName = (path: string) => path.slice(0, path.lastIndexOf('/'))

/** The examples of schemas, and those of bodies and parameters, which stand beside their schema. */
const examples = all.flatMap(([pointer, part]) => {
  const isNamedProperty = withoutName(pointer).endsWith('/properties')
  if (pointer.includes('/examples/') || isNamedProperty || pointer.endsWith('/properties')) return []
  if (Array.isArray(part.examples)) {
    return part.examples.map((example: unknown) => ({ pointer, example }))
  }
  return 'example' in part ? [{ pointer: `${pointer}/schema`, example: part.example }] : []
})

it('examples match their schemas', () => {
  expect(examples.length).toBeGreaterThan(15)
  for (const { pointer, example } of examples) expect(faultsOf(pointer, example), pointer).toEqual([])
})

it('examples exist for every named schema', () => {
  const { schemas } = openapi.components
  expect(Object.keys(schemas).filter((name) => schemas[name].examples === undefined)).toEqual([])
})

it('examples of streams have lines that match, and the columns of the service', () => {
  const { MemberLines, MemberTable } = openapi.components.schemas
  const lines: string[] = MemberLines.examples[0].trimEnd().split('\n')
  for (const line of lines) {
    expect(faultsOf('#/components/schemas/MemberLines/contentSchema', JSON.parse(line))).toEqual([])
  }
  expect(MemberTable.examples[0].split('\r\n')[0]).toBe(CSV_HEADER)
})

it.each(['docs/openapi.json', 'dist/docs/console-openapi.json'])(
  'the linter has nothing to say about %s',
  (file) => {
    const root = fileURLToPath(new URL('../..', import.meta.url))
    const options = ['--config=redocly.yaml', '--format=json']
    const command = ['node_modules/@redocly/cli/bin/cli.js', 'lint', file, ...options]
    // The linter reaches no other machine.
    const offline = { REDOCLY_TELEMETRY: 'off', REDOCLY_SUPPRESS_UPDATE_NOTICE: 'true', CI: 'true' }
    const { status, stdout, stderr } = spawnSync(process.execPath, command, {
      ...{ cwd: root, env: { ...process.env, ...offline }, encoding: 'utf8', timeout: 60_000 },
    })
    expect(status, `${stdout}${stderr}`).toBe(0)
    expect(JSON.parse(stdout).totals, stdout).toMatchObject({ errors: 0, warnings: 0 })
  },
  60_000,
)
