/** What a tool of the assistant is. tools/ has all of them. */
import type { AccountId, OrganizationId } from '../accounts/account.ts'
import { AppError } from '../errors.ts'
import { INT64_MAX, parsePathId } from '../http/path-id.ts'
import { type Static, type TSchema, Type } from '../http/typebox.ts'
import { checker, refuseInput } from '../http/validate.ts'
import { type AccountDetails, findAccountDetails } from '../operator/accounts/accounts.ts'
import type { ObjectKind } from '../operator/activity.ts'
import type { OrganizationIds } from '../operator/actor.ts'
import type { Finding } from '../operator/system-health.ts'
import type { Queryable } from '../postgres/statement.ts'

export interface ToolContext {
  /** a session that refuses changes */
  database: Queryable
  organizationIds: OrganizationIds
  showPersonalData: boolean
  now: number
  examineSystem: () => Promise<Finding[]>
}

/** What a call is about, for the activity log. */
export interface Subject {
  object: { kind: ObjectKind; id: bigint | null }
  organizationId?: OrganizationId
  accountId?: AccountId
}

export interface ResultList {
  name: string
  /** `cursor` is the argument `after` that continues after this row; null: the list has no pages */
  rows: Array<{ row: object; cursor: string | null }>
  hasMore: boolean
}

export interface ToolResult {
  facts: Record<string, unknown>
  list?: ResultList
  /** absent if the result is about no single object */
  subject?: Subject
}

export interface Tool {
  name: string
  title: string
  description: string
  inputSchema: TSchema
  /** It needs all organizations. */
  isForAll: boolean
  /** Validates the arguments, and throws `invalid_input`. */
  call: (context: ToolContext, input: unknown) => Promise<ToolResult>
}

/** Rows of one page. */
export const PAGE_MAX = 50
const PAGE_DEFAULT = 20

export const Id = (description: string) =>
  Type.String({ pattern: '^-?\\d{1,19}$', description: `${description}, in decimal digits` })
export const Limit = Type.Optional(
  Type.Integer({
    minimum: 1,
    maximum: PAGE_MAX,
    description: `maximum number of rows (default ${PAGE_DEFAULT})`,
  }),
)
export const After = Type.Optional(
  Type.String({ maxLength: 64, description: '`next` of the page before, to read the following page' }),
)
export const limitOf = ({ limit = PAGE_DEFAULT }: { limit?: number }): number => limit

/** @param rows one more than the limit if another page follows */
export const pageOf = <Row extends { id: bigint }>(
  name: string,
  rows: Row[],
  limit: number,
  show: (row: Row) => object,
): ResultList => ({
  name,
  rows: rows.slice(0, limit).map((row) => ({ row: show(row), cursor: String(row.id) })),
  hasMore: rows.length > limit,
})

/** @param parameters by name; all others are refused */
export function tool<P extends Record<string, TSchema>>(
  definition: Pick<Tool, 'name' | 'title' | 'description'> & { isForAll?: boolean },
  parameters: P,
  run: (
    context: ToolContext,
    input: Static<ReturnType<typeof objectOf<P>>>,
  ) => Promise<ToolResult> | ToolResult,
): Tool {
  const inputSchema = objectOf(parameters)
  const check = checker(inputSchema)
  return {
    isForAll: false,
    ...definition,
    inputSchema,
    call: async (context, input) => run(context, check(input)),
  }
}

const objectOf = <P extends Record<string, TSchema>>(parameters: P) =>
  Type.Object(parameters, { additionalProperties: false })

export function idOf(field: string, text: string): bigint {
  const id = parsePathId(text)
  if (id === null) refuseInput(field, 'must be a 64-bit integer in decimal digits')
  return id
}

export const optionalId = (field: string, text: string | undefined): bigint | null =>
  text === undefined ? null : idOf(field, text)

export const beforeId = (after: string | undefined): bigint =>
  after === undefined ? INT64_MAX : idOf('after', after)

/** The same error for an object that does not exist and for one of another organization. */
export function absent(noun: string): AppError {
  return new AppError('unknown_item', {
    message: `No ${noun} has this id, or it belongs to an organization that this server does not show.`,
  })
}

export async function requireAccount(
  { database, organizationIds }: ToolContext,
  text: string,
): Promise<AccountDetails> {
  return findAccountDetails(database, organizationIds, idOf('accountId', text))
}

/** Null: no account was given. */
export async function optionalAccount(context: ToolContext, text: string | undefined) {
  return text === undefined ? null : requireAccount(context, text)
}

export const ofAccount = ({
  id,
  organizationId,
}: Pick<AccountDetails, 'id' | 'organizationId'>): Subject => ({
  object: { kind: 'account', id },
  organizationId,
  accountId: id,
})
