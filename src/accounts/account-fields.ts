/** The fields of an official account that operators set: in the console, with commands and in fleet files. */
import { Secret } from '../config/secret.ts'
import { looksEncrypted } from '../config/secret-keys.ts'
import { AppError, type ErrorDetail } from '../errors.ts'
import { type AccountId, LINE_USER_ID, type OrganizationId } from '../ids.ts'
import type { LineApi } from '../line-api/client.ts'
import { isSendable } from '../line-api/tokens.ts'
import type { Changes } from '../operators/activity.ts'
import type { Actor } from '../operators/actor.ts'
import { type Queryable, statement } from '../postgres/statement.ts'
import { isStorableText } from '../postgres/storable.ts'
import { type AccountColumns, COLUMNS } from './provisioning.ts'

export type Field = keyof typeof COLUMNS
/** A field that is left out keeps its value. An empty text or null removes an optional value. */
export type AccountFields = { [field in Field]?: string | null | undefined }

export const FIELDS = Object.keys(COLUMNS) as Field[]

/** Fields whose values are never shown. Anybody who has the `oa_hash` can write events. */
const SECRET_FIELDS: readonly Field[] = ['channelSecret', 'channelAccessToken', 'chatSecret', 'oaHash']
const REQUIRED_FIELDS: readonly Field[] = ['name', 'oaHash', 'trackingKey']
/** A change of these ends the stored verification. */
const VERIFIED_FIELDS: readonly Field[] = [
  'channelId',
  'channelSecret',
  'channelAccessToken',
  'botUserId',
  'basicId',
]

/** As LINE writes it: `08` would be a different account from `8`. */
const isChannelId = (text: string) => /^[1-9]\d{0,19}$/.test(text)

/** A MINI App has three internal channels. */
const LOGIN_CHANNELS_MAX = 20

const idsOf = (text: string) => text.split(/[\s,;]+/).filter((id) => id !== '')

/** Values that would otherwise fail later, on the platform or in a URL. */
const RULES: { [field in Field]?: { isValid: (text: string) => boolean; rule: string } } = {
  channelId: {
    isValid: isChannelId,
    rule: 'must be decimal digits. It has no zero in front, and a spreadsheet may have rounded it: format the column as text.',
  },
  channelAccessToken: { isValid: isSendable, rule: 'has a character that no access token has.' },
  botUserId: {
    isValid: (text) => LINE_USER_ID.test(text),
    rule: 'must be U and 32 digits 0-9 a-f, as LINE writes user ids. It is compared with the destination of every delivery.',
  },
  loginChannelIds: {
    isValid: (text) => idsOf(text).length <= LOGIN_CHANNELS_MAX && idsOf(text).every(isChannelId),
    rule: `must be up to ${LOGIN_CHANNELS_MAX} ids of decimal digits, separated by commas.`,
  },
  oaHash: {
    isValid: (text) => /^[\w.~-]*$/.test(text),
    rule: 'has characters that a URL would change. Use letters, digits and - _ . ~ only.',
  },
}

/** LINE's access tokens have a few hundred characters. Limits the memory of the start check, which reads 200 rows at a time. */
export const SECRET_MAX_LENGTH = 4_096

/** With such a value, the service would not start again. */
const LOOKS_ENCRYPTED = 'must not begin with enc:v1: as encrypted values do. Enter the secret itself.'

/** Returns what is wrong with a value, without the value, or null. */
export function faultOf(field: Field, value: string): string | null {
  if (!isStorableText(value)) return 'has a character that no text has.'
  if (SECRET_FIELDS.includes(field)) {
    if (looksEncrypted(value)) return LOOKS_ENCRYPTED
    if (value.length > SECRET_MAX_LENGTH) return `has more than ${SECRET_MAX_LENGTH} characters.`
  }
  const rule = value === '' ? undefined : RULES[field]
  return rule === undefined || rule.isValid(value) ? null : rule.rule
}

export function faultsOf(fields: AccountFields): ErrorDetail[] {
  return FIELDS.flatMap((field) => {
    const value = fields[field]
    if (value === undefined) return []
    if (REQUIRED_FIELDS.includes(field) && (value ?? '').trim() === '')
      return [{ path: field, message: 'must not be empty.' }]
    const fault = faultOf(field, value ?? '')
    return fault === null ? [] : [{ path: field, message: fault }]
  })
}

export function columnsOf(fields: AccountFields): Partial<AccountColumns> {
  const given = FIELDS.filter((field) => fields[field] !== undefined)
  return Object.fromEntries(
    given.map((field) => {
      const value = fields[field] || null
      return [COLUMNS[field], field === 'loginChannelIds' && value !== null ? idsOf(value) : value]
    }),
  )
}

/** By field: [before, after], or that a secret was replaced or removed. Compared in this process, because PostgreSQL may log parameters. */
export function accountChanges(before: Partial<AccountColumns>, after: Partial<AccountColumns>): Changes {
  const changes: Changes = {}
  for (const field of FIELDS) {
    const { [COLUMNS[field]]: value } = after
    const earlier = before[COLUMNS[field]] ?? null
    if (value === undefined || String(value) === String(earlier)) continue
    if (SECRET_FIELDS.includes(field)) changes[field] = value === null ? 'removed' : 'replaced'
    else changes[field] = [earlier, value]
  }
  return changes
}

/** If an equal secret were stored again, its new ciphertext would be taken for another secret, and the account would be checked. */
export function changedColumns(changes: Changes, columns: Partial<AccountColumns>): Partial<AccountColumns> {
  const changed = FIELDS.filter((field) => field in changes).map((field) => COLUMNS[field])
  return Object.fromEntries(changed.map((column) => [column, columns[column]]))
}

export const concernsVerification = (changes: Changes): boolean =>
  VERIFIED_FIELDS.some((field) => field in changes)

/** Simulators may use secrets of another form. */
export function secretWarning(secret: string | null | undefined): string | null {
  if (!secret || /^[0-9a-f]{32}$/.test(secret)) return null
  return 'the channel secret is not 32 digits 0-9 a-f, as those of LINE are. If it is wrong, every delivery is refused.'
}

// Which account has a channel, and whether LINE knows its id and secret.

type ChannelOwner = {
  id: AccountId
  channelId: string
  name: string
  organizationId: OrganizationId
  organizationName: string
}

const selectOwners = statement('select-accounts-of-channels')`
    select a.id, a.channel_id as "channelId", a.name, o.id as "organizationId", o.name as "organizationName"
      from official_account a join organization o on o.id = a.organization_id
     where a.channel_id = any ($1::text[]) and visible(a.organization_id, $2)
     order by a.id desc`

/**
 * The rule: a channel belongs to one of the accounts that the actor sees. Accounts of other organizations do not count, because a
 * refusal would say that they exist, and somebody else could reserve a channel.
 */
export async function findOwners(
  database: Queryable,
  { organizationIds }: Actor,
  channelIds: string[],
): Promise<Map<string, ChannelOwner>> {
  const rows = await database.query<ChannelOwner>(selectOwners, [channelIds, organizationIds])
  return new Map(rows.map((row) => [row.channelId, row]))
}

export function describeOwner({ channelId, id, name, organizationId, organizationName }: ChannelOwner) {
  const organization = `organization ${organizationId} ${JSON.stringify(organizationName)}`
  return `channel ${channelId} is already account ${id} ${JSON.stringify(name)} of ${organization}.`
}

/** Throws `invalid_input` if another account that the actor sees has the channel. */
export async function requireFreeChannel(
  database: Queryable,
  actor: Actor,
  channelId: string | null | undefined,
): Promise<void> {
  if (!channelId) return
  const owner = (await findOwners(database, actor, [channelId])).get(channelId)
  if (owner !== undefined) throw refusal('channelId', describeOwner(owner))
}

const refusal = (path: string, message: string) =>
  new AppError('invalid_input', { message, details: [{ path, message }] })

/**
 * `proven`: LINE issues a token for the channel id and secret. `unproven`: LINE did not respond. `not_asked`: neither has changed, one of
 * both is missing, or the operator did not want it.
 */
export type Proof = 'proven' | 'unproven' | 'not_asked'

type ChannelColumns = Partial<Pick<AccountColumns, 'channel_id' | 'channel_secret'>>

export const REFUSED =
  'LINE refuses this channel id and secret. Compare both with the LINE Developers Console, "Basic settings". Nothing was changed.'

export const UNPROVEN =
  'LINE does not respond, so nothing proves that channel id and secret belong together. Verify the account with a test delivery.'

/** Throws `invalid_input` if LINE refuses the channel id and secret. No transaction may be open, because LINE may take seconds. */
export async function proveChannel(lineApi: LineApi | null, channel: ChannelColumns): Promise<Proof> {
  if (lineApi === null) return 'not_asked'
  const proof = await askLine(lineApi, channel)
  if (proof === 'refused') throw refusal('channelSecret', REFUSED)
  return proof
}

export async function askLine(
  lineApi: LineApi,
  { channel_id: channelId, channel_secret: secret }: ChannelColumns,
): Promise<Proof | 'refused'> {
  if (!channelId || !secret?.trim()) return 'not_asked'
  const result = await lineApi.proveChannel(channelId, new Secret(secret))
  if (result.ok) return 'proven'
  // Another status comes from something between this service and LINE, or from a fault of LINE.
  const { fault } = result
  return fault.type === 'refused_credentials' && [400, 401].includes(fault.status) ? 'refused' : 'unproven'
}
