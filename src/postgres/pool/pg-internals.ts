/**
 * The parts of pg's clients that its documentation and its types lack, as pg 8.23.1 has them. Nothing else uses them. Compare them after
 * an update of pg: tests of takeovers, replicas, synchronous standbys and poolers fail if they changed.
 */
import type pg from 'pg'

interface Internals {
  processID: number | null
  connection: { emit(event: 'error', error: Error): void; stream: { destroy(error?: Error): void } }
}

const internalsOf = (client: pg.ClientBase) => client as unknown as Internals

/** The id of the process that serves the connection, as the server or a pooler sent it. */
export const processIdOf = (client: pg.ClientBase): number | null => internalsOf(client).processID

/** Closes the connection without waiting for the server. Every query on it fails with the error. */
export function abandon(client: pg.ClientBase, error?: Error): void {
  internalsOf(client).connection.stream.destroy(error)
}

/** The same, but queries fail before pg reads the next message, which may have arrived in the same packet. */
export function failImmediately(client: pg.ClientBase, error: Error): void {
  internalsOf(client).connection.emit('error', error)
  abandon(client)
}
