/** Outgoing webhooks. URLs appear in the activity log as they are printed, without tokens. */
import { findAccountDetails } from '../accounts/accounts.ts'
import { checkCondition } from '../audience/condition.ts'
import { countText, responseLine } from '../endpoints/endpoint-health.ts'
import {
  type EndpointSummary,
  findEndpoint,
  listAttempts,
  listEndpoints,
  listHours,
  previewDelivery,
} from '../endpoints/endpoints.ts'
import {
  discardRotation,
  finishRotation,
  ROWS_PER_STATEMENT,
  removeEndpointBatch,
  rotateSecret,
  setStatus,
} from '../endpoints/manage.ts'
import { listEndpointsOfPerson, NEW_ENDPOINT_ID, rehearse } from '../endpoints/repliers.ts'
import { LISTED_STATUSES, listDeliveryPage } from '../endpoints/sent-events.ts'
import { addEndpointOf, type EndpointSettings, updateEndpointOf } from '../endpoints/settings.ts'
import { requireVisible } from '../errors.ts'
import { parseJson } from '../http/body.ts'
import { age } from '../http/times.ts'
import { Type } from '../http/typebox.ts'
import { StorableText } from '../http/validate.ts'
import type { AccountId, OrganizationId } from '../ids.ts'
import { startEndpointJob } from '../jobs/send-again.ts'
import { statement } from '../postgres/statement.ts'
import { EndpointUrl, NEW_ENDPOINT, REHEARSED, SETTINGS } from './endpoint-fields.ts'
import { checkerOf, Default, Id, partial, ShortText } from './fields.ts'
import { type Noun, operationsOf } from './operation.ts'

type Endpoint = { id: bigint; name: string; accountId: AccountId; organizationId: OrganizationId }

const selectEndpoint = statement('select-endpoint-of-organizations')`
    select p.id, p.name, a.id as "accountId", a.organization_id as "organizationId"
      from endpoint p join official_account a on a.id = p.channel_oa_id
     where p.id = $1 and visible(a.organization_id, $2)`

export const ENDPOINT: Noun<Endpoint> = {
  kind: 'endpoint',
  word: 'endpoint',
  plural: 'endpoints',
  find: async (database, { organizationIds }, id) => {
    const [endpoint] = await database.query<Endpoint>(selectEndpoint, [id, organizationIds])
    return requireVisible(endpoint, 'endpoint', id)
  },
}
const { read, list, add, change, call } = operationsOf(ENDPOINT, 'now', 'ownUrls', 'endpointTester')

const checkRehearsed = checkerOf(REHEARSED)
const CHANGE = StorableText({ maxLength: 8_000, description: 'JSON with condition, replies and priority' })

function readRehearsed(json: string): Partial<Pick<EndpointSettings, 'condition' | 'replies' | 'priority'>> {
  const change = checkRehearsed(parseJson(json)) as Partial<EndpointSettings>
  return { ...change, ...(change.condition && { condition: checkCondition(change.condition) }) }
}

export const ENDPOINTS = {
  list: list({
    name: 'endpoint.list',
    does: 'list endpoints',
    help: 'list endpoints with their backlog and last response, without their secrets',
    input: { account: Type.Optional(Id('only endpoints of this account')) },
    run: async ({ database, actor, input: { account = null } }, { after, limit }) => {
      if (account !== null) await findAccountDetails(database, actor.organizationIds, account)
      const page = { limit, ...(after === null ? {} : { afterId: after }) }
      return listEndpoints(database, actor.organizationIds, account, page)
    },
    row: (endpoint: EndpointSummary) => ({
      id: endpoint.id,
      account: endpoint.accountId,
      name: endpoint.name || null,
      format: endpoint.format,
      events: endpoint.events?.join(',') ?? 'all',
      condition: endpoint.condition,
      replies: endpoint.replies ? 'yes' : 'no',
      priority: endpoint.priority,
      status: endpoint.isRotating ? `${endpoint.status}, rotating` : endpoint.status,
      pending: countText(endpoint.pending, endpoint),
      failed: countText(endpoint.failed, endpoint),
      oldest: endpoint.oldestPendingSeconds === null ? null : age(endpoint.oldestPendingSeconds),
      url: endpoint.url,
      'last response':
        endpoint.lastAnswer && responseLine(endpoint.lastAnswer.status, endpoint.lastAnswer.text),
    }),
  }),

  show: read({
    name: 'endpoint.show',
    does: 'see an endpoint',
    run: async ({ database, actor, target }) => ({
      endpoint: await findEndpoint(database, actor.organizationIds, target.id),
      hours: await listHours(database, target.id),
    }),
  }),

  history: read({
    name: 'endpoint.history',
    does: 'see attempts of an endpoint',
    run: async ({ database, target }) => ({ attempts: await listAttempts(database, target.id) }),
  }),

  deliveries: read({
    name: 'endpoint.deliveries',
    does: 'list deliveries',
    input: {
      status: Default(Type.Enum([...LISTED_STATUSES]), 'failed'),
      after: Type.Optional(Type.String({ pattern: '^\\d{1,18}\\.-?\\d{1,19}$' })),
    },
    run: ({ database, target, input }, { limit }) => listDeliveryPage(database, target, input, limit),
  }),

  delivery: read({
    name: 'endpoint.delivery',
    does: 'see a delivery',
    input: { delivery: Id('of the delivery') },
    run: async ({ database, target, services, input }) => ({
      request: await previewDelivery(database, target, input.delivery, services.now()),
    }),
  }),

  /** Only its result and that of a rotation contain the secret. */
  add: add({
    name: 'endpoint.add',
    does: 'add an endpoint',
    help: 'add an endpoint and print its id and, for members, its secret, which is not shown again',
    records: 'endpoint.added',
    input: { account: Id('id of the account, as `accounts list` shows it'), ...NEW_ENDPOINT },
    run: ({ database, actor, services, input: { account: accountId, ...settings } }) =>
      addEndpointOf(database, actor, { ...settings, accountId }, services.ownUrls()),
  }),

  update: change({
    name: 'endpoint.update',
    does: 'change an endpoint',
    help: 'change an endpoint; its backlog is kept and sent to the new URL; the format cannot change',
    records: 'endpoint.updated',
    input: partial({ url: EndpointUrl, ...SETTINGS }),
    run: async ({ database, actor, target, services, input }) => ({
      changes: await updateEndpointOf(database, actor, target.id, input, services.ownUrls()),
    }),
  }),

  ofPerson: read({
    name: 'endpoint.of-person',
    does: 'see which endpoints receive the messages of a person',
    isOfAll: true,
    input: { account: Id('id of the account'), user: ShortText },
    run: async ({ database, actor, input: { account, user } }) => {
      const { id } = await findAccountDetails(database, actor.organizationIds, account)
      return { endpoints: await listEndpointsOfPerson(database, id, user) }
    },
  }),

  rehearse: read({
    name: 'endpoint.rehearse',
    does: 'count who would move by a change of an endpoint',
    input: { change: CHANGE },
    run: async ({ database, actor, target, input }) => {
      const before = await findEndpoint(database, actor.organizationIds, target.id)
      return rehearse(database, target, { ...before, ...readRehearsed(input.change) })
    },
  }),

  rehearseNew: read({
    name: 'endpoint.rehearse-new',
    does: 'count who would move to a new endpoint',
    isOfAll: true,
    input: { account: Id('id of the account'), change: CHANGE },
    run: async ({ database, actor, input: { account, change } }) => {
      const { id: accountId } = await findAccountDetails(database, actor.organizationIds, account)
      const { condition = null, replies = false, priority = 0 } = readRehearsed(change)
      return rehearse(database, { id: NEW_ENDPOINT_ID, accountId }, { condition, replies, priority })
    },
  }),

  test: call({
    name: 'endpoint.test',
    does: 'test an endpoint',
    records: 'endpoint.tested',
    run: async ({ database, target, services }) => {
      const result = await services.endpointTester.test(database, target.id)
      return { result, changes: { status: result.response.status } }
    },
  }),

  pause: change({
    name: 'endpoint.pause',
    does: 'pause an endpoint',
    help: 'stop sending; what is not sent yet is kept',
    records: 'endpoint.paused',
    run: async ({ database, target }) => ({
      changes: await setStatus(database, target.id, 'paused'),
    }),
  }),

  resume: change({
    name: 'endpoint.resume',
    does: 'resume an endpoint',
    help: 'send again, beginning with what is kept',
    records: 'endpoint.resumed',
    status: 'active',
    run: async ({ database, target }) => ({
      changes: await setStatus(database, target.id, 'active'),
    }),
  }),

  retry: change({
    name: 'endpoint.retry',
    does: 'retry failed deliveries',
    records: 'endpoint.retried',
    run: async ({ database, actor, target }) => {
      const { failed } = await findEndpoint(database, actor.organizationIds, target.id)
      const retry = { kind: 'endpoint.retry', total: failed } as const
      return { job: await startEndpointJob(database, actor, target, retry, null) }
    },
  }),

  rotate: change({
    name: 'endpoint.rotate',
    does: 'rotate a secret',
    records: 'endpoint.rotated',
    run: async ({ database, target }) => ({
      result: { secret: await rotateSecret(database, target.id) },
      changes: { secret: 'replaced' },
    }),
  }),

  finishRotation: change({
    name: 'endpoint.finish-rotation',
    does: 'delete a previous secret',
    records: 'endpoint.rotation_finished',
    run: async ({ database, target }) => {
      await finishRotation(database, target.id)
    },
  }),

  discardRotation: change({
    name: 'endpoint.discard-rotation',
    does: 'discard a new secret',
    records: 'endpoint.rotation_discarded',
    run: async ({ database, target }) => {
      await discardRotation(database, target.id)
    },
  }),

  /** A large backlog is deleted in a job, before the endpoint. */
  remove: change({
    name: 'endpoint.remove',
    does: 'remove an endpoint',
    help: 'remove an endpoint and everything it has not received yet',
    records: 'endpoint.removed',
    run: async ({ database, actor, target }) => {
      const isLast = (await removeEndpointBatch(database, target.id)) < ROWS_PER_STATEMENT
      const removal = { kind: 'endpoint.remove', total: null } as const
      const job = isLast ? null : await startEndpointJob(database, actor, target, removal, null)
      return { job, changes: { name: [target.name, null] } }
    },
  }),
}
