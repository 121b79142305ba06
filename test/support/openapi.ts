/** Validates values against the schemas of docs/openapi.json, as a client or a receiver would. */
import { readFileSync } from 'node:fs'
import { Ajv2020, type AnySchema } from 'ajv/dist/2020.js'
import addFormats from 'ajv-formats'

export const OPENAPI_FILE = new URL('../../docs/openapi.json', import.meta.url)

// biome-ignore lint/suspicious/noExplicitAny: tests read any part of the document
type Part = any

export const openapi: Part = JSON.parse(readFileSync(OPENAPI_FILE, 'utf8'))

/** Every object of the document with its JSON pointer. */
export function* parts(part: Part = openapi, pointer = '#'): Generator<[pointer: string, part: Part]> {
  if (typeof part !== 'object' || part === null) return
  yield [pointer, part]
  for (const [key, child] of Object.entries(part)) {
    yield* parts(child, `${pointer}/${key.replaceAll('~', '~0').replaceAll('/', '~1')}`)
  }
}

/** Clients must accept new fields, but the service must send none that are not published. */
const closed: Part = structuredClone(openapi)
for (const [, part] of parts(closed)) {
  if (part.type === 'object' && part.properties) part.additionalProperties ??= false
}

const ajv = new Ajv2020({ strict: false, allErrors: true })
addFormats.default(ajv)
ajv.addSchema(closed as AnySchema, 'openapi')

/** The faults of a value. `pointer`: of the schema in the document. */
export function faultsOf(pointer: string, value: unknown): string[] {
  const encoded = pointer
    .split('/')
    .map((segment, index) => (index === 0 ? segment : encodeURIComponent(segment)))
    .join('/')
  const validate = ajv.compile({ $ref: `openapi${encoded}` })
  validate(value)
  return (validate.errors ?? []).map(({ instancePath, message, params }) =>
    `${instancePath} ${message} ${JSON.stringify(params)}`.trim(),
  )
}
