/** What is sent to the database: plain data, and where it can be sent. */

export type Row = Record<string, unknown>

/** A statement with a name is prepared once in each session. */
export interface Statement {
  name: string
  text: string
}

/** What a query is sent to: the database, or one transaction on it. Always the first argument. */
export interface Queryable {
  query<R extends Row>(statement: Statement | string, values?: unknown[]): Promise<R[]>
}

export interface BoundStatement {
  statement: Statement
  values: unknown[]
}

/** Where a whole transaction can be sent in one go. */
export interface AtOnce {
  transactionAtOnce(statements: BoundStatement[]): Promise<Row[][]>
}

const named = new Map<string, Statement>()

/** A statement that is one of many variants: its text is made once for each name. */
export function variant(name: string, makeText: () => string): Statement {
  const known = named.get(name)
  if (known !== undefined) return known
  const statement = { name, text: makeText() }
  named.set(name, statement)
  return statement
}
