/**
 * A whole transaction in one message to the server and one back. Statements between two syncs of the extended protocol form
 * one implicit transaction, so neither `begin` nor `commit` is sent, parsed or answered. A flush costs half of what four
 * queries of pg would cost.
 */
import pg from 'pg'
import { databaseQuery } from '../observability/facts.ts'
import { toFault } from './faults.ts'
import type { BoundStatement, Row } from './statement.ts'

/** Sends the statements on this connection. Throws DatabaseUnavailable or the database's error; then nothing is committed. */
export async function sendPipeline(client: pg.ClientBase, statements: BoundStatement[]): Promise<Row[][]> {
  const send = () =>
    new Promise<Row[][]>((resolve, reject) => {
      client.query(new Pipeline(statements, resolve, reject) as unknown as pg.Submittable)
    })
  try {
    return await databaseQuery.run({ statements: statements.map(({ statement }) => statement.name) }, send)
  } catch (error) {
    throw toFault(error)
  }
}

/** pg's connection, as far as a query class of our own sees it. */
interface Connection {
  stream: { cork(): void; uncork(): void }
  parse(message: { name: string; text: string }): void
  bind(message: { statement: string; values: unknown[]; valueMapper: (value: unknown) => unknown }): void
  describe(message: { type: 'P'; name: string }): void
  execute(message: { portal: string; rows: number }): void
  close(message: { type: 'S'; name: string }): void
  sync(): void
}

type Prepared = Map<string, 'prepared' | 'unsure'>

/** Statements that a connection has prepared. `unsure` after an error, which may have come before or after preparing. */
const preparedOn = new WeakMap<Connection, Prepared>()

/** Texts and binary arrays are sent as they are. No other kind of value is sent this way. */
const asWritten = (value: unknown) =>
  typeof value === 'bigint' || typeof value === 'number' ? String(value) : value

interface Result {
  rows: Row[]
}

/** pg's Query reads the answers; only what is sent differs. */
class Pipeline extends (pg.Query as unknown as new (
  config: { text: string },
  callback: (error: Error | null, results: Result | Result[]) => void,
) => { submit(connection: Connection): Error | null }) {
  readonly #statements: BoundStatement[]
  #prepared: Prepared = new Map()

  constructor(
    statements: BoundStatement[],
    resolve: (rows: Row[][]) => void,
    reject: (error: Error) => void,
  ) {
    super({ text: 'pipeline' }, (error, results) => {
      if (error) {
        for (const name of this.#prepared.keys()) this.#prepared.set(name, 'unsure')
        reject(error)
      } else resolve([results].flat().map(({ rows }) => rows))
    })
    this.#statements = statements
  }

  override submit(connection: Connection): Error | null {
    const prepared: Prepared = preparedOn.get(connection) ?? new Map()
    preparedOn.set(connection, prepared)
    this.#prepared = prepared
    connection.stream.cork()
    for (const { statement, values } of this.#statements) {
      const name = `pipeline-${statement.name}`
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
