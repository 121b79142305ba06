/** Sends stored events of a time range, or the present state of members, to an endpoint again. */
import type { FastifyInstance } from 'fastify'
import { readFilters } from '../audience/filters.ts'
import { countReplay, findResendable, planReplay, secondsOf } from '../endpoints/start-replay.ts'
import { bodyBytes, parseUtf8Json } from '../http/body.ts'
import { Shares } from '../http/shares.ts'
import { Type } from '../http/typebox.ts'
import { Nullable } from '../http/validate.ts'
import { startReplay } from '../jobs/replay-events.ts'
import { RATE_DEFAULT, RATE_MAX } from '../jobs/replay-pace.ts'
import { startResend } from '../jobs/resend-members.ts'
import { scopeOfJob } from '../jobs/selection.ts'
import { FilterSchema, limitedCount } from './job-routes.ts'
import { sendJob } from './operation-routes.ts'
import { type ConsoleParts, checkFields, requireId, ShortText, sharesOf } from './parts.ts'
import { MANAGER, operatorOf } from './session.ts'

/** A count reads for up to 5 s in short statements. */
const COUNTS_MAX = { operator: 2, organization: 4 }

const Rate = Type.Optional(Type.Integer({ minimum: 1, maximum: RATE_MAX }))
const checkReplay = checkFields({
  from: ShortText,
  to: ShortText,
  events: Type.Optional(Nullable(Type.Array(ShortText, { maxItems: 100 }))),
  rate: Rate,
})
const checkResend = checkFields({ filters: FilterSchema, rate: Rate })

type OfId = { Params: { id: string } }

export function replayRoutes(api: FastifyInstance, parts: ConsoleParts): void {
  const { database } = parts
  const shares = new Shares()
  const countMembers = limitedCount()

  const planned = async (id: string, body: unknown, operator: ReturnType<typeof operatorOf>) => {
    const { organizationIds } = operator
    const plan = await planReplay(database, organizationIds, requireId(id), checkReplay(body))
    const end = shares.begin(sharesOf(operator, COUNTS_MAX))
    const count = await countReplay(database, plan.endpoint, plan.request).finally(end)
    return { ...plan, ...count }
  }

  api.post<OfId>('/endpoints/:id/replay/count', MANAGER, async (request) => {
    const body = parseUtf8Json(bodyBytes(request))
    const { request: asked, events, isMore } = await planned(request.params.id, body, operatorOf(request))
    return { events, isMore, seconds: secondsOf(events, asked.rate), from: asked.from, to: asked.to }
  })

  api.post<OfId>('/endpoints/:id/replay', MANAGER, async (request, reply) => {
    const operator = operatorOf(request)
    const body = parseUtf8Json(bodyBytes(request))
    const { endpoint, request: asked, events, isMore } = await planned(request.params.id, body, operator)
    return sendJob(request, reply, parts, (transaction) =>
      startReplay(transaction, operator, endpoint, asked, isMore ? null : events),
    )
  })

  api.post<OfId>('/endpoints/:id/resend', MANAGER, async (request, reply) => {
    const operator = operatorOf(request)
    const { filters, rate = RATE_DEFAULT } = checkResend(parseUtf8Json(bodyBytes(request)))
    const id = requireId(request.params.id)
    const endpoint = await findResendable(database, operator.organizationIds, id)
    const matching = await readFilters(database, endpoint.accountId, filters)
    const count = await countMembers(request, database, scopeOfJob(endpoint), matching)
    return sendJob(request, reply, parts, (transaction) =>
      startResend(transaction, operator, endpoint, { filters: matching, rate }, count),
    )
  })
}
