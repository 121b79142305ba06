/** Stored events that could not be applied to members: reasons, and retries. */
import type { AccountId } from '../accounts/account.ts'
import { findAccountDetails } from '../accounts/accounts.ts'
import {
  countUnapplied,
  type EventDetails,
  findEvent,
  findFailedEventIds,
  listFailureReasons,
  listUnappliedEvents,
  type RetryOutcome,
  recordRetry,
  retryEvents,
} from '../audience/events.ts'
import { NotVisible } from '../errors.ts'
import { Type } from '../http/typebox.ts'
import { StorableText } from '../http/validate.ts'
import { startEventRetry } from '../jobs/retry-events.ts'
import { Id } from './fields.ts'
import { type Noun, operationsOf, type Target } from './operation.ts'

const EVENT: Noun<EventDetails & Target> = {
  kind: 'event',
  word: 'event',
  plural: 'events',
  find: async (database, { organizationIds }, id) => {
    const event = await findEvent(database, organizationIds, id)
    const account = await findAccountDetails(database, organizationIds, event.accountId)
    return { ...event, organizationId: account.organizationId }
  },
}
const { read, list, change, call } = operationsOf(EVENT)

const ACCOUNT = { account: Type.Optional(Id('only events of this account')) }
const FILTER = {
  ...ACCOUNT,
  failure: Type.Optional(StorableText({ minLength: 1, maxLength: 4_000 })),
}
const filterOf = (given: { account?: AccountId | undefined; failure?: string | undefined }) => ({
  accountId: given.account ?? null,
  failure: given.failure ?? null,
})

export const EVENTS = {
  list: list({
    name: 'event.list',
    does: 'list events that were not applied',
    input: FILTER,
    run: ({ database, actor, input }, { after, limit }) => {
      const page = { limit, ...(after === null ? {} : { beforeId: after }) }
      return listUnappliedEvents(database, actor.organizationIds, filterOf(input), page)
    },
  }),

  show: read({
    name: 'event.show',
    does: 'see an event',
    run: async ({ target: { organizationId: _, ...event } }) => ({ event }),
  }),

  reasons: read({
    name: 'event.reasons',
    does: 'count events by reason',
    isOfAll: true,
    input: ACCOUNT,
    run: async ({ database, actor, input: { account = null } }) => ({
      reasons: await listFailureReasons(database, actor.organizationIds, account),
    }),
  }),

  retry: call({
    name: 'event.retry',
    does: 'retry an event',
    records: 'events.retried',
    run: async ({ database, actor, target }) => {
      const [failed] = await findFailedEventIds(database, [target.id])
      if (failed === undefined) throw new NotVisible('event', target.id)
      // Before it begins, as the retry of a filter.
      await recordRetry(database, actor, [failed], target)
      const [retried] = await retryEvents(database, [failed])
      return { result: retried as RetryOutcome, changes: null }
    },
  }),

  retryAll: change({
    name: 'event.retry-all',
    does: 'retry all events that match',
    isOfAll: true,
    records: 'events.retried',
    input: FILTER,
    run: async ({ database, actor, input }) => {
      const filter = filterOf(input)
      const { accountId } = filter
      const { organizationIds } = actor
      // Events of several organizations belong to none.
      const { organizationId } =
        accountId === null
          ? { organizationId: null }
          : await findAccountDetails(database, organizationIds, accountId)
      const total = await countUnapplied(database, organizationIds, filter)
      const job = await startEventRetry(database, actor, filter, { accountId, organizationId, total })
      return { job, changes: null }
    },
  }),
}
