/** All stored events, and what becomes of those that could not be applied to members: they are retried or set aside. */
import { findAccountDetails } from '../accounts/accounts.ts'
import { listEventDeliveries } from '../endpoints/event-deliveries.ts'
import { NotVisible } from '../errors.ts'
import { Type } from '../http/typebox.ts'
import { StorableText } from '../http/validate.ts'
import type { AccountId } from '../ids.ts'
import { EVENT_STATUSES, listAllEvents } from '../intake/list-events.ts'
import {
  countUnapplied,
  type EventDetails,
  findEvent,
  findFailedEventIds,
  listFailureReasons,
  type RetryOutcome,
  recordRetry,
  retryEvents,
  setEventsAside,
} from '../intake/stored-events.ts'
import { startEventsJob } from '../jobs/retry-events.ts'
import { changesBetween } from '../operators/activity.ts'
import type { Actor } from '../operators/actor.ts'
import type { Queryable } from '../postgres/statement.ts'
import { Id, orNull } from './fields.ts'
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
const { read, change, call } = operationsOf(EVENT)

const ACCOUNT = { account: Type.Optional(Id('only events of this account')) }
const FAILED = {
  ...ACCOUNT,
  failure: Type.Optional(
    StorableText({ minLength: 1, maxLength: 4_000, description: 'only events that failed for this reason' }),
  ),
}
const Time = (description: string) => Type.Optional(StorableText({ maxLength: 64, description }))
const Word = (description: string) =>
  Type.Optional(StorableText({ minLength: 1, maxLength: 256, description }))
const Reason = StorableText({ minLength: 1, maxLength: 256, description: 'why, without personal data' })

type Filter = { account?: AccountId | undefined; failure?: string | undefined }

/** What a job about all failed events of a filter begins with. */
async function selectionOf(database: Queryable, { organizationIds }: Actor, given: Filter) {
  const { account: accountId = null, failure = null } = given
  const filter = { accountId, failure }
  // Events of several organizations belong to none.
  const { organizationId } =
    accountId === null
      ? { organizationId: null }
      : await findAccountDetails(database, organizationIds, accountId)
  const total = await countUnapplied(database, organizationIds, filter)
  return { filter, owner: { accountId, organizationId, total } }
}

export const EVENTS = {
  list: read({
    name: 'event.list',
    does: 'list events',
    help: 'list stored events, the newest first',
    input: {
      ...ACCOUNT,
      kind: Word('only events of this kind, such as follow'),
      user: Word('only events with this LINE user id'),
      from: Time('received from this time on, such as 2026-11-01T09:00Z'),
      to: Time('received before this time'),
      status: Type.Optional(
        Type.Enum([...EVENT_STATUSES], { description: 'failed events, or those that were set aside' }),
      ),
      failure: FAILED.failure,
      key: Word('webhook event id of LINE'),
      after: Type.Optional(
        Type.String({ pattern: '^\\d{1,18}\\.-?\\d{1,19}$', description: '`next` of the page before' }),
      ),
    },
    run: ({ database, actor, input: { after = null, ...filter } }, { limit }) =>
      listAllEvents(database, actor.organizationIds, filter, { before: after, limit }),
  }),

  show: read({
    name: 'event.show',
    does: 'see an event',
    run: async ({ database, target: { organizationId: _, ...event } }) => ({
      event,
      deliveries: await listEventDeliveries(database, event.accountId, event.id),
    }),
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
    input: FAILED,
    run: async ({ database, actor, input }) => {
      const { filter, owner } = await selectionOf(database, actor, input)
      return { job: await startEventsJob(database, actor, filter, null, owner), changes: null }
    },
  }),

  setAside: change({
    name: 'event.set-aside',
    does: 'set a failed event aside',
    help: 'set a failed event aside: it no longer degrades its account, and can still be retried',
    records: 'events.set_aside',
    status: 'set aside',
    input: { reason: orNull(Reason, 'none') },
    run: async ({ database, target: { id, setAside }, input: { reason } }) => {
      if ((await setEventsAside(database, [id], reason)).length === 0) throw new NotVisible('event', id)
      return { changes: changesBetween({ reason: setAside }, { reason }) }
    },
  }),

  setAsideAll: change({
    name: 'event.set-aside-all',
    does: 'set all failed events that match aside',
    help: 'set all failed events that match aside',
    isOfAll: true,
    records: 'events.set_aside',
    input: { ...FAILED, reason: Reason },
    run: async ({ database, actor, input: { reason, ...given } }) => {
      const { filter, owner } = await selectionOf(database, actor, given)
      return { job: await startEventsJob(database, actor, filter, reason, owner), changes: null }
    },
  }),
}
