/** A database to which tests and benchmarks send texts of their own. The service sends only its statements, which are constants. */
import { PostgresDatabase } from '../src/postgres/pool/postgres-database.ts'
import { type Queryable, type Row, type Statement, unnamed } from '../src/postgres/statement.ts'

export interface TextQueryable extends Queryable {
  query<R extends Row>(statement: Statement | string, values?: unknown[]): Promise<R[]>
}

const asStatement = (statement: Statement | string) =>
  typeof statement === 'string' ? unnamed(statement) : statement

const takingTexts = (queryable: Queryable): TextQueryable => ({
  secretKeys: queryable.secretKeys,
  query: (statement, values) => queryable.query(asStatement(statement), values),
})

export class TextDatabase extends PostgresDatabase {
  /** Without it, the compiler would take a PostgresDatabase for one of these. */
  readonly takesTexts = true

  override query<R extends Row>(statement: Statement | string, values?: unknown[]): Promise<R[]> {
    return super.query(asStatement(statement), values)
  }

  override transaction<T>(work: (transaction: TextQueryable) => Promise<T>): Promise<T> {
    return super.transaction((transaction) => work(takingTexts(transaction)))
  }

  override session<T>(work: (session: TextQueryable) => Promise<T>): Promise<T> {
    return super.session((session) => work(takingTexts(session)))
  }
}
