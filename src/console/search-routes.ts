/** What no operation serves: a search that ends with its request, and a log that needs another role for another kind of object. */
import type { FastifyInstance } from 'fastify'
import { AppError } from '../errors.ts'
import { INT64_MAX } from '../http/path-id.ts'
import { Shares } from '../http/shares.ts'
import { Type } from '../http/typebox.ts'
import { refuseInput, StorableText } from '../http/validate.ts'
import { search } from '../operations/search.ts'
import { includesRole } from '../operators/actor.ts'
import { ALL_ACTIVITY, listActivity, listActivityOf } from '../operators/list-activity.ts'
import {
  type ConsoleParts,
  checkFields,
  Id,
  idOrNull,
  pageOf,
  READ_LIMIT,
  refuseBusy,
  requireId,
  sharesOf,
} from './parts.ts'
import { operatorOf, VIEWER } from './session.ts'

/** The longest id has 128 characters, and the longest name 100. */
const TEXT_MAX_LENGTH = 256
/**
 * Searches that run at the same time, per instance. They share the console's connection statement by statement, so another page waits
 * for at most four statements of some 20 ms.
 */
const SEARCHES_MAX = 4
/** A page aborts its search when the text changes. */
const SEARCHES_OF_ONE_MAX = { operator: 2, organization: 3 }
const ALL_SEARCHES = { key: 'all', max: SEARCHES_MAX, refusal: refuseBusy }

const KINDS = ['organization', 'account', 'endpoint', 'client', 'key', 'member', 'operator'] as const
const checkSearch = checkFields({ q: StorableText({ maxLength: TEXT_MAX_LENGTH }) })
const checkObject = checkFields({
  kind: Type.Enum([...KINDS, 'notification_channel', 'job']),
  id: Id,
  account: Type.Optional(Id),
  after: Type.Optional(Id),
})

export function searchRoutes(api: FastifyInstance, { reads }: Pick<ConsoleParts, 'reads'>): void {
  const shares = new Shares()
  api.get('/search', VIEWER, async (request, reply) => {
    const text = checkSearch(request.query).q.trim()
    if (text === '') refuseInput('q', 'must contain a name or an id')
    const operator = operatorOf(request)
    const end = shares.begin([...sharesOf(operator, SEARCHES_OF_ONE_MAX), ALL_SEARCHES])
    const abandoned = new AbortController()
    reply.raw.once('close', () => abandoned.abort())
    try {
      const { organizationIds } = operator
      return await search({ reads, text, organizationIds, signal: abandoned.signal })
    } finally {
      end()
    }
  })

  api.get('/activity/of', VIEWER, async (request) => {
    const { kind, id, account, after } = checkObject(request.query)
    const of = { kind, id: requireId(id), accountId: idOrNull(account) }
    const { organizationIds, role } = operatorOf(request)
    // Only owners see operators.
    if (kind === 'operator' && !includesRole(role, 'owner')) throw new AppError('forbidden')
    const page = { beforeId: idOrNull(after) ?? INT64_MAX, limit: READ_LIMIT }
    // The page of an account also shows what was done with its endpoints, keys and members.
    const rows =
      kind === 'account'
        ? await listActivity(reads, organizationIds, { ...ALL_ACTIVITY, accountId: of.id }, page)
        : await listActivityOf(reads, organizationIds, of, page)
    const { items, next } = pageOf(rows)
    return { activity: items, next }
  })
}
