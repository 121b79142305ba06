/** Adds endpoints and changes their settings. The functions work in a transaction, too: they never continue after a failed statement. */
import type { AccountId } from '../accounts/account.ts'
import { AppError, NotVisible, requireVisible } from '../errors.ts'
import { violatedConstraint } from '../postgres/faults.ts'
import { insertWithFreeId } from '../postgres/schema/taken-ids.ts'
import { type Queryable, statement } from '../postgres/statement.ts'
import { isOwnUrl, RefusedUrl, readEndpointUrl } from './address.ts'
import type { Resumption } from './manage.ts'
import { MEMBER_EVENTS, newSecret } from './messages.ts'

export type EndpointFormat = 'line' | 'members'

/** What an operator may change later. */
export type EndpointSettings = {
  url: string
  name: string
  /** null: all */
  events: string[] | null
  replies: boolean
  allowPrivateNetwork: boolean
}

export interface NewEndpoint extends EndpointSettings {
  accountId: AccountId
  format: EndpointFormat
}

export interface AddedEndpoint {
  id: bigint
  /** null for `line`: deliveries are signed with the channel secret */
  secret: string | null
}

/**
 * Returns no row if the account does not exist, or if another endpoint receives its reply tokens.
 *
 * $1 account id bigint, $2 name text, $3 url text, $4 format text, $5 events text[] or null, $6 replies boolean,
 * $7 allow_private_network boolean, $8 secret text or null, $9 id bigint
 */
const insertEndpoint = statement('insert-endpoint')`
    insert into endpoint (id, channel_oa_id, name, url, format, events, replies, allow_private_network, secret)
    select $9, id, $2, $3, $4, $5, $6, $7, $8 from official_account where id = $1
        on conflict (channel_oa_id) where replies and format = 'line' do nothing
    returning id`

/** $1 account id bigint */
const selectReplier = statement('select-reply-endpoint')`
    select id, name from endpoint where channel_oa_id = $1 and replies and format = 'line'`

type Replier = { id: bigint; name: string }

/**
 * Throws NotVisible for the account, and `invalid_input` that says why the endpoint is refused.
 * @param own the base URLs of this service, where an endpoint would be a loop
 */
export async function addEndpoint(
  database: Queryable,
  endpoint: NewEndpoint,
  own: URL[],
): Promise<AddedEndpoint> {
  const { accountId, name, format, events, replies, allowPrivateNetwork } = endpoint
  const url = checkEndpoint(endpoint, own)
  const secret = format === 'line' ? null : newSecret()
  const values = [accountId, name, url, format, events, replies, allowPrivateNetwork]
  const [added] = await insertWithFreeId<{ id: bigint }>(database, 'endpoint', insertEndpoint, (id) => [
    ...values,
    database.secretKeys.encrypt('endpoint.secret', id, secret),
    id,
  ])
  if (added !== undefined) return { id: added.id, secret }
  const [replier] = replies ? await database.query<Replier>(selectReplier, [accountId]) : []
  if (replier === undefined) throw new NotVisible('account', accountId)
  throw refuseReplies(accountId, replier)
}

/** Returns the URL as it is stored. Throws `invalid_input` that says why the endpoint is refused. */
export function checkEndpoint(endpoint: Omit<NewEndpoint, 'accountId'>, own: URL[]): string {
  const url = checkUrl(endpoint, own)
  checkEvents(endpoint)
  return url.href
}

/** $1 endpoint id bigint. Another change of the endpoint waits until the transaction ends. */
const lockEndpoint = statement('lock-endpoint')`
    select channel_oa_id as "accountId", format, url, name, events, replies, allow_private_network as "allowPrivateNetwork"
      from endpoint where id = $1 for no key update`

/**
 * $1 endpoint id bigint, $2 name text, $3 url text, $4 events text[] or null, $5 replies boolean, $6 allow_private_network boolean
 */
const updateSettings = statement('update-endpoint')`
    update endpoint set name = $2, url = $3, events = $4, replies = $5, allow_private_network = $6 where id = $1
    returning to_char(clock_timestamp() at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') as "updatedAt"`

interface UpdatedEndpoint {
  accountId: AccountId
  before: EndpointSettings
  after: EndpointSettings
  /** The receiver is another one, so `continueResumption` should make the backlog due. Null: it is the same one. */
  resumption: Resumption | null
}

/**
 * Changes the given settings. Deliveries that are not sent yet go to the new URL, and requests in flight finish at the old one.
 * Changed events apply to what the service receives from now on: deliveries that are queued already are still sent.
 *
 * The format cannot be changed, because queued deliveries have content of one format only. Throws NotVisible,
 * and `invalid_input` that says why a setting is refused.
 * @param transaction not the database itself, because the endpoint is locked between two statements
 * @param own the base URLs of this service, where an endpoint would be a loop
 */
export async function updateEndpoint(
  transaction: Queryable,
  id: bigint,
  changes: Partial<EndpointSettings>,
  own: URL[],
): Promise<UpdatedEndpoint> {
  const [stored] = await transaction.query<NewEndpoint & Record<string, unknown>>(lockEndpoint, [id])
  const { accountId, format, ...before } = requireVisible(stored, 'endpoint', id)
  const after: EndpointSettings = { ...before, ...changes }
  // Other programs may have stored what would be refused here, which must not prevent a change of another setting.
  if (changes.url !== undefined || changes.allowPrivateNetwork !== undefined)
    after.url = checkUrl(after, own).href
  if (changes.events !== undefined || changes.replies !== undefined) checkEvents({ ...after, format })
  if (after.replies && !before.replies) await requireNoReplier(transaction, accountId)
  const { url, name, events, replies, allowPrivateNetwork } = after
  const values = [id, name, url, events, replies, allowPrivateNetwork]
  try {
    const [updated] = await transaction.query<{ updatedAt: string }>(updateSettings, values)
    const hasMoved = url !== before.url || allowPrivateNetwork !== before.allowPrivateNetwork
    const resumption = updated && hasMoved ? { resumedAt: updated.updatedAt, lastId: 0n, count: 0 } : null
    return { accountId, before, after, resumption }
  } catch (error) {
    // Another transaction was faster than requireNoReplier. This one is aborted and cannot query which endpoint it was.
    if (violatedConstraint(error) === 'endpoint_replies') throw refuseReplies(accountId, null)
    throw error
  }
}

async function requireNoReplier(transaction: Queryable, accountId: AccountId): Promise<void> {
  const [replier] = await transaction.query<Replier>(selectReplier, [accountId])
  if (replier !== undefined) throw refuseReplies(accountId, replier)
}

function refuseReplies(accountId: AccountId, replier: Replier | null): AppError {
  const other =
    replier === null ? 'another endpoint' : `endpoint ${replier.id} (${replier.name || 'no name'})`
  return refuse(
    'replies',
    `${other} receives the reply tokens of account ${accountId}, and a token can be used only once. Turn replies off for one of the two.`,
  )
}

function checkUrl(
  { url: text, allowPrivateNetwork }: Pick<EndpointSettings, 'url' | 'allowPrivateNetwork'>,
  own: URL[],
): URL {
  try {
    const url = readEndpointUrl(text, allowPrivateNetwork)
    if (!isOwnUrl(url, own)) return url
  } catch (error) {
    if (!(error instanceof RefusedUrl)) throw error
    const hint = allowPrivateNetwork ? '' : ' For a receiver in your own network, allow the private network.'
    throw refuse('url', `the endpoint is refused: ${error.message}.${hint}`)
  }
  throw refuse('url', 'the endpoint is refused: the URL is this service itself, so deliveries would loop.')
}

function checkEvents({ format, events, replies }: Pick<NewEndpoint, 'format' | 'events' | 'replies'>): void {
  if (events?.length === 0)
    throw refuse('events', 'the list of events is empty. Omit it to receive all events.')
  if (format === 'line') return
  if (replies) throw refuse('replies', 'only endpoints of the format line can receive reply tokens.')
  const unknown = events?.filter((event) => !MEMBER_EVENTS.includes(event)) ?? []
  if (unknown.length === 0) return
  throw refuse(
    'events',
    `the format members has no event ${unknown.join(', ')}. Its events are ${MEMBER_EVENTS.join(', ')}.`,
  )
}

/** The console shows the message beside the field, and the command line prints it. */
const refuse = (path: keyof NewEndpoint, message: string) =>
  new AppError('invalid_input', { message, details: [{ path, message }] })
