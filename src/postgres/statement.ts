/** What is sent to the database: plain data, and where it can be sent. */

export type Row = Record<string, unknown>

/** A statement with a name is prepared once per connection. Its text is a constant that can be pasted into psql. */
export interface Statement {
  name: string
  text: string
}

export interface BoundStatement {
  statement: Statement
  values: unknown[]
}

/** What a query is sent to: the database, or one transaction on it. Always the first argument. */
export interface Queryable {
  query<R extends Row>(statement: Statement | string, values?: unknown[]): Promise<R[]>
}

/** Sends statements as one transaction in one round trip and resolves with the rows of each. */
export type SendPipeline = (statements: BoundStatement[]) => Promise<Row[][]>

/** Where a request, a flush or a task sends its statements: to the connections of its own share. */
export interface Transactions extends Queryable {
  /** Sends one statement. */
  query<R extends Row>(statement: Statement | string, values?: unknown[]): Promise<R[]>
  /** Commits what `work` did, or rolls all of it back and throws. */
  transaction<T>(work: (transaction: Queryable) => Promise<T>): Promise<T>
  /** Sends a transaction of several statements in one round trip. */
  pipeline: SendPipeline
}
