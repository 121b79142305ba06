/** Long work. */
import { findClient } from '../accounts/clients.ts'
import { printableUrl } from '../endpoints/address.ts'
import { checkEndpoint, checkUrl, requirePrivateNetwork } from '../endpoints/settings.ts'
import { requireVisible } from '../errors.ts'
import { INT64_MAX, INT64_MIN } from '../http/path-id.ts'
import { Type } from '../http/typebox.ts'
import { IdText, refuseInput } from '../http/validate.ts'
import { type AccountsChange, ENDPOINT_ACTIONS, startChange } from '../jobs/change-accounts.ts'
import { cancelJob, findJob, type JobSummary, listJobs, listRunningJobs } from '../jobs/job.ts'
import { ACCOUNTS_MAX, listResults, OUTCOMES, takeSecrets } from '../jobs/job-accounts.ts'
import type { Actor } from '../operators/actor.ts'
import type { Queryable } from '../postgres/statement.ts'
import { ACCOUNT_STATUSES } from '../watch/account-status.ts'
import { readMute } from '../watch/mutes.ts'
import { MUTE } from './accounts.ts'
import { NEW_ENDPOINT } from './endpoint-fields.ts'
import { Id, ShortText, Url } from './fields.ts'
import { type Noun, operationsOf } from './operation.ts'

const find = async (database: Queryable, actor: Actor, id: bigint): Promise<JobSummary> =>
  requireVisible(await findJob(database, actor, id), 'job', id)

const JOB: Noun<JobSummary> = { kind: 'job', word: 'job', plural: 'jobs', find }
const { read, list, change } = operationsOf(JOB, 'ownUrls')

export const JOBS = {
  list: list({
    name: 'job.list',
    does: 'list jobs',
    input: { account: Type.Optional(Id('only jobs of this account')) },
    run: ({ database, actor, input: { account: accountId = null } }, { after, limit }) =>
      listJobs(database, actor, { beforeId: after ?? INT64_MAX, limit, accountId }),
  }),

  running: list({
    name: 'job.running',
    does: 'list running jobs',
    isOfAll: true,
    isWhole: true,
    run: ({ database, actor }) => listRunningJobs(database, actor),
  }),

  show: read({
    name: 'job.show',
    does: 'see a job',
    run: async ({ target }) => ({ job: target }),
  }),

  /** A job that has ended meanwhile is not an error: the result shows how it ended. */
  cancel: change({
    name: 'job.cancel',
    does: 'stop a job',
    records: 'job.cancelled',
    run: async ({ database, actor, target: { id } }) => {
      const isCancelled = await cancelJob(database, actor, id)
      const result = { job: await find(database, actor, id), isCancelled }
      return { result, changes: isCancelled ? { kind: result.job.kind, done: result.job.done } : null }
    },
  }),
}

// Changes of many accounts at once: of chosen ones, or of all that match a filter. Each is one job, with a result for each account.

const SELECTION = {
  accounts: Type.Optional(
    Type.Array(IdText(), {
      ...{ minItems: 1, maxItems: ACCOUNTS_MAX },
      description: 'ids of the accounts; without them, all that match the filters',
    }),
  ),
  status: Type.Optional(Type.Enum([...ACCOUNT_STATUSES])),
  problem: Type.Optional(ShortText),
  organization: Type.Optional(Id('only accounts of this organization')),
  q: Type.Optional(ShortText),
}

type Given = Omit<NonNullable<Parameters<typeof startChange>[2]>, 'accounts'> & {
  accounts?: string[] | undefined
}

const start = async (
  database: Queryable,
  actor: Actor,
  { accounts, status, problem, organization, q }: Given,
  given: AccountsChange,
  shown: Record<string, unknown>,
) => {
  const selection = { accounts: accounts?.map(BigInt), status, problem, organization, q }
  return { job: await startChange(database, actor, selection, given, shown), changes: null }
}

export const ACCOUNT_JOBS = {
  verify: change({
    name: 'job.verify-accounts',
    does: 'verify many accounts',
    isOfAll: true,
    records: 'job.started',
    input: SELECTION,
    run: ({ database, actor, input }) =>
      start(database, actor, input, { change: 'verify', settings: {} }, {}),
  }),

  mute: change({
    name: 'job.mute-accounts',
    does: 'mute the problems of many accounts',
    isOfAll: true,
    records: 'job.started',
    input: { ...SELECTION, ...MUTE },
    run: ({ database, actor, input }) => {
      const settings = readMute(input)
      return start(database, actor, input, { change: 'mute', settings }, { ...settings })
    },
  }),

  unmute: change({
    name: 'job.unmute-accounts',
    does: 'end the mutes of many accounts',
    isOfAll: true,
    records: 'job.started',
    input: SELECTION,
    run: ({ database, actor, input }) =>
      start(database, actor, input, { change: 'unmute', settings: {} }, {}),
  }),

  /** An account without an endpoint of this URL stays unchanged. */
  changeEndpoints: change({
    name: 'job.change-endpoints',
    does: 'change endpoints of many accounts',
    isOfAll: true,
    records: 'job.started',
    input: {
      ...SELECTION,
      endpoint: Url('URL that the endpoints have'),
      action: Type.Enum([...ENDPOINT_ACTIONS]),
      url: Type.Optional(Url('URL that the action move gives them')),
    },
    run: ({ database, actor, services, input: { endpoint, action, url, ...selection } }) => {
      if ((action === 'move') !== (url !== undefined))
        refuseInput('url', 'belongs to the action move, and to no other')
      // Whether the private network is allowed is a setting of each endpoint.
      if (url !== undefined) checkUrl({ url, allowPrivateNetwork: true }, services.ownUrls())
      const settings = { endpoint: URL.parse(endpoint)?.href ?? endpoint, action, url }
      const shown = {
        ...{ action, endpoint: printableUrl(endpoint) },
        ...(url !== undefined && { url: printableUrl(url) }),
      }
      return start(database, actor, selection, { change: 'endpoints', settings }, shown)
    },
  }),

  /** An account that has an endpoint of this URL and format stays unchanged. */
  addEndpoints: change({
    name: 'job.add-endpoints',
    does: 'add an endpoint to many accounts',
    isOfAll: true,
    records: 'job.started',
    input: { ...SELECTION, ...NEW_ENDPOINT },
    run: ({ database, actor, services, input }) => {
      const { accounts: _, status, problem, organization, q, ...given } = input
      if (given.allowPrivateNetwork) requirePrivateNetwork(actor)
      const settings = { ...given, ...checkEndpoint(given, services.ownUrls()) }
      const shown = { url: printableUrl(settings.url), format: settings.format }
      return start(database, actor, input, { change: 'endpoint', settings }, shown)
    },
  }),

  /** An account of which the client has a key that works stays unchanged. */
  addKeys: change({
    name: 'job.add-keys',
    does: 'give a client access to many accounts',
    isOfAll: true,
    records: 'job.started',
    input: { ...SELECTION, client: Id('id of the client') },
    run: async ({ database, actor, input: { client, ...of } }) => {
      await findClient(database, actor.organizationIds, client)
      const settings = { client: String(client), expiresAt: null }
      return start(database, actor, of, { change: 'key', settings }, { client: settings.client })
    },
  }),

  results: list({
    name: 'job.results',
    does: 'see what a job did with each account',
    input: { outcome: Type.Optional(Type.Enum([...OUTCOMES])) },
    run: ({ database, actor, target: { id: jobId }, input: { outcome = null } }, { after, limit }) =>
      listResults(
        database,
        actor.organizationIds,
        { jobId, outcome },
        { afterId: after ?? INT64_MIN, limit },
      ),
  }),

  /** Once, and only the person who started the job. */
  secrets: change({
    name: 'job.secrets',
    does: 'see the keys or secrets that a job has added',
    records: 'job.secrets_shown',
    run: async ({ database, actor, target: { id, kind } }) => {
      const secrets = await takeSecrets(database, actor, id)
      return { result: { secrets }, changes: secrets.length === 0 ? null : { kind, secrets: secrets.length } }
    },
  }),
}
