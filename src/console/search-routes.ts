/** GET /api/search: accounts, people and events by any of their ids or by name. */
import type { FastifyInstance } from 'fastify'
import { Shares } from '../http/shares.ts'
import { refuseInput, StorableText } from '../http/validate.ts'
import { search } from '../operations/search.ts'
import { type ConsoleParts, checkFields, refuseBusy, sharesOf } from './parts.ts'
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

const checkSearch = checkFields({ q: StorableText({ maxLength: TEXT_MAX_LENGTH }) })

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
}
