/** Long work over members: how many match, start, progress, cancel. */
import type { FastifyInstance, FastifyRequest } from 'fastify'
import { checkFilters, filterParameters, toFilters } from '../../audience/filters.ts'
import { TAG_MAX_LENGTH } from '../../audience/member.ts'
import { TAGS_MAX } from '../../audience/update.ts'
import { AppError } from '../../errors.ts'
import { bodyBytes, parseUtf8Json } from '../../http/body.ts'
import { INT64_MAX } from '../../http/path-id.ts'
import { Type } from '../../http/typebox.ts'
import { checker, refuseInput, StorableText } from '../../http/validate.ts'
import { findAccountDetails } from '../accounts.ts'
import { countMatching } from '../count-members.ts'
import { cancelJob, findJob, listJobs } from '../jobs/job.ts'
import { scopeOfJob, startTagging } from '../jobs/tag-members.ts'
import type { ConsoleParts } from './parts.ts'
import { found, Id, idOrNull, pageOf, READ_LIMIT, requireId } from './parts.ts'
import { sendJob } from './send-job.ts'
import { MANAGER, operatorOf, VIEWER } from './session.ts'

const checkList = checker(
  Type.Object({ account: Type.Optional(Id), before: Type.Optional(Id) }, { additionalProperties: false }),
)

const { updatedSince: _, ...filters } = filterParameters
const checkSearch = checker(Type.Object(filters, { additionalProperties: false }))
const Tags = Type.Array(StorableText({ minLength: 1, maxLength: TAG_MAX_LENGTH }), { maxItems: TAGS_MAX })
const checkTagging = checker(
  Type.Object(
    {
      filters: Type.Object(filters, { additionalProperties: false }),
      add: Tags,
      remove: Tags,
      expectedCount: Type.Integer({ minimum: 0 }),
    },
    { additionalProperties: false },
  ),
)

type OfId = { Params: { id: string } }
type OfAccount = { Params: { account: string } }

export function jobRoutes(api: FastifyInstance, parts: ConsoleParts): void {
  const { database, reads } = parts
  api.get('/jobs', VIEWER, async (request) => {
    const { account, before } = checkList(request.query)
    const page = { beforeId: idOrNull(before) ?? INT64_MAX, limit: READ_LIMIT, accountId: idOrNull(account) }
    const { items, next } = pageOf(await listJobs(database, operatorOf(request), page))
    return { jobs: items, next }
  })

  api.get<OfId>('/jobs/:id', VIEWER, async (request) => ({
    job: found(await findJob(database, operatorOf(request), requireId(request.params.id))),
  }))

  // A job that has ended meanwhile is not an error: the response shows how it ended.
  api.post<OfId>('/jobs/:id/cancel', MANAGER, async (request) => {
    const operator = operatorOf(request)
    const id = requireId(request.params.id)
    found(await findJob(database, operator, id))
    await database.transaction((transaction) => cancelJob(transaction, operator, id))
    return { job: found(await findJob(database, operator, id)) }
  })

  const accountOf = async (request: FastifyRequest<OfAccount>) =>
    found(
      await findAccountDetails(
        database,
        operatorOf(request).organizationIds,
        requireId(request.params.account),
      ),
    )

  api.get<OfAccount>('/accounts/:account/audience/count', VIEWER, async (request) => {
    const { query } = request
    const { id, organizationId } = await accountOf(request)
    const matching = toFilters(checkFilters(checkSearch(query)))
    return { count: await countMatching(reads, scopeOfJob({ accountId: id, organizationId }), matching) }
  })

  api.post<OfAccount>('/accounts/:account/audience/tag', MANAGER, async (request, reply) => {
    const account = await accountOf(request)
    const { expectedCount: expected, ...body } = checkTagging(parseUtf8Json(bodyBytes(request)))
    const change = {
      filters: toFilters(body.filters),
      add: [...new Set(body.add)],
      remove: [...new Set(body.remove)],
    }
    requireChange(change)
    const scope = scopeOfJob({ accountId: account.id, organizationId: account.organizationId })
    const count = await countMatching(database, scope, change.filters)
    return sendJob(request, reply, parts, (transaction) =>
      startTagging(transaction, operatorOf(request), account, change, { count, expected }),
    )
  })
}

function requireChange({ add, remove }: { add: string[]; remove: string[] }): void {
  if (add.length + remove.length === 0)
    throw new AppError('invalid_input', { message: 'Add or remove at least one tag' })
  const both = add.find((tag) => remove.includes(tag))
  if (both !== undefined) refuseInput('remove', 'has a tag that is also added')
}
