/**
 * What a tool of the assistant is, and how its results show text that outsiders wrote: display names, tags, names that tenants chose,
 * messages of LINE and of receivers. Such text only appears as the value of a field `untrusted`. Personal text is masked, unless the
 * operator has decided otherwise.
 */

import { type AccountDetails, findAccountDetails } from '../accounts/accounts.ts'
import { AppError } from '../errors.ts'
import { oneLine } from '../http/one-line.ts'
import { parsePathId } from '../http/path-id.ts'
import { type Static, type TSchema, Type } from '../http/typebox.ts'
import { checker, refuseInput } from '../http/validate.ts'
import type { NewActivity } from '../operators/activity.ts'
import type { OrganizationIds } from '../operators/actor.ts'
import type { Queryable } from '../postgres/statement.ts'
import type { Finding } from '../watch/system-health.ts'

export interface ToolContext {
  /** a session that refuses changes */
  database: Queryable
  organizationIds: OrganizationIds
  showPersonalData: boolean
  examineSystem: () => Promise<Finding[]>
}

export interface ToolResult {
  facts: Record<string, unknown>
  list?: {
    name: string
    /** `cursor` is the argument `after` that continues after this row; null: the list has no pages */
    rows: Array<{ row: object; cursor: string | null }>
    hasMore: boolean
  }
  /** For the activity log: what the result is about. Without an object, it is about the account. */
  account?: AccountDetails
  object?: NewActivity['object']
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

type Definition = Pick<Tool, 'name' | 'title' | 'description'> & { isForAll?: boolean }
type Parameters = Record<string, TSchema>

const objectOf = <P extends Parameters>(parameters: P) =>
  Type.Object(parameters, { additionalProperties: false })
type Input<P extends Parameters> = Static<ReturnType<typeof objectOf<P>>>

/** @param parameters by name; all others are refused */
export function tool<P extends Parameters>(
  definition: Definition,
  parameters: P,
  run: (context: ToolContext, input: Input<P>) => Promise<ToolResult>,
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

/** A tool about one account. */
export const accountTool = <P extends Parameters>(
  definition: Definition,
  parameters: P,
  run: (context: ToolContext, account: AccountDetails, input: Input<P>) => Promise<ToolResult>,
): Tool =>
  tool(definition, { accountId: Id('id of the account'), ...parameters }, async (context, input) => {
    const account = await accountOf(context, (input as { accountId: string }).accountId)
    return { account, ...(await run(context, account, input as Input<P>)) }
  })

interface Listing<Row, P extends Parameters> {
  /** Reads one row more than a page has, if another page follows. */
  read: (context: ToolContext, query: Query, input: Input<P>) => Promise<Row[]>
  show: (row: Row, context: ToolContext) => object
  facts?: (context: ToolContext, query: Query) => Promise<Record<string, unknown>>
}

interface Query {
  accountId: bigint | null
  /** the id after which the page begins; null: the first page */
  after: bigint | null
  limit: number
}

/** A tool that lists the rows of one account, or of all. @param rows their name, such as `endpoints` */
export const listTool = <Row extends { id: bigint }, P extends Parameters>(
  definition: Definition,
  rows: string,
  parameters: P,
  { read, show, facts = async () => ({}) }: Listing<Row, P>,
): Tool => {
  const accountId = Type.Optional(Id(`only ${rows} of this account: its id`))
  return tool(definition, { accountId, ...parameters, ...PAGE }, async (context, input) => {
    const given = input as { accountId?: string; limit?: number; after?: string }
    const account = given.accountId === undefined ? null : await accountOf(context, given.accountId)
    const after = given.after === undefined ? null : idOf('after', given.after)
    const limit = limitOf(given)
    const query = { accountId: account?.id ?? null, after, limit: limit + 1 }
    const found = await read(context, query, input as Input<P>)
    return {
      facts: await facts(context, query),
      list: {
        name: rows,
        rows: found.slice(0, limit).map((row) => ({ row: show(row, context), cursor: String(row.id) })),
        hasMore: found.length > limit,
      },
      ...(account && { account }),
    }
  })
}

/** Rows of one page. */
const PAGE_MAX = 50
const PAGE_DEFAULT = 20

export const Id = (description: string) =>
  Type.String({ pattern: '^-?\\d{1,19}$', description: `${description}, in decimal digits` })
/** The arguments of a tool whose list has pages. */
export const PAGE = {
  limit: Type.Optional(
    Type.Integer({
      minimum: 1,
      maximum: PAGE_MAX,
      description: `maximum number of rows (default ${PAGE_DEFAULT})`,
    }),
  ),
  after: Type.Optional(
    Type.String({ maxLength: 64, description: '`next` of the page before, to read the following page' }),
  ),
}
export const limitOf = ({ limit = PAGE_DEFAULT }: { limit?: number }): number => limit

export function idOf(field: string, text: string): bigint {
  const id = parsePathId(text)
  if (id === null) refuseInput(field, 'must be a 64-bit integer in decimal digits')
  return id
}

const accountOf = ({ database, organizationIds }: ToolContext, text: string): Promise<AccountDetails> =>
  findAccountDetails(database, organizationIds, idOf('accountId', text))

/** The same error for an object that does not exist and for one of another organization. */
export function absent(noun: string): AppError {
  return new AppError('unknown_item', {
    message: `No ${noun} has this id, or it belongs to an organization that this server does not show.`,
  })
}

type Untrusted = { untrusted: string }

/** Characters of one text. A display name has at most 20 to 50; the responses of receivers that are stored have up to 500. */
const TEXT_MAX = 300
/** Format characters, private use, unassigned, variation selectors, fillers, and the blank of Braille. */
const UNSEEN = /\p{Cf}|\p{Co}|\p{Cn}|\p{Variation_Selector}|\p{Default_Ignorable_Code_Point}|\u2800/gu
const MASK = '•••'

/** Removes what a person does not see and a model does. */
export const visible = (text: string): string => oneLine(text.replace(UNSEEN, ''), TEXT_MAX)

export const untrusted = (text: string | null): Untrusted | null =>
  text === null ? null : { untrusted: visible(text) }

/** Text about a person, or text that may contain some: its first character. */
export function personal(text: string | null, { showPersonalData }: ToolContext): Untrusted | null {
  if (text === null || showPersonalData) return untrusted(text)
  const [first = ''] = visible(text)
  return { untrusted: `${first}${MASK}` }
}

/** The named columns of a row. Every other column is hidden. */
export const columnsOf = <Row extends object, Name extends keyof Row>(row: Row, ...names: Name[]) =>
  Object.fromEntries(names.map((name) => [name, row[name]])) as Pick<Row, Name>

/** The named columns of a row, as text that outsiders wrote. */
export const textsOf = <Name extends string>(row: Record<Name, string | null>, ...names: Name[]) =>
  Object.fromEntries(names.map((name) => [name, untrusted(row[name])])) as Record<Name, Untrusted | null>
