/** Sends the stored events of a time range, or the present state of members, to an endpoint again. */
import { scopeOfAccount } from '../accounts/scope.ts'
import { filterParameters, readFilters } from '../audience/filters.ts'
import { countMatching } from '../audience/list-pages.ts'
import {
  countReplay,
  findReplayable,
  planReplay,
  RATE_DEFAULT,
  RATE_MAX,
  secondsOf,
} from '../endpoints/replays.ts'
import { itemsOf } from '../http/csv.ts'
import { Type } from '../http/typebox.ts'
import { StorableText } from '../http/validate.ts'
import { startReplay, startResend } from '../jobs/send-again.ts'
import { ENDPOINT } from './endpoints.ts'
import { Default, objectOf, orNull, ShortText } from './fields.ts'
import { operationsOf } from './operation.ts'

const { read, call } = operationsOf(ENDPOINT, 'counted')

const Time = (description: string) => StorableText({ minLength: 1, maxLength: 256, description })
const RANGE = {
  from: Time('ISO 8601 with an offset or Z, or a date (00:00 UTC): events received from then on'),
  to: Time('events received before this time, and at least 10 s ago'),
}
const RATE = Default(
  Type.Integer({ minimum: 1, maximum: RATE_MAX, description: 'events or members per second at most' }),
  RATE_DEFAULT,
)

/** Characters of its JSON in a URL, which has 16 KiB. */
const CONDITION_MAX_LENGTH = 4_000
export const ConditionText = StorableText({ maxLength: CONDITION_MAX_LENGTH })

const { updatedSince: _, ...parameters } = filterParameters
export const FILTERS = { ...parameters, condition: Type.Optional(ConditionText) }
export const FilterSchema = objectOf(FILTERS)

export const REPLAYS = {
  count: read({
    name: 'endpoint.count-replay',
    role: 'manager',
    does: 'count events of a time range',
    input: { ...RANGE, events: Type.Optional(StorableText({ maxLength: 4_000 })) },
    run: async ({ database, actor, target, services, input: { events, ...range } }) => {
      const asked = { ...range, events: events === undefined ? null : itemsOf(events) }
      const { endpoint, request } = await planReplay(database, actor.organizationIds, target.id, asked)
      return services.counted(actor, () => countReplay(database, endpoint, request))
    },
  }),

  /** It counts before the transaction, which records the start. */
  replay: call({
    name: 'endpoint.replay',
    does: 'replay a time range',
    records: 'endpoint.replayed',
    input: {
      ...RANGE,
      events: Default(
        orNull(
          Type.Array(ShortText, {
            maxItems: 100,
            description: 'event types, separated by commas, or `all` that the endpoint receives',
          }),
          'all',
        ),
        null,
      ),
      rate: RATE,
    },
    run: async ({ database, actor, target, services, input }) => {
      const { endpoint, request } = await planReplay(database, actor.organizationIds, target.id, input)
      const { events: count, isMore } = await services.counted(actor, () =>
        countReplay(database, endpoint, request),
      )
      const job = await database.transaction((transaction) =>
        startReplay(transaction, actor, endpoint, request, isMore ? null : count),
      )
      const range = ` from ${request.from} to ${request.to}`
      return { job, result: { count, isMore, range, seconds: secondsOf(count, input.rate) }, changes: null }
    },
  }),

  resend: call({
    name: 'endpoint.resend',
    does: 'replay members',
    records: 'endpoint.resent',
    input: { filters: FilterSchema, rate: RATE },
    run: async ({ database, actor, target, services, input: { rate, ...given } }) => {
      const endpoint = await findReplayable(database, actor.organizationIds, target.id, 'members')
      const matching = await readFilters(database, endpoint.accountId, given.filters)
      const count = await services.counted(actor, () =>
        countMatching(database, scopeOfAccount({ ...endpoint, id: endpoint.accountId }), matching),
      )
      const job = await database.transaction((transaction) =>
        startResend(transaction, actor, endpoint, { filters: matching, rate }, count),
      )
      return {
        job,
        result: { count, isMore: false, range: '', seconds: secondsOf(count, rate) },
        changes: null,
      }
    },
  }),
}
