/** Each column that can hold text of a person is erased, or is listed with the reason why an erasure leaves it. */
import { expect, it } from 'vitest'
import '../src/audience/export/export-person.ts'
import { statements } from '../src/postgres/statement.ts'
import { createTestDatabase } from './support/database.ts'
import { load } from './support/load.ts'

/** Columns that hold a person's id or content. erase_people() deletes the row, deletes it with its member, or sets the column to null. */
const ERASED = `
  audience_member.user_id audience_member.display_name audience_member.picture_url audience_member.language
  audience_member.external_id audience_member.tags audience_member.attributes audience_member.conversation_id
  audience_member.conversation_status audience_member.conversation_key audience_member.relationship
  audience_member.relationship_key
  audience_tag.tag
  member_edit.changes member_edit.fields member_edit.actor
  event.user_id event.other_user_ids event.group_id event.message_id event.payload
  tracked_activity.user_id tracking_event.user_id tracking_event.payload tracking_event.kind
  endpoint_attempt.response_text
`

/** Columns that keep what they have about an erased person. */
const KEPT: Array<[reason: string, columns: string]> = [
  ['a keyed hash, by which events from before the erasure are recognized', 'erased_person.person_hash'],
  [
    'keys and kinds of events say nothing about a person, and let no duplicate take effect',
    'event.key event.kind event.source event.failure event_key.key endpoint_delivery.event_keys endpoint_delivery.type',
  ],
  ['what an operator writes about a failed event', 'event.set_aside'],
  ['deleted when the last event is scrubbed', 'pending_erasure.user_id'],
  ['ids of messages that were taken back, without a person', 'unsent_message.message_id'],
  ['members appear as their ids', 'activity.object_id activity.changes notification.facts'],
  ['deleted at the end of the task', 'job.parameters job.position job_file.bytes'],
]

/** Tables that an organization's operators fill, or the service about itself: no person of an audience is in them. No row is in kept_delivery. */
const ABOUT_NOBODY = `
  account_check activity api_client api_key changed_account delivery_hour endpoint endpoint_answer endpoint_attempt endpoint_delivery job
  kept_delivery line_audience notification notification_account notification_channel official_account operator operator_session organization retired_address
  segment schema_function schema_migration unrecorded_revocation
`

const words = (text: string) => text.trim().split(/\s+/)

it('every column that can hold text of a person is erased, or says why it is kept', async () => {
  const { database } = await createTestDatabase()
  const columns = await load<{ place: string; relation: string }>(
    database,
    `select c.relname as relation, c.relname || '.' || a.attname as place
       from pg_class c join pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
      where c.relkind in ('r', 'p') and not c.relispartition and c.relnamespace = 'public'::regnamespace
        and a.atttypid = any (array['text', 'text[]', 'jsonb', 'json', 'bytea', 'uuid', 'uuid[]', 'bytea[]']::regtype[])`,
  )
  const listed = [...words(ERASED), ...KEPT.flatMap(([, kept]) => words(kept))]
  const places = columns.map(({ place }) => place)
  expect(listed.filter((place) => !places.includes(place))).toEqual([])
  const unlisted = columns.filter(
    ({ place, relation }) => !listed.includes(place) && !words(ABOUT_NOBODY).includes(relation),
  )
  expect(unlisted.map(({ place }) => place)).toEqual([])
})

it('the export of a person reads every table of which an erasure deletes something', () => {
  // The tags of a member are in its row, too, and texts of receivers are not the person's.
  const tables = new Set(words(ERASED).map((place) => place.split('.', 1).join()))
  for (const derived of ['audience_tag', 'endpoint_attempt']) tables.delete(derived)
  const exporting = [...statements.values()].filter(({ name }) => name.startsWith('select-person-'))
  const text = exporting.map((statement) => statement.text).join('\n')
  expect([...tables].filter((table) => !new RegExp(`from ${table}\\b`).test(text))).toEqual([])
})
