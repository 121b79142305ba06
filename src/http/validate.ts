/** Validates input against a schema and reports each invalid field. */
import type { FastifyRequest } from 'fastify'
import { AppError, type ErrorDetail } from '../errors.ts'
import { isStorableText } from '../postgres/storable.ts'
import { parsePathId } from './path-id.ts'
import {
  Compile,
  Settings,
  type Static,
  type TLocalizedValidationError,
  type TSchema,
  Type,
} from './typebox.ts'

/** Validation errors collected per request. One invalid field can cause several. */
const ERRORS_MAX = 64
Settings.Set({ maxErrors: ERRORS_MAX })

export const Nullable = <T extends TSchema>(schema: T) => Type.Union([schema, Type.Null()])

export function StorableText(options: { minLength?: number; maxLength: number; description?: string }) {
  return Type.Refine(
    Type.String(options),
    (text) => isStorableText(text),
    () => 'must not contain the character U+0000 or half a surrogate pair',
  )
}

const isInt64 = (text: string) => !/^-?\d{19}$/.test(text) || BigInt.asIntN(64, BigInt(text)) === BigInt(text)

/** An int64, which is a text in JSON. */
export const IdText = (options: { description?: string } = {}) =>
  Type.Refine(
    Type.String({ pattern: '^-?\\d{1,19}$', ...options }),
    isInt64,
    () => 'must be between -9223372036854775808 and 9223372036854775807',
  )

/** Compiles a schema. The returned check returns the typed value, or throws `invalid_input` with details. */
export function checker<T extends TSchema>(schema: T): (value: unknown) => Static<T> {
  const compiled = Compile(schema)
  return (value) => {
    if (compiled.Check(value)) return value as Static<T>
    const errors = compiled.Errors(value)
    const specific = errors.filter(isSpecific)
    throw new AppError('invalid_input', { details: toDetails(specific.length > 0 ? specific : errors) })
  }
}

/** Throws `invalid_input` for a fault that a schema cannot express. */
export function refuseInput(path: string, message: string): never {
  throw new AppError('invalid_input', { details: [{ path, message }] })
}

/**
 * TypeBox reports an unknown field under its own path and under its object's path. It reports a nullable field three
 * times: for the wrong type, for not being null, and for matching neither. Only the first report of each is specific.
 */
function isSpecific({ keyword, params }: TLocalizedValidationError): boolean {
  if (keyword === 'additionalProperties' || keyword === 'anyOf') return false
  return !(keyword === 'type' && (params as { type?: unknown }).type === 'null')
}

function toDetails(errors: TLocalizedValidationError[]): ErrorDetail[] {
  const paths = [...new Set(errors.map(({ instancePath }) => instancePath))]
  return paths.flatMap((path) => {
    const ofPath = errors.filter(({ instancePath }) => instancePath === path)
    const missing = ofPath.flatMap((error) => (error.keyword === 'required' ? missingOf(error) : []))
    const others = ofPath.filter(({ keyword }) => keyword !== 'required')
    return [
      ...missing.map((name) => ({ path: `${path}/${name}`.slice(1), message: 'is missing' })),
      ...messagesOf(others).map((message) => ({ path: path.slice(1), message })),
    ]
  })
}

const missingOf = ({ params }: TLocalizedValidationError) =>
  (params as { requiredProperties: string[] }).requiredProperties

/** TypeBox reports a union once per alternative. This merges the alternatives into one message. */
function messagesOf(errors: TLocalizedValidationError[]): string[] {
  const alternatives = errors.flatMap(({ keyword, params }) => {
    if (keyword === 'const') return [String((params as { allowedValue: unknown }).allowedValue)]
    return keyword === 'type' ? [typeName((params as { type: string }).type)] : []
  })
  const others = errors.filter(({ keyword }) => keyword !== 'const' && keyword !== 'type')
  if (others.length > 0) return others.map(messageOf)
  if (alternatives.length === 0) return []
  return [`must be ${alternatives.length === 1 ? '' : 'one of '}${alternatives.join(', ')}`]
}

const TYPE_NAMES: Record<string, string> = {
  array: 'an array',
  object: 'an object',
  string: 'a string',
  integer: 'a whole number',
  number: 'a number',
  boolean: 'true or false',
}
const typeName = (type: string) => TYPE_NAMES[type] ?? type

/** In place of those messages of TypeBox that need knowledge of JSON Schema. */
function messageOf({ keyword, params, message }: TLocalizedValidationError): string {
  const { limit, allowedValues } = params as { limit?: number; allowedValues?: unknown[] }
  switch (keyword) {
    case 'boolean':
      return 'is not a known field'
    case 'minLength':
    case 'minItems':
    case 'minProperties':
      return limit === 1 ? 'must not be empty' : message
    case 'minimum':
      return `must be at least ${limit}`
    case 'maximum':
      return `must be at most ${limit}`
    case 'enum':
      return `must be one of ${allowedValues?.join(', ')}`
    default:
      return message
  }
}

// The If-Match header: a client's condition that the member has not changed since it was read.

/** A compressing proxy makes a tag weak. RFC 9110 matches none of those, but a version is the same in every encoding. */
const TAGS = /^(?:W\/)?"[^"]*"(?:[ \t]*,[ \t]*(?:W\/)?"[^"]*")*$/

/**
 * Returns the versions that the header allows, or null for any. A tag that is not a version of this service matches nothing. Throws
 * `bad_request` for one without quotes, which would otherwise look like a stale version.
 */
export function readIfMatch({ headers }: FastifyRequest): bigint[] | null {
  const header = headers['if-match']?.trim()
  if (header === undefined || header === '*') return null
  if (!TAGS.test(header)) {
    throw new AppError('bad_request', {
      message: 'If-Match must be versions in quotes, as ETag has them: "4"',
    })
  }
  const versions = [...header.matchAll(/"([^"]*)"/g)].map(([, tag = '']) => parsePathId(tag))
  return versions.filter((version) => version !== null)
}

// Request `Cache-Control: max-age` (RFC 9111, 5.2.1.1): the age of a response that the client accepts.

/** Returns 0 if the directive is missing, malformed or combined with `no-cache`. Such a client gets a current response. */
export function acceptedAgeMs({ headers }: FastifyRequest): number {
  const directives = (headers['cache-control'] ?? '').toLowerCase().split(',')
  const values = directives.map((directive) => directive.trim())
  const [, seconds = '0'] = values.map((value) => /^max-age="?(\d+)"?$/.exec(value)).find(Boolean) ?? []
  return values.includes('no-cache') ? 0 : Number(seconds) * 1000
}
