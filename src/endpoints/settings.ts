/** Adds endpoints and changes their settings. The functions work in a transaction, too: they never continue after a failed statement. */
import { findAccountDetails } from '../accounts/accounts.ts'
import { type Condition, checkCondition, recordable } from '../audience/condition.ts'
import { AppError, NotVisible, requireVisible } from '../errors.ts'
import { refuseInput } from '../http/validate.ts'
import { type AccountId, toJson } from '../ids.ts'
import { type Changes, changesBetween } from '../operators/activity.ts'
import type { Actor } from '../operators/actor.ts'
import { insertWithFreeId } from '../postgres/schema/taken-ids.ts'
import { type Queryable, statement } from '../postgres/statement.ts'
import { isOwnUrl, printableUrl, RefusedUrl, readEndpointUrl } from './address.ts'
import { checkEventTypes, type EndpointFormat } from './event-types.ts'
import { renewBacklog } from './manage.ts'
import { newSecret } from './messages.ts'

export type EndpointSettings = {
  name: string
  url: string
  /** null: all */
  events: string[] | null
  /** null: all people */
  condition: Condition | null
  replies: boolean
  /** of the endpoints that receive an event and have `replies`, the first by (priority, id) has its reply token */
  priority: number
  allowPrivateNetwork: boolean
}

/** Field → column */
const COLUMNS = {
  name: 'name',
  url: 'url',
  events: 'events',
  condition: 'condition',
  replies: 'replies',
  priority: 'priority',
  allowPrivateNetwork: 'allow_private_network',
} as const satisfies Record<keyof EndpointSettings, string>

const FIELDS = Object.keys(COLUMNS) as Array<keyof EndpointSettings>
const NAMES = Object.values(COLUMNS).join(', ')

/** SQL: the settings of the endpoint p by the names of their fields */
export const SETTINGS = FIELDS.map((field) => `p.${COLUMNS[field]} as "${field}"`).join(', ')

const columnsOf = (settings: EndpointSettings): string =>
  toJson(Object.fromEntries(FIELDS.map((field) => [COLUMNS[field], settings[field]])))

export interface NewEndpoint extends EndpointSettings {
  accountId: AccountId
  format: EndpointFormat
}

/** The secret is null for `line`: deliveries are signed with the channel secret. */
type AddedEndpoint = { id: bigint; secret: string | null }

/** Returns no row if the account does not exist. $1 id bigint; $2 account id bigint; $3 format text; $4 secret text; $5 columns jsonb */
const insertEndpoint = statement('insert-endpoint')`
    insert into endpoint (id, channel_oa_id, format, secret, ${NAMES})
    select $1, $2, $3, $4, ${NAMES} from jsonb_populate_record(null::endpoint, $5::jsonb)
     where exists (select from official_account where id = $2)
    returning id`

/** @param own the base URLs of this service, where an endpoint would be a loop */
export async function addEndpoint(
  database: Queryable,
  endpoint: NewEndpoint,
  own: URL[],
): Promise<AddedEndpoint> {
  const { accountId, format } = endpoint
  const columns = columnsOf({ ...endpoint, ...checkEndpoint(endpoint, own) })
  const secret = format === 'line' ? null : newSecret()
  const valuesOf = (id: bigint) => {
    const stored = database.secretKeys.encrypt('endpoint.secret', id, secret)
    return [id, accountId, format, stored, columns]
  }
  const [added] = await insertWithFreeId(database, 'endpoint', insertEndpoint, valuesOf)
  if (added === undefined) throw new NotVisible('account', accountId)
  return { id: added.id, secret }
}

/** What reaches the private network shows what answers there, by its test. Operators of some organizations must not look around in it. */
export function requirePrivateNetwork(
  { organizationIds }: Actor,
  field: 'allowPrivateNetwork' | 'url' = 'allowPrivateNetwork',
): void {
  if (organizationIds !== null)
    refuseInput(field, 'reaches the private network: only operators of all organizations may set this')
}

/** For the activity log. */
export const recordableSettings = (settings: EndpointSettings) => ({
  ...settings,
  url: printableUrl(settings.url),
  condition: recordable(settings.condition),
})

export async function addEndpointOf(
  transaction: Queryable,
  actor: Actor,
  endpoint: NewEndpoint,
  own: URL[],
): Promise<{
  result: AddedEndpoint
  target: { id: bigint; organizationId: bigint; accountId: bigint }
  changes: Changes
}> {
  const { accountId, format, ...settings } = endpoint
  if (endpoint.allowPrivateNetwork) requirePrivateNetwork(actor)
  const { organizationId } = await findAccountDetails(transaction, actor.organizationIds, accountId)
  const result = await addEndpoint(transaction, endpoint, own)
  const changes = changesBetween({}, { format, ...recordableSettings(settings) })
  return { result, target: { id: result.id, organizationId, accountId }, changes }
}

/** Returns URL and condition as they are stored. Throws `invalid_input`. */
export function checkEndpoint(
  endpoint: Omit<NewEndpoint, 'accountId'>,
  own: URL[],
): Pick<NewEndpoint, 'url' | 'condition'> {
  const { href: url } = checkUrl(endpoint, own)
  checkChoice(endpoint)
  return { url, condition: endpoint.condition && checkCondition(endpoint.condition) }
}

/** Another change of the endpoint waits until the transaction ends. */
const lockEndpoint = statement('lock-endpoint')`
    select p.format, ${SETTINGS} from endpoint p where id = $1 for no key update`

/** $1 id bigint; $2 columns jsonb */
const updateSettings = statement('update-endpoint')`
    update endpoint p set (${NAMES}) = (select ${NAMES} from jsonb_populate_record(p, $2::jsonb)) where id = $1`

/**
 * Deliveries that are not sent yet go to the new URL, and requests in flight finish at the old one. Changed events, conditions and
 * priorities do not concern deliveries that are queued already. The format cannot be changed, because these have content of one format.
 */
export async function updateEndpoint(
  transaction: Queryable,
  id: bigint,
  changes: Partial<EndpointSettings>,
  own: URL[],
): Promise<{ before: EndpointSettings; after: EndpointSettings }> {
  const [stored] = await transaction.query<NewEndpoint & Record<string, unknown>>(lockEndpoint, [id])
  const { format, ...before } = requireVisible(stored, 'endpoint', id)
  const after: EndpointSettings = { ...before, ...changes }
  // Other programs may have stored what would be refused here, which must not prevent a change of another setting.
  if (changes.url !== undefined || changes.allowPrivateNetwork !== undefined)
    after.url = checkUrl(after, own).href
  const { events = null, condition = null, replies = false } = changes
  checkChoice({ format, events, condition, replies })
  if (condition) after.condition = checkCondition(condition)
  await transaction.query(updateSettings, [id, columnsOf(after)])
  const hasMoved = after.url !== before.url || after.allowPrivateNetwork !== before.allowPrivateNetwork
  if (hasMoved) await renewBacklog(transaction, id)
  return { before, after }
}

/** Returns what has changed, for the activity log. */
export async function updateEndpointOf(
  transaction: Queryable,
  actor: Actor,
  id: bigint,
  changes: Partial<EndpointSettings>,
  own: URL[],
): Promise<Changes> {
  const { before, after } = await updateEndpoint(transaction, id, changes, own)
  if (after.allowPrivateNetwork) {
    if (!before.allowPrivateNetwork) requirePrivateNetwork(actor)
    if (before.url !== after.url) requirePrivateNetwork(actor, 'url')
  }
  return changesBetween(recordableSettings(before), recordableSettings(after))
}

export function checkUrl(
  { url: text, allowPrivateNetwork }: Pick<EndpointSettings, 'url' | 'allowPrivateNetwork'>,
  own: URL[],
): URL {
  try {
    const url = readEndpointUrl(text, allowPrivateNetwork)
    if (!isOwnUrl(url, own)) return url
  } catch (error) {
    if (!(error instanceof RefusedUrl)) throw error
    const hint = allowPrivateNetwork ? '' : ' For an endpoint in your own network, allow the private network.'
    throw refuse('url', `the endpoint is refused: ${error.message}.${hint}`)
  }
  throw refuse('url', 'the endpoint is refused: the URL is this service itself, so deliveries would loop.')
}

type Chosen = Pick<NewEndpoint, 'format' | 'events' | 'replies' | 'condition'>

function checkChoice({ format, events, replies, condition }: Chosen): void {
  if (events?.length === 0)
    throw refuse('events', 'the list of events is empty. Omit it to receive all events.')
  checkEventTypes(format, events)
  if (format === 'line') return
  if (replies) throw refuse('replies', 'only endpoints of the format line can receive reply tokens.')
  if (condition !== null)
    throw refuse('condition', 'only endpoints of the format line can receive the events of some people.')
}

/** The console shows the message beside the field, and the command line prints it. */
const refuse = (path: keyof NewEndpoint, message: string) =>
  new AppError('invalid_input', { message, details: [{ path, message }] })
