/** Events that could not be applied, tried again: `oa-audience events retry`. */
import type { Database } from '../postgres/database.ts'
import type { Row, Statement } from '../postgres/statement.ts'
import { credentialOf } from './apply-events.ts'
import type { IntakeEvent, Source } from './event.ts'
import { flushAfter } from './flush.ts'

/**
 * Applies a stored event that could not be applied, once: the stored one and its key make room for it in the same
 * transaction, so it counts if it did not before, and an erasure meanwhile holds for it like for any event.
 * @param event the stored content, understood anew; the key stays the one under which it was received
 */
export async function retryEvent(database: Database, id: bigint, event: IntakeEvent): Promise<string> {
  if (event.failure !== null) return event.failure
  const [stored] = await database.query<StoredEvent>(
    `select e.channel_oa_id, e.source, e.key, ${credentialOf('a', 'e.source')} as credential
       from event e join official_account a on a.id = e.channel_oa_id where e.id = $1 and e.failure is not null`,
    [id],
  )
  if (stored === undefined) return 'there is no such event that waits'
  if (stored.credential === null) return 'its account has no channel secret: store one first'
  const admission = { accountId: stored.channel_oa_id, source: stored.source, credential: stored.credential }
  const again = { admission, event: { ...event, key: Buffer.from(stored.key.replaceAll('-', ''), 'hex') } }
  const forget = { statement: forgetEvent, values: [id, stored.channel_oa_id] }
  const [outcome] = await flushAfter(database, [again], [forget])
  return outcome === 'accepted' ? 'applied' : 'it changed meanwhile: look at it again'
}

interface StoredEvent extends Row {
  channel_oa_id: bigint
  source: Source
  key: string
  credential: string | null
}

// The key goes only with the event: of two who retry at once, the second finds neither, and counts nothing.
const forgetEvent: Statement = {
  name: 'forget-event',
  text: `
    with gone as (
      delete from event where id = $1 and channel_oa_id = $2 and failure is not null returning channel_oa_id, key
    )
    delete from event_key k using gone g where k.channel_oa_id = g.channel_oa_id and k.key = g.key`,
}
