/** Input that several routes share. */

import { AppError } from '../../errors.ts'
import { INT64_MAX, parsePathId } from '../../http/path-id.ts'
import { Type } from '../../http/typebox.ts'
import { StorableText } from '../../http/validate.ts'

/** Rows of one page of a list. */
export const PAGE_SIZE = 50

/** Rows to read for one page. One row more than a page shows that another page follows. */
export const READ_LIMIT = PAGE_SIZE + 1

/** Cuts up to READ_LIMIT rows to one page. `next` is the id after which the next page begins; null: this is the last page. */
export function pageOf<Row extends { id: bigint }>(rows: Row[]): { items: Row[]; next: bigint | null } {
  const items = rows.slice(0, PAGE_SIZE)
  return { items, next: rows.length > PAGE_SIZE ? (items.at(-1)?.id ?? null) : null }
}

/** An id in a query string or a body. */
export const Id = Type.String({ pattern: '^\\d{1,19}$' })
export const ShortText = StorableText({ minLength: 1, maxLength: 256 })

/** An id in a path. One that is not an int64 names nothing. */
export function requireId(text: string): bigint {
  const id = parsePathId(text)
  if (id === null) throw new AppError('unknown_item')
  return id
}

/** An optional id. One beyond int64 names nothing either. */
export function idOrNull(text: string | undefined): bigint | null {
  if (text === undefined) return null
  const id = BigInt(text)
  if (id > INT64_MAX) throw new AppError('unknown_item')
  return id
}

/** Throws `unknown_item` for null. */
export function found<T>(item: T | null | undefined): T {
  if (item === null || item === undefined) throw new AppError('unknown_item')
  return item
}
