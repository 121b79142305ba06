/** What deliveries prove about an account. The platform cannot answer these questions: only what arrived here can. */
import { type Queryable, type Row, statement } from '../postgres/statement.ts'
import { type AccountId, FOREIGN_DESTINATION_AT, IS_PROOF_ARMED, REDELIVERY_OFF_AT } from './account.ts'
import type { Check, FailureReason } from './verification.ts'

/** More often than this, LINE waits too long for a response. */
const LATE_SHARE_MAX = 0.01

interface SourceCounts {
  source: string
  lastAt: string | null
  lastRefusedAt: string | null
  refusedSince: number
  deliveries24h: number
  late24h: number
}

interface EvidenceRow extends Row {
  botUserId: string | null
  foreignDestination: string | null
  foreignDestinationAt: string | null
  secretChangedAt: string | null
  seenAt: string | null
  armedAt: string | null
  isProofArmed: boolean
  /** the delivery that the last proof refused; null: none, or LINE has sent something again since */
  refusedAt: string | null
  /** the same, if its ten minutes are over */
  offAt: string | null
  moduleAttached: boolean | null
  moduleAt: string | null
  hasLoginChannel: boolean
  hasChatSecret: boolean
  kept: number
  sources: SourceCounts[]
}

/** The counts of 35 days. $1 account id bigint */
const selectEvidence = statement('select-evidence')`
    select a.bot_user_id as "botUserId",
           a.foreign_destination as "foreignDestination", iso(${FOREIGN_DESTINATION_AT}) as "foreignDestinationAt",
           iso(a.channel_secret_changed_at) as "secretChangedAt",
           iso(a.redelivery_seen_at) as "seenAt", iso(a.redelivery_armed_at) as "armedAt",
           ${IS_PROOF_ARMED} as "isProofArmed", iso(${REDELIVERY_OFF_AT}) as "offAt",
           case when a.redelivery_refused_at > a.redelivery_armed_at
                 and coalesce(a.redelivery_seen_at, '-infinity') < a.redelivery_armed_at then iso(a.redelivery_refused_at) end as "refusedAt",
           a.module_attached as "moduleAttached", iso(a.module_at) as "moduleAt",
           coalesce(cardinality(a.login_channel_ids), 0) > 0 as "hasLoginChannel",
           coalesce(a.chat_secret, '') ~ '\\S' as "hasChatSecret",
           (select count(*)::int from kept_delivery where channel_oa_id = a.id) as kept,
           coalesce(counted.sources, '[]') as sources
      from official_account a
     cross join lateral (
       select jsonb_agg(jsonb_build_object(
                'source', s.source, 'lastAt', iso(s.last_at), 'lastRefusedAt', iso(s.last_refused_at),
                'refusedSince', s.refused_since, 'deliveries24h', s.deliveries, 'late24h', s.late)) as sources
         from (select h.source, max(h.last_at) as last_at, max(h.last_refused_at) as last_refused_at,
                      sum(h.refused) filter (where h.last_refused_at > coalesce(accepted.last_at, '-infinity')) as refused_since,
                      coalesce(sum(h.deliveries) filter (where h.hour > now() - interval '24 hours'), 0) as deliveries,
                      coalesce(sum(h.late) filter (where h.hour > now() - interval '24 hours'), 0) as late
                 from delivery_hour h
                 left join lateral (
                   select last_at from delivery_hour l
                    where l.channel_oa_id = a.id and l.source = h.source and l.last_at is not null
                    order by l.hour desc limit 1) accepted on true
                where h.channel_oa_id = a.id
                group by h.source) s) counted
     where a.id = $1`

/** One check for each fact that a delivery can prove. `ok` is null while nothing is proven. */
export async function readEvidence(database: Queryable, id: AccountId): Promise<Check[]> {
  const [row] = await database.query<EvidenceRow>(selectEvidence, [id])
  if (row === undefined) return []
  const of = (source: string) => row.sources.find((counts) => counts.source === source)
  const line = of('line')
  return [
    channelSecretCheck(row, line),
    redeliveryCheck(row),
    destinationCheck(row, line),
    responseTimeCheck(line),
    moduleCheck(row),
    loginChannelsCheck(row, of('id_token')),
    chatSecretCheck(row, of('mbox')),
    trackingKeyCheck(of('tracking')),
  ]
}

const proven = (name: Check['name'], message: string, seenAt: string | null): Check => ({
  ...{ name, ok: true, message, seenAt },
})
const unknown = (name: Check['name'], message: string): Check => ({ name, ok: null, message, seenAt: null })
const disproven = (
  name: Check['name'],
  reason: FailureReason,
  message: string,
  seenAt: string | null,
): Check => ({ name, ok: false, message, reason, seenAt })

const isLater = (at: string | null | undefined, other: string | null | undefined): at is string =>
  typeof at === 'string' && (typeof other !== 'string' || at > other)

function channelSecretCheck({ secretChangedAt, kept }: EvidenceRow, line: SourceCounts | undefined): Check {
  const name = 'channel_secret'
  const acceptedAt = isLater(line?.lastAt, secretChangedAt) ? line?.lastAt : null
  if (isLater(line?.lastRefusedAt, acceptedAt) && isLater(line?.lastRefusedAt, secretChangedAt)) {
    const keptText =
      kept === 0
        ? ''
        : `. ${kept} of them are kept for 24 hours, and taken in when the right secret is stored`
    return disproven(
      name,
      'secret_refused',
      `Deliveries whose signature does not match: ${line?.refusedSince}, the newest at ${line?.lastRefusedAt}. Copy the channel secret from ` +
        `the LINE Developers Console${keptText}`,
      line?.lastRefusedAt ?? null,
    )
  }
  if (typeof acceptedAt === 'string') return proven(name, 'The stored secret signs what arrives', acceptedAt)
  return unknown(
    name,
    secretChangedAt === null
      ? 'No delivery has arrived yet'
      : 'No delivery has arrived since the secret was changed',
  )
}

function redeliveryCheck({ seenAt, armedAt, isProofArmed, refusedAt, offAt }: EvidenceRow): Check {
  const name = 'redelivery'
  if (offAt !== null)
    return disproven(
      name,
      'redelivery_off',
      `LINE did not send the delivery of ${offAt} again, which was refused on purpose: in the LINE Developers Console switch on ` +
        '"Webhook redelivery"',
      offAt,
    )
  if (refusedAt !== null)
    return unknown(
      name,
      `The delivery of ${refusedAt} was refused on purpose. LINE has until ten minutes later to send it again`,
    )
  if (isProofArmed && (seenAt ?? '') < (armedAt ?? ''))
    return unknown(
      name,
      `A proof is armed since ${armedAt}: the next delivery with events will be stored, and refused once`,
    )
  if (seenAt !== null) return proven(name, 'LINE sends again what was not accepted', seenAt)
  return unknown(name, 'Never tested: LINE has sent nothing again. Verify with proveRedelivery to test it')
}

function destinationCheck(
  { botUserId, foreignDestination, foreignDestinationAt }: EvidenceRow,
  line: SourceCounts | undefined,
): Check {
  const name = 'destination'
  if (foreignDestinationAt !== null)
    return disproven(
      name,
      'other_destination',
      `A delivery was for the bot ${foreignDestination}, and the account's bot is ${botUserId}: correct the webhook URL of the other ` +
        'channel, or the bot user id of this account',
      foreignDestinationAt,
    )
  if (typeof line?.lastAt === 'string') return proven(name, 'Deliveries are for this bot', line.lastAt)
  return unknown(name, 'No delivery has arrived yet')
}

function responseTimeCheck(line: SourceCounts | undefined): Check {
  const name = 'response_time'
  const { deliveries24h = 0, late24h = 0, lastAt = null } = line ?? {}
  if (deliveries24h === 0) return unknown(name, 'No delivery has arrived in 24 hours')
  const message = `${late24h} of ${deliveries24h} deliveries of 24 hours were answered later than the 2 s that LINE waits`
  if (late24h / deliveries24h <= LATE_SHARE_MAX) return proven(name, message, lastAt)
  return disproven(
    name,
    'responded_late',
    `${message}: the operator of this service has to look at its database`,
    lastAt,
  )
}

function moduleCheck({ moduleAttached, moduleAt }: EvidenceRow): Check {
  const name = 'module'
  if (moduleAttached === null) return unknown(name, 'No module channel was attached or detached')
  if (moduleAttached) return proven(name, 'A module channel is attached', moduleAt)
  return disproven(
    name,
    'module_detached',
    `The module channel was detached at ${moduleAt}: attach it again in LINE's manager, or use a Messaging API channel`,
    moduleAt,
  )
}

function loginChannelsCheck({ hasLoginChannel }: EvidenceRow, tokens: SourceCounts | undefined): Check {
  const name = 'login_channels'
  if (isLater(tokens?.lastRefusedAt, tokens?.lastAt))
    return disproven(
      name,
      'other_login_channel',
      `An ID token of another login channel arrived at ${tokens?.lastRefusedAt}: store the id of the channel of that page`,
      tokens?.lastRefusedAt ?? null,
    )
  if (typeof tokens?.lastAt === 'string')
    return proven(name, 'ID tokens of the login channels prove people', tokens.lastAt)
  return unknown(name, hasLoginChannel ? 'No ID token has arrived yet' : 'No login channel is stored')
}

function chatSecretCheck({ hasChatSecret }: EvidenceRow, chat: SourceCounts | undefined): Check {
  const name = 'chat_secret'
  if (isLater(chat?.lastRefusedAt, chat?.lastAt))
    return disproven(
      name,
      'chat_secret_refused',
      `${chat?.refusedSince} callbacks of the support chat were refused, the newest at ${chat?.lastRefusedAt}: compare the chat secret`,
      chat?.lastRefusedAt ?? null,
    )
  if (typeof chat?.lastAt === 'string')
    return proven(
      name,
      hasChatSecret
        ? 'The chat secret signs what arrives'
        : 'Callbacks arrive, unsigned: no chat secret is stored',
      chat.lastAt,
    )
  return unknown(name, 'No callback of the support chat has arrived yet')
}

function trackingKeyCheck(tracking: SourceCounts | undefined): Check {
  const name = 'tracking_key'
  if (typeof tracking?.lastAt === 'string') return proven(name, 'Tracking events arrive', tracking.lastAt)
  return unknown(name, 'No tracking event has arrived yet')
}
