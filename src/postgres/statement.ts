/** SQL statements, and the interfaces that send them. */
import type { SecretKeys } from '../config/secret-keys.ts'

export type Row = Record<string, unknown>

declare const isRegistered: unique symbol

/** One with a name is prepared once per connection. The symbol allows only `statement` and `unnamed` to create statements. */
export interface Statement {
  readonly name: string
  readonly text: string
  readonly [isRegistered]: true
}

/** Every statement of the loaded modules, for tests. */
export const statements: ReadonlyMap<string, Statement> = new Map<string, Statement>()

/** Creates a constant of a module: statement('name')`text`. A connection prepares one text per name. */
export function statement(name: string) {
  return (texts: TemplateStringsArray, ...parts: Array<string | number>): Statement => {
    if (statements.has(name)) throw new Error(`two statements have the name ${name}`)
    // `texts`, not `texts.raw`, so that escapes mean the same as in any other template.
    const made = Object.freeze({ name, text: String.raw({ raw: texts }, ...parts) }) as Statement
    ;(statements as Map<string, Statement>).set(name, made)
    return made
  }
}

/** Neither prepared nor registered: migrations, settings, transaction commands, and partitions, whose names contain dates. */
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

export interface Queryable {
  /** Nothing else reads or writes the columns that hold secrets. */
  readonly secretKeys: SecretKeys
  query<R extends Row>(statement: Statement, values?: unknown[]): Promise<R[]>
}

/** Sends one transaction in one round trip and resolves with the rows of each statement. */
export type SendPipeline = (statements: BoundStatement[]) => Promise<Row[][]>

export interface Transactions extends Queryable {
  transaction<T>(work: (transaction: Queryable) => Promise<T>): Promise<T>
  pipeline: SendPipeline
}

/** Sends statements in one round trip as a part of the transaction, which the first failure aborts. */
export function pipelineIn(transaction: Queryable): SendPipeline {
  return async (statements) => {
    const sent = statements.map(({ statement, values }) => transaction.query(statement, values))
    // All settle before the transaction continues. Later errors are consequences of the first one.
    const settled = await Promise.allSettled(sent)
    return settled.map((result) => {
      if (result.status === 'rejected') throw result.reason
      return result.value
    })
  }
}
