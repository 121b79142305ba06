/** The log of who changed what. */
import { INT64_MAX } from '../http/path-id.ts'
import { timeOrNull } from '../http/times.ts'
import { Type } from '../http/typebox.ts'
import { type ActivityFilter, listActivity } from '../operators/list-activity.ts'
import { ACCOUNT } from './accounts.ts'
import { Id, type InputOf, ShortText } from './fields.ts'
import { operationsOf } from './operation.ts'

/** Nothing of the log is a target. */
const { list } = operationsOf({ ...ACCOUNT, word: 'activity', plural: 'activity' })

const Time = Type.Optional(ShortText)
export const ACTIVITY_FILTER = {
  actor: Type.Optional(Type.Enum(['operator', 'token', 'command', 'service'])),
  operator: Type.Optional(Id('only what this operator did')),
  account: Type.Optional(Id('only what was done with this account')),
  action: Type.Optional(ShortText),
  from: Time,
  to: Time,
}

export function activityFilter(given: InputOf<typeof ACTIVITY_FILTER>): ActivityFilter {
  const { actor = null, operator = null, account = null, action = null, from, to } = given
  return {
    actorKind: actor,
    operatorId: operator,
    accountId: account,
    action,
    from: timeOrNull('from', from),
    to: timeOrNull('to', to),
  }
}

export const ACTIVITY = {
  list: list({
    name: 'activity.list',
    role: 'owner',
    does: 'read the whole activity log',
    input: ACTIVITY_FILTER,
    run: ({ database, actor, input }, { after, limit }) =>
      listActivity(database, actor.organizationIds, activityFilter(input), {
        beforeId: after ?? INT64_MAX,
        limit,
      }),
  }),
}
