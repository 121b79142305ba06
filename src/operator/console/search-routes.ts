/** GET /api/search: accounts, people and events by any of their ids or by name. */
import type { FastifyInstance } from 'fastify'
import { AppError } from '../../errors.ts'
import { Type } from '../../http/typebox.ts'
import { checker, refuseInput, StorableText } from '../../http/validate.ts'
import { search } from '../search.ts'
import { OperatorLimit } from './operator-limit.ts'
import type { ConsoleParts } from './parts.ts'
import { operatorOf, VIEWER } from './session.ts'

/** The longest id has 128 characters, and the longest name 100. */
const TEXT_MAX_LENGTH = 256
/**
 * Searches that run at the same time, per instance. They share the console's connection statement by statement, so another page waits
 * for at most four statements of some 20 ms.
 */
const SEARCHES_MAX = 4
/** Of one operator. A page aborts its search when the text changes. */
const SEARCHES_PER_OPERATOR_MAX = 2

const checkSearch = checker(
  Type.Object({ q: StorableText({ maxLength: TEXT_MAX_LENGTH }) }, { additionalProperties: false }),
)

export function searchRoutes(api: FastifyInstance, { reads }: Pick<ConsoleParts, 'reads'>): void {
  let running = 0
  const limit = new OperatorLimit(SEARCHES_PER_OPERATOR_MAX)
  api.get('/search', VIEWER, async (request, reply) => {
    const text = checkSearch(request.query).q.trim()
    if (text === '') refuseInput('q', 'must contain a name or an id')
    if (running >= SEARCHES_MAX) throw new AppError('busy', { retryAfterSeconds: 2 })
    const release = limit.begin(operatorOf(request))
    const abandoned = new AbortController()
    reply.raw.once('close', () => abandoned.abort())
    running += 1
    try {
      return await search(
        reads,
        { text, organizationIds: operatorOf(request).organizationIds },
        { signal: abandoned.signal },
      )
    } finally {
      running -= 1
      release()
    }
  })
}
