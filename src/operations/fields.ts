/**
 * The fields of an operation's input. Beside the keywords of JSON Schema, `nullWord` is the word for null on the command line, `not`
 * describes the option --no-x, the value of a `secret` may be read from standard input, and `each` is the option for one id of an array.
 */
import { ConditionSchema } from '../audience/condition.ts'
import { type Static, type TOptional, type TSchema, type TUnsafe, Type } from '../http/typebox.ts'
import { checker, IdText, Nullable, StorableText } from '../http/validate.ts'

export type Fields = Record<string, TSchema>

export const objectOf = <F extends Fields>(fields: F) => Type.Object(fields, { additionalProperties: false })

export type InputOf<F extends Fields> = Static<ReturnType<typeof objectOf<F>>>

/** An id, which is a text in JSON and a bigint for the operation. */
export const Id = (description: string) =>
  Object.assign(IdText({ description }), { isId: true }) as unknown as TUnsafe<bigint>
export const ShortText = StorableText({ minLength: 1, maxLength: 256 })
export const DisplayName = StorableText({ maxLength: 256, description: 'display name' })
/** Longer URLs are refused by common servers. */
export const Url = (description: string) => StorableText({ minLength: 1, maxLength: 2_048, description })

export const AllowPrivateNetwork = Type.Boolean({
  description: 'allow http, and addresses that are not public',
  not: 'allow only https and public addresses',
})

export const ConditionField = Object.assign(ConditionSchema, {
  description: 'JSON such as {"tagsAll":["vip"],"lastSeenAfter":"30d"}; docs/segments.md has all fields',
})

/** A field that may be null. @param nullWord is null on the command line */
export const orNull = <T extends TSchema>(schema: T, nullWord?: string) => {
  const { description, isId } = schema as { description?: string; isId?: true }
  return Object.assign(Nullable(schema), { description, isId, nullWord })
}

export const Default = <T extends TSchema>(schema: T, value: Static<T>) =>
  Object.assign(Type.Optional(schema), { default: value }) as unknown as T

/** Fields that may be omitted: what is omitted does not change. */
export const partial = <F extends Fields>(fields: F) =>
  Object.fromEntries(Object.entries(fields).map(([name, schema]) => [name, Type.Optional(schema)])) as {
    [N in keyof F]: TOptional<F[N]>
  }

/** Validates, adds defaults, and makes bigints of ids. */
export function checkerOf(fields: Fields): (input: unknown) => object {
  const check = checker(objectOf(fields)) as (input: unknown) => Record<string, unknown>
  return (input) => {
    const given = check(input)
    const checked: Record<string, unknown> = { ...given }
    for (const [name, schema] of Object.entries(fields) as Array<
      [string, { default?: unknown; isId?: true }]
    >) {
      if (given[name] === undefined && schema.default !== undefined) checked[name] = schema.default
      if (schema.isId && typeof given[name] === 'string') checked[name] = BigInt(given[name])
    }
    return checked
  }
}
