import type { FastifyInstance } from 'fastify'
import { Type } from '../../http/typebox.ts'
import { checker } from '../../http/validate.ts'
import { findAccountDetails, findVerification, searchAccounts } from '../accounts.ts'
import {
  findFleetAccount,
  fleetRow,
  listAccountDays,
  listDeliveryHours,
  listFleet,
  readFleetCharts,
} from '../fleet.ts'
import type { ConsoleParts } from './parts.ts'
import { found, requireId, ShortText } from './parts.ts'

const MATCHES_MAX = 20
/** Rows of the fleet whose charts one request reads. The page renders 120 rows, or more on a very tall screen. */
const CHARTS_MAX = 250
const HOURS_CHART_DAYS = 7
const DAYS_CHART_DAYS = 90

const checkSearch = checker(Type.Object({ q: Type.Optional(ShortText) }, { additionalProperties: false }))
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
  api.get('/fleet', async () => ({ accounts: (await listFleet(reads, now())).map(fleetRow) }))

  api.get('/fleet/charts', async ({ query }) => {
    const { ids } = checkCharts(query)
    return { charts: await readFleetCharts(reads, ids.split(',').map(requireId)) }
  })

  api.get('/accounts', async ({ query }) => {
    const { q = '' } = checkSearch(query)
    return { accounts: await searchAccounts(reads, q.trim(), MATCHES_MAX) }
  })

  api.get<{ Params: { id: string } }>('/accounts/:id', async ({ params }) => {
    const id = requireId(params.id)
    // Anybody who has the oaHash can write events, so it is treated like a secret.
    const { oaHash: _, ...account } = found(await findAccountDetails(database, id))
    return {
      account,
      verification: await findVerification(database, id),
      facts: found(await findFleetAccount(reads, id, now())),
      webhookPath: verifier.webhookPaths(String(id))[0],
      publicUrl: config.publicUrl,
    }
  })

  api.get<{ Params: { id: string } }>('/accounts/:id/charts', async ({ params }) => {
    const id = requireId(params.id)
    return {
      hours: await listDeliveryHours(database, id, HOURS_CHART_DAYS),
      days: await listAccountDays(database, id, DAYS_CHART_DAYS),
    }
  })
}
