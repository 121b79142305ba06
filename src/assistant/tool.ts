/**
 * What a tool of the assistant is, and how its results show text that outsiders wrote: display names, tags, names that tenants chose,
 * messages of LINE and of receivers. Such text only appears as the value of a field `untrusted`. Personal text is masked, unless the
 * operator has decided otherwise.
 */

import { type AccountDetails, findAccountDetails } from '../accounts/accounts.ts'
import { AppError, type Finding } from '../errors.ts'
import { type TSchema, Type } from '../http/typebox.ts'
import { oneLine } from '../observability/one-line.ts'
import { checkerOf, Default, type Fields, Id, type InputOf, objectOf } from '../operations/fields.ts'
import type { NewActivity } from '../operators/activity.ts'
import type { OrganizationIds } from '../operators/actor.ts'
import type { Queryable } from '../postgres/statement.ts'

export interface ToolContext {
  database: Queryable
  organizationIds: OrganizationIds
  showPersonalData: boolean
  examineSystem: () => Promise<Finding[]>
}

export interface ToolResult {
  /** A list has `next`: the argument `after` of the following page, or null. */
  facts: Record<string, unknown>
  /** For the activity log: what the result is about. Without an object, it is about the account. */
  account?: AccountDetails
  object?: NewActivity['object']
}

export interface Tool {
  name: string
  title: string
  description: string
  inputSchema: TSchema
  isForAll: boolean
  /** Validates the arguments, and throws `invalid_input`. */
  call: (context: ToolContext, input: unknown) => Promise<ToolResult>
}

type Definition = Pick<Tool, 'name' | 'title' | 'description'> & { isForAll?: boolean }

/** @param parameters by name; all others are refused */
export function tool<F extends Fields>(
  definition: Definition,
  parameters: F,
  run: (context: ToolContext, input: InputOf<F>) => Promise<ToolResult>,
): Tool {
  const check = checkerOf(parameters)
  return {
    isForAll: false,
    ...definition,
    inputSchema: objectOf(parameters),
    call: async (context, input) => run(context, check(input) as InputOf<F>),
  }
}

export const accountTool = <F extends Fields>(
  definition: Definition,
  parameters: F,
  run: (context: ToolContext, account: AccountDetails, input: InputOf<F>) => Promise<ToolResult>,
): Tool =>
  tool(definition, { accountId: Id('id of the account'), ...parameters }, async (context, input) => {
    const account = await accountOf(context, (input as { accountId: bigint }).accountId)
    return { account, ...(await run(context, account, input as InputOf<F>)) }
  })

interface Listing<Row, F extends Fields> {
  /** Reads one row more than a page has, if another page follows. */
  read: (context: ToolContext, query: Query, input: InputOf<F>) => Promise<Row[]>
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
export const listTool = <Row extends { id: bigint }, F extends Fields>(
  definition: Definition,
  rows: string,
  parameters: F,
  { read, show, facts = async () => ({}) }: Listing<Row, F>,
): Tool => {
  const accountId = Type.Optional(Id(`only ${rows} of this account: its id`))
  return tool(definition, { accountId, ...parameters, ...PAGE }, async (context, input) => {
    const { accountId: id, limit, after = null } = input as InputOf<typeof PAGE> & { accountId?: bigint }
    const account = id === undefined ? null : await accountOf(context, id)
    const query = { accountId: account?.id ?? null, after, limit: limit + 1 }
    const found = await read(context, query, input as InputOf<F>)
    const shown = found.slice(0, limit)
    const next = found.length > limit ? shown.at(-1)?.id : null
    return {
      facts: { ...(await facts(context, query)), [rows]: shown.map((row) => show(row, context)), next },
      ...(account && { account }),
    }
  })
}

const PAGE_MAX = 50
const PAGE_DEFAULT = 20

export const AFTER = '`next` of the page before, to read the following page'
/** The arguments of a tool whose list has pages. */
export const PAGE = {
  limit: Default(
    Type.Integer({ minimum: 1, maximum: PAGE_MAX, description: 'maximum number of rows' }),
    PAGE_DEFAULT,
  ),
  after: Type.Optional(Id(AFTER)),
}

const accountOf = ({ database, organizationIds }: ToolContext, id: bigint): Promise<AccountDetails> =>
  findAccountDetails(database, organizationIds, id)

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
