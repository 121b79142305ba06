/** Accounts: the fleet, one of them, and what the service does with LINE for it. The search for everything. */
import type { FastifyInstance, FastifyRequest } from 'fastify'
import { findAccount } from '../accounts/account.ts'
import { findAccountDetails, findVerification, searchAccounts } from '../accounts/accounts.ts'
import { verifyAccount } from '../accounts/manage-accounts.ts'
import { AppError, FatalError } from '../errors.ts'
import { bodyBytes, parseUtf8Json } from '../http/body.ts'
import { Shares } from '../http/shares.ts'
import { Type } from '../http/typebox.ts'
import { Nullable, refuseInput, StorableText } from '../http/validate.ts'
import { findWebhook, publicUrlFault, replaceWebhook } from '../jobs/onboard.ts'
import { ACCOUNT } from '../operations/accounts.ts'
import { search } from '../operations/search.ts'
import { fleetRow, listFleet, readFleetCharts } from '../watch/fleet.ts'
import { findFleetAccount } from '../watch/fleet-facts.ts'
import { examineReachability } from '../watch/reachability.ts'
import { confirmStatus } from '../watch/store-statuses.ts'
import { type ConsoleParts, checkFields, found, refuseBusy, requireId, ShortText, sharesOf } from './parts.ts'
import { MANAGER, operatorOf, VIEWER } from './session.ts'

const MATCHES_MAX = 20
/** Rows of the fleet whose charts one request reads. The page renders 120 rows, or more on a very tall screen. */
const CHARTS_MAX = 250

const checkSearch = checkFields({ q: Type.Optional(ShortText) })
const checkCharts = checkFields({
  ids: Type.String({ pattern: `^-?\\d{1,19}(,-?\\d{1,19}){0,${CHARTS_MAX - 1}}$` }),
})
const checkVerify = checkFields({
  testWebhook: Type.Optional(Type.Boolean()),
  proveRedelivery: Type.Optional(Type.Boolean()),
})
const checkReplaced = checkFields({ replaces: Nullable(Type.String({ maxLength: 2_000 })) })

type OfId = { Params: { id: string } }

export function accountRoutes(api: FastifyInstance, parts: ConsoleParts): void {
  const { database, reads, verifier, config, now } = parts
  api.get('/reachability', VIEWER, () => examineReachability(config.publicUrl))

  api.get('/fleet', VIEWER, async (request) => {
    const fleet = await listFleet(reads, operatorOf(request).organizationIds)
    return { accounts: fleet.map(fleetRow) }
  })

  api.get('/fleet/charts', VIEWER, async (request) => {
    const ids = checkCharts(request.query).ids.split(',').map(requireId)
    return { charts: await readFleetCharts(reads, operatorOf(request).organizationIds, ids) }
  })

  api.get('/accounts', VIEWER, async (request) => {
    const { q = '' } = checkSearch(request.query)
    const { organizationIds } = operatorOf(request)
    return { accounts: await searchAccounts(reads, organizationIds, q.trim(), MATCHES_MAX) }
  })

  api.get<OfId>('/accounts/:id', VIEWER, async (request) => {
    const id = requireId(request.params.id)
    const { organizationIds } = operatorOf(request)
    // Anybody who has the oaHash can write events, so it is treated like a secret.
    const { oaHash: _, ...account } = await findAccountDetails(database, organizationIds, id)
    await confirmStatus(database, id, now())
    return {
      account,
      verification: await findVerification(database, id),
      facts: found(await findFleetAccount(database, organizationIds, id)),
      webhookPath: verifier.webhookPaths(String(id))[0],
      publicUrl: config.publicUrl,
    }
  })
  platformRoutes(api, parts)
  searchRoute(api, parts)
}

/** An operator of the account lets the service call LINE. */
function platformRoutes(api: FastifyInstance, { database, verifier, config }: ConsoleParts): void {
  const line = { lineApi: verifier.lineApi, publicUrl: config.publicUrl }
  const accountOf = async (request: FastifyRequest<OfId>) => {
    const { id } = await ACCOUNT.find(database, operatorOf(request), requireId(request.params.id))
    return found(await findAccount(database, id))
  }
  const webhookOf = async (request: FastifyRequest<OfId>) => {
    const account = await accountOf(request)
    const fault = publicUrlFault(config.publicUrl)
    if (fault !== null) throw refusal(fault)
    return { account, current: await asInput(findWebhook(line, account)) }
  }

  api.post<OfId>('/accounts/:id/verify', MANAGER, async (request) => {
    const account = await accountOf(request)
    const body = bodyBytes(request)
    const claims = body.length === 0 ? {} : checkVerify(parseUtf8Json(body))
    return verifyAccount({ ...verifier, database }, operatorOf(request), account, claims)
  })

  api.get<OfId>('/accounts/:id/webhook', MANAGER, async (request) => (await webhookOf(request)).current)

  api.post<OfId>('/accounts/:id/webhook', MANAGER, async (request, reply) => {
    const { replaces } = checkReplaced(parseUtf8Json(bodyBytes(request)))
    const { account, current } = await webhookOf(request)
    // The operator confirmed to replace one URL. Another one may be in use by now.
    if (current.url !== replaces)
      throw refusal('The webhook URL has changed meanwhile. Check it and confirm again.')
    const actor = operatorOf(request)
    if (!current.isHere) await asInput(replaceWebhook({ ...line, database, actor }, account, current))
    return reply.code(204).send()
  })
}

/** A refusal by LINE is a fault of the account's settings, not of the service. */
async function asInput<T>(work: Promise<T>): Promise<T> {
  return work.catch((error: unknown) => {
    throw error instanceof FatalError ? refusal(error.message) : error
  })
}

export const refusal = (message: string) => new AppError('invalid_input', { message })

// Accounts, people and events by any of their ids or by name.

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

const checkEverything = checkFields({ q: StorableText({ maxLength: TEXT_MAX_LENGTH }) })

function searchRoute(api: FastifyInstance, { reads }: Pick<ConsoleParts, 'reads'>): void {
  const shares = new Shares()
  api.get('/search', VIEWER, async (request, reply) => {
    const text = checkEverything(request.query).q.trim()
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
