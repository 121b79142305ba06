/** Checks input against a schema and says what is wrong with it, field by field. */
import type { Static, TSchema } from 'typebox'
import Type from 'typebox'
import { Compile } from 'typebox/compile'
import type { TLocalizedValidationError } from 'typebox/error'
import { Settings } from 'typebox/system'
import { AppError, type ErrorDetail } from '../errors.ts'
import { isStorableText } from '../postgres/storable.ts'

/** Errors found before the looking ends: one bad value may be several, and each bad field should be told. */
const ERRORS_MAX = 64
Settings.Set({ maxErrors: ERRORS_MAX })

export const Nullable = <T extends TSchema>(schema: T) => Type.Union([schema, Type.Null()])

/** A text that PostgreSQL can hold: no character 0, no half of a surrogate pair. */
export function StorableText(options: { minLength?: number; maxLength: number; description?: string }) {
  return Type.Refine(
    Type.String(options),
    (text) => isStorableText(text),
    () => 'must not contain the character U+0000 or half a surrogate pair',
  )
}

/** Compiles a schema once; the check returns the value typed, or throws `invalid_input` with details. */
export function checker<T extends TSchema>(schema: T): (value: unknown) => Static<T> {
  const compiled = Compile(schema)
  return (value) => {
    if (compiled.Check(value)) return value as Static<T>
    const errors = compiled.Errors(value)
    const telling = errors.filter(isTelling)
    throw new AppError('invalid_input', { details: toDetails(telling.length > 0 ? telling : errors) })
  }
}

/** Throws `invalid_input` for one fault that no schema can say. */
export function refuseInput(path: string, message: string): never {
  throw new AppError('invalid_input', { details: [{ path, message }] })
}

/**
 * An unknown field is reported twice: by its own path, which is the better one, and by its object's. A nullable field
 * is reported for what it should be, for not being null, and for being neither: the first says it all.
 */
function isTelling({ keyword, params }: TLocalizedValidationError): boolean {
  if (keyword === 'additionalProperties' || keyword === 'anyOf') return false
  return !(keyword === 'type' && (params as { type?: unknown }).type === 'null')
}

/** One detail for each field, or more where several things are wrong with it. */
function toDetails(errors: TLocalizedValidationError[]): ErrorDetail[] {
  const paths = [...new Set(errors.map(({ instancePath }) => instancePath))]
  return paths.flatMap((path) =>
    messagesOf(errors.filter(({ instancePath }) => instancePath === path)).map((message) => ({
      path: path.slice(1),
      message,
    })),
  )
}

/** A value that may be one of several things is reported once for each of them. */
function messagesOf(errors: TLocalizedValidationError[]): string[] {
  const alternatives = errors.flatMap(({ keyword, params }) => {
    if (keyword === 'const') return [String((params as { allowedValue: unknown }).allowedValue)]
    return keyword === 'type' ? [String((params as { type: unknown }).type)] : []
  })
  const others = errors.filter(({ keyword }) => keyword !== 'const' && keyword !== 'type')
  if (others.length > 0 || alternatives.length === 1) {
    return (others.length > 0 ? others : errors).map(({ keyword, message }) =>
      keyword === 'boolean' ? 'is not known' : message,
    )
  }
  return [`must be one of ${alternatives.join(', ')}`]
}
