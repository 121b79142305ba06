/** Segments: named conditions on the members of an account. */
import { findAccountDetails } from '../accounts/accounts.ts'
import { type Condition, normalizeCondition, recordable } from '../audience/condition.ts'
import type { SyncState } from '../audience/line-audience-texts.ts'
import {
  addSegment,
  removeSegment,
  SEGMENT_NAME_MAX_LENGTH,
  setSync,
  updateSegment,
} from '../audience/segments.ts'
import { AppError, requireVisible } from '../errors.ts'
import { INT64_MIN } from '../http/path-id.ts'
import { Type } from '../http/typebox.ts'
import { StorableText } from '../http/validate.ts'
import type { AccountId, OrganizationId } from '../ids.ts'
import { changesBetween } from '../operators/activity.ts'
import { statement } from '../postgres/statement.ts'
import { ConditionField, Id, partial } from './fields.ts'
import { type Noun, operationsOf } from './operation.ts'

export type Segment = {
  id: bigint
  accountId: AccountId
  organizationId: OrganizationId
  name: string
  condition: Condition
  updatedAt: string
  sync: boolean
  syncState: SyncState
  /** LINE's, in its words */
  syncReason: string | null
  /** the newest one at LINE */
  audienceName: string | null
}

/** $1 organization ids bigint[], null: all; $2 segment id bigint, null: all; $3 account id bigint, null: all; $4 after this id; $5 limit */
const selectSegments = statement('select-segments')`
    select s.id, a.id as "accountId", a.organization_id as "organizationId", s.name, s.condition, iso(s.updated_at) as "updatedAt",
           s.sync, s.sync_reason as "syncReason", l.name as "audienceName",
           case when not s.sync then case when l.status is null then 'off' else 'deleting' end
                else coalesce(s.sync_fault, nullif(l.status, 'deleting'), 'waiting') end as "syncState"
      from segment s join official_account a on a.id = s.channel_oa_id
      left join lateral (select name, status from line_audience where segment_id = s.id
                          order by status = 'deleting', id desc limit 1) l on true
     where visible(a.organization_id, $1) and ($2::bigint is null or s.id = $2) and ($3::bigint is null or s.channel_oa_id = $3)
       and s.id > $4
     order by s.id limit $5`

const SEGMENT: Noun<Segment> = {
  kind: 'segment',
  word: 'segment',
  plural: 'segments',
  find: async (database, { organizationIds }, id) => {
    const values = [organizationIds, id, null, INT64_MIN, 1]
    const [segment] = await database.query<Segment>(selectSegments, values)
    return requireVisible(segment, 'segment', id)
  },
}
const { read, list, add, change } = operationsOf(SEGMENT)

const recorded = ({ name, condition }: Pick<Segment, 'name' | 'condition'>) => ({
  name,
  condition: recordable(condition),
})

const FIELDS = {
  name: StorableText({
    minLength: 1,
    maxLength: SEGMENT_NAME_MAX_LENGTH,
    description: 'name, unique in the account',
  }),
  condition: ConditionField,
}

export const SEGMENTS = {
  list: list({
    name: 'segment.list',
    does: 'list segments',
    help: 'list segments',
    input: { account: Type.Optional(Id('only segments of this account')) },
    run: async ({ database, actor, input: { account = null } }, { after, limit }) => {
      if (account !== null) await findAccountDetails(database, actor.organizationIds, account)
      const values = [actor.organizationIds, null, account, after ?? INT64_MIN, limit]
      return database.query<Segment>(selectSegments, values)
    },
    row: ({ id, accountId: account, name, condition, syncState: sync }: Segment) => ({
      ...{ id, account, name, condition, sync },
    }),
  }),

  show: read({
    name: 'segment.show',
    does: 'see a segment',
    run: async ({ target }) => ({ segment: target }),
  }),

  add: add({
    name: 'segment.add',
    does: 'add a segment',
    help: 'add a segment, a named condition on the members of an account',
    records: 'segment.added',
    input: { account: Id('id of the account, as `accounts list` shows it'), ...FIELDS },
    run: async ({ database, actor, input: { account: accountId, name, condition } }) => {
      const { organizationId } = await findAccountDetails(database, actor.organizationIds, accountId)
      const segment = { name, condition: normalizeCondition(condition) }
      const id = await addSegment(database, accountId, segment)
      const changes = { name: [null, name], condition: [null, recordable(segment.condition)] }
      return { result: { id }, changes, target: { id, organizationId, accountId } }
    },
  }),

  update: change({
    name: 'segment.update',
    does: 'change a segment',
    help: 'change a segment; walks over its pages must begin again',
    records: 'segment.updated',
    input: partial(FIELDS),
    run: async ({ database, target: { id, name, condition }, input }) => {
      const before = { name, condition }
      const given = { ...input, ...(input.condition && { condition: normalizeCondition(input.condition) }) }
      if (Object.keys(changesBetween(before, given)).length > 0) await updateSegment(database, id, given)
      return { changes: changesBetween(recorded(before), recorded({ ...before, ...given })) }
    },
  }),

  sync: change({
    name: 'segment.sync',
    does: 'keep an audience of a segment at LINE',
    records: 'segment.synced',
    input: { mode: Type.Enum(['on', 'off', 'now']) },
    run: async ({ database, target: { id, sync }, input: { mode } }) => {
      if (mode === 'now' && !sync)
        throw new AppError('invalid_input', {
          message: 'Sync is off. Turn it on, which begins with an upload.',
        })
      if (mode === 'now' || sync !== (mode === 'on')) await setSync(database, id, mode !== 'off')
      return {
        changes: mode === 'now' ? { upload: mode } : changesBetween({ sync }, { sync: mode === 'on' }),
      }
    },
  }),

  remove: change({
    name: 'segment.remove',
    does: 'remove a segment',
    help: 'remove a segment; its members stay, and its audiences at LINE are deleted',
    records: 'segment.removed',
    run: async ({ database, target }) => {
      await removeSegment(database, target.id)
      return { changes: { name: [target.name, null] } }
    },
  }),
}
