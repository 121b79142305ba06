import type { FastifyInstance } from 'fastify'
import { findAccountDetails, findVerification, searchAccounts } from '../accounts/accounts.ts'
import { Type } from '../http/typebox.ts'
import { checker } from '../http/validate.ts'
import { fleetRow, listFleet, readFleetCharts } from '../watch/fleet.ts'
import { findFleetAccount } from '../watch/fleet-facts.ts'
import { sharedExamination } from '../watch/reachability.ts'
import { confirmStatus } from '../watch/store-statuses.ts'
import { type ConsoleParts, checkFields, found, requireId, ShortText } from './parts.ts'
import { operatorOf, VIEWER } from './session.ts'

const MATCHES_MAX = 20
/** Rows of the fleet whose charts one request reads. The page renders 120 rows, or more on a very tall screen. */
const CHARTS_MAX = 250

const checkSearch = checkFields({ q: Type.Optional(ShortText) })
const checkCharts = checker(
  Type.Object(
    { ids: Type.String({ pattern: `^-?\\d{1,19}(,-?\\d{1,19}){0,${CHARTS_MAX - 1}}$` }) },
    { additionalProperties: false },
  ),
)
export function accountRoutes(
  api: FastifyInstance,
  { database, reads, verifier, config, now }: ConsoleParts,
): void {
  const examineReachability = sharedExamination(config.publicUrl)
  api.get('/reachability', VIEWER, () => examineReachability())

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

  api.get<{ Params: { id: string } }>('/accounts/:id', VIEWER, async (request) => {
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
}
