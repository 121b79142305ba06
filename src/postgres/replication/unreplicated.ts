/** Commits that wait for a synchronous standby (`synchronous_standby_names`). */
import type pg from 'pg'
import { statement } from '../statement.ts'

/** Where PostgreSQL's source warns that it ends the wait. The message itself may be translated. */
const WAIT_ROUTINE = 'SyncRepWaitForLSN'

/**
 * Somebody who cancels a commit that waits for a standby, such as an administrator with pg_cancel_backend, does not roll it
 * back. PostgreSQL sends a warning and reports success, although the transaction is only on the primary's disk. The warning
 * arrives before the success, so the connection fails first and the transaction counts as not acknowledged.
 */
export function refuseUnreplicated(client: pg.ClientBase): void {
  client.on('notice', ({ routine }) => {
    if (routine !== WAIT_ROUTINE) return
    const { connection } = client as unknown as {
      connection: { emit(event: 'error', error: Error): void; stream: { destroy(): void } }
    }
    connection.emit('error', new Error('a commit did not reach a standby'))
    connection.stream.destroy()
  })
}

/**
 * For a transaction that found its work already done and wrote nothing. It would not wait, although the transaction that did
 * the work may still be on the primary's disk alone. With this message, its commit waits for both.
 */
export const waitForStandby = statement('wait-for-standby')`
    select case when current_setting('synchronous_standby_names') <> ''
                then pg_logical_emit_message(true, 'oa-audience', '') end`
