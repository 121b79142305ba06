/**
 * A whole transaction in one message to the server and one back: statements between two syncs of the extended protocol
 * are one implicit transaction, so neither `begin` nor `commit` is sent, parsed or answered. A flush spends on it half of
 * what four queries of pg would cost.
 */
import pg from 'pg'
import type { BoundStatement, Row } from './statement.ts'

/** pg's connection, as far as a query of its own class sees it. */
interface Connection {
  stream: { cork(): void; uncork(): void }
  parse(message: { name: string; text: string }): void
  bind(message: { statement: string; values: unknown[]; valueMapper: (value: unknown) => unknown }): void
  describe(message: { type: 'P'; name: string }): void
  execute(message: { portal: string; rows: number }): void
  close(message: { type: 'S'; name: string }): void
  sync(): void
}

/** Statements that a session has prepared. `unsure` after an error, which may have come before or after the preparing. */
const preparedBy = new WeakMap<Connection, Map<string, 'prepared' | 'unsure'>>()

/** Texts and binary arrays go as they are; no other kind of value is sent this way. */
const asWritten = (value: unknown) =>
  typeof value === 'bigint' || typeof value === 'number' ? String(value) : value

interface Result {
  rows: Row[]
}

/** pg's Query does the reading of answers; only what is sent is different. */
export class TransactionAtOnce extends (pg.Query as unknown as new (
  config: { text: string },
  callback: (error: Error | null, results: Result | Result[]) => void,
) => { submit(connection: Connection): Error | null }) {
  readonly #statements: BoundStatement[]

  constructor(
    statements: BoundStatement[],
    resolve: (rows: Row[][]) => void,
    reject: (error: Error) => void,
  ) {
    super({ text: 'transaction at once' }, (error, results) => {
      if (error) {
        for (const name of this.#prepared.keys()) this.#prepared.set(name, 'unsure')
        reject(error)
      } else resolve([results].flat().map(({ rows }) => rows))
    })
    this.#statements = statements
  }

  #prepared: Map<string, 'prepared' | 'unsure'> = new Map()

  override submit(connection: Connection): Error | null {
    const prepared = preparedBy.get(connection) ?? new Map<string, 'prepared' | 'unsure'>()
    preparedBy.set(connection, prepared)
    this.#prepared = prepared
    connection.stream.cork()
    for (const { statement, values } of this.#statements) {
      const name = `at-once-${statement.name}`
      if (prepared.get(name) === 'unsure') connection.close({ type: 'S', name })
      if (prepared.get(name) !== 'prepared') connection.parse({ name, text: statement.text })
      prepared.set(name, 'prepared')
      connection.bind({ statement: name, values, valueMapper: asWritten })
      connection.describe({ type: 'P', name: '' })
      connection.execute({ portal: '', rows: 0 })
    }
    connection.sync()
    connection.stream.uncork()
    return null
  }
}
