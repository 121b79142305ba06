/** What the service has stored of the tracking events of a tenant. */
import type { TextDatabase } from '../../tools/text-database.ts'
import type { Tenant } from './database.ts'
import { eventually } from './process.ts'

interface TrackedEvent {
  kind: string
  userId: string | null
  payload: { messageId: string; event?: string; anonymousId?: string }
}

/** Waits until that many events have arrived. */
export function trackedEvents(
  database: TextDatabase,
  { accountId }: Tenant,
  count: number,
): Promise<TrackedEvent[]> {
  const read = async () => {
    const rows = await database.query<{ kind: string; userId: string | null; payload: string }>(
      `select kind, user_id as "userId", payload from tracking_event where channel_oa_id = $1 order by id`,
      [accountId],
    )
    return rows.map(({ payload, ...row }) => ({ ...row, payload: JSON.parse(payload) }) as TrackedEvent)
  }
  return eventually(read, (events) => events.length >= count)
}
