/** Commits that wait for a synchronous standby (`synchronous_standby_names`). */
import type pg from 'pg'
import { statement } from '../statement.ts'

/** The function of PostgreSQL that warns about the end of the wait. The message itself may be translated. */
const WAIT_ROUTINE = 'SyncRepWaitForLSN'

/**
 * If an administrator cancels a commit that waits for a standby (pg_cancel_backend), PostgreSQL does not roll it back. It sends a
 * warning and reports success, although the transaction is only on the primary's disk. The warning arrives first, so this fails the
 * connection and the transaction counts as not acknowledged.
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
 * For a transaction that found its work already done. It wrote nothing, so its commit would not wait, although the transaction that
 * did the work may still be only on the primary's disk. After this message, the commit waits for both.
 */
export const waitForStandby = statement('wait-for-standby')`
    select case when current_setting('synchronous_standby_names') <> ''
                then pg_logical_emit_message(true, 'oa-audience', '') end`
