/** What is sent to the database: plain data, and where it can be sent. */

export type Row = Record<string, unknown>

declare const isRegistered: unique symbol

/**
 * A SQL text that can be pasted into psql. A statement with a name is prepared once per connection. `statement` and `unnamed` make
 * them: the property that nothing has keeps other objects out.
 */
export interface Statement {
  readonly name: string
  readonly text: string
  readonly [isRegistered]: true
}

/**
 * Every statement of the modules that are loaded, by name. It is filled while modules load and never changes after that, so it is no
 * state of a service. The tests run over it: a statement that no test knows cannot exist, as it could if each module exported a list.
 */
export const statements: ReadonlyMap<string, Statement> = new Map<string, Statement>()

/**
 * For constants of modules: statement('name')`text`. Throws if the name is taken, because a connection prepares one text per name.
 */
export function statement(name: string) {
  return (texts: TemplateStringsArray, ...parts: Array<string | number>): Statement => {
    if (statements.has(name)) throw new Error(`two statements have the name ${name}`)
    // Not `texts.raw`: escapes mean what they mean in any other template.
    const made = Object.freeze({ name, text: String.raw({ raw: texts }, ...parts) }) as Statement
    ;(statements as Map<string, Statement>).set(name, made)
    return made
  }
}

/**
 * For texts that cannot be prepared constants: migrations, settings of a session, transaction commands, and definitions of
 * partitions, whose names are dates. Such a statement is neither prepared nor registered.
 */
export function unnamed(text: string): Statement {
  return { name: '', text } as Statement
}

// Preparing them would cost each connection a round trip.
export const begin = unnamed('begin')
export const commit = unnamed('commit')
export const rollback = unnamed('rollback')

export interface BoundStatement {
  statement: Statement
  values: unknown[]
}

/** What a query is sent to: the database, or one transaction on it. Always the first argument. */
export interface Queryable {
  query<R extends Row>(statement: Statement, values?: unknown[]): Promise<R[]>
}

/** Sends statements as one transaction in one round trip and resolves with the rows of each. */
export type SendPipeline = (statements: BoundStatement[]) => Promise<Row[][]>

/** Where a request, a flush or a task sends its statements: to the connections of its own share. */
export interface Transactions extends Queryable {
  /** Sends one statement. */
  query<R extends Row>(statement: Statement, values?: unknown[]): Promise<R[]>
  /** Commits what `work` did, or rolls all of it back and throws. */
  transaction<T>(work: (transaction: Queryable) => Promise<T>): Promise<T>
  /** Sends a transaction of several statements in one round trip. */
  pipeline: SendPipeline
}
