/** All accounts together, and the service that LINE has to reach for them. */
import { parsePathId } from '../http/path-id.ts'
import { Type } from '../http/typebox.ts'
import { ACCOUNT_STATUSES, REASONS } from '../watch/account-status.ts'
import { fleetRow, listFleet, readFleetCharts } from '../watch/fleet.ts'
import { examineReachability } from '../watch/reachability.ts'
import { ACCOUNT } from './accounts.ts'
import { Id, ShortText } from './fields.ts'
import { operationsOf } from './operation.ts'

const { read, list } = operationsOf({ ...ACCOUNT, plural: 'fleet' }, 'verifier')

/** Rows of the fleet whose charts one request reads. The page renders 120 rows, or more on a very tall screen. */
const CHARTS_MAX = 250

export const FLEET = {
  /** The page filters by itself. An assistant does not, because a fleet has thousands of accounts. */
  list: list({
    name: 'fleet.list',
    does: 'list accounts',
    isWhole: true,
    input: {
      status: Type.Optional(Type.Enum([...ACCOUNT_STATUSES])),
      problem: Type.Optional(Type.Enum(Object.keys(REASONS), { description: 'code of a problem' })),
      organization: Type.Optional(Id('only accounts of this organization')),
      name: Type.Optional(ShortText),
    },
    run: async ({ database, actor, input: { status, problem, organization, name = '' } }) => {
      const fleet = await listFleet(database, actor.organizationIds)
      const matching = fleet.filter(
        (account) =>
          (status === undefined || account.status === status) &&
          (problem === undefined || account.problems.some(({ reason }) => reason === problem)) &&
          (organization === undefined || account.organizationId === organization) &&
          account.name.toLowerCase().includes(name.toLowerCase()),
      )
      return matching.map(fleetRow)
    },
  }),

  charts: read({
    name: 'fleet.charts',
    does: 'see charts',
    isOfAll: true,
    input: { ids: Type.String({ pattern: `^-?\\d{1,19}(,-?\\d{1,19}){0,${CHARTS_MAX - 1}}$` }) },
    run: async ({ database, actor, input }) => {
      const ids = input.ids.split(',').map(parsePathId)
      return {
        charts: await readFleetCharts(
          database,
          actor.organizationIds,
          ids.filter((id) => id !== null),
        ),
      }
    },
  }),

  reachability: read({
    name: 'fleet.reachability',
    does: 'check whether PUBLIC_URL is reachable',
    isOfAll: true,
    run: ({ services: { verifier } }) => examineReachability(verifier.publicUrl),
  }),
}
