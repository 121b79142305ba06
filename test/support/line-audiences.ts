/** Time passes for audiences at LINE, in the database and at the simulated platform. */
import type { PlatformState } from '../../tools/simulator/state.ts'
import type { TextDatabase } from '../../tools/text-database.ts'

export async function later(
  database: TextDatabase,
  { audiences }: Pick<PlatformState, 'audiences'>,
  hours: number,
): Promise<void> {
  await database.query(
    `update line_audience set created_at = created_at - $1 * interval '1 hour', due_at = due_at - $1 * interval '1 hour'`,
    [hours],
  )
  await database.query(`update segment set sync_due_at = sync_due_at - $1 * interval '1 hour'`, [hours])
  for (const audience of audiences.values()) audience.atMs -= hours * 3_600_000
}
