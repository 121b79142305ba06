/** What deliveries prove about an account. The platform cannot answer these questions: only what arrived here can. */
import type { AccountId } from '../ids.ts'
import { type Queryable, type Row, statement } from '../postgres/statement.ts'
import { FOREIGN_DESTINATION_AT, IS_PROOF_ARMED, REDELIVERY_OFF_AT } from './account.ts'
import type { Check, FailureReason } from './verification.ts'

/** More often than this, LINE waits too long for a response. */
const LATE_SHARE_MAX = 0.01

interface SourceCounts {
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
  sources: Array<SourceCounts & { source: string }>
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

type Finding = Omit<Check, 'name'>

/** One check for each fact that a delivery can prove. `ok` is null while nothing is proven. */
export async function readEvidence(database: Queryable, id: AccountId): Promise<Check[]> {
  const [row] = await database.query<EvidenceRow>(selectEvidence, [id])
  if (row === undefined) return []
  const of = (source: string) => row.sources.find((counts) => counts.source === source) ?? NO_COUNTS
  const findings = {
    channel_secret: channelSecret(row, of('line')),
    redelivery: redelivery(row),
    destination: destination(row, of('line')),
    response_time: responseTime(of('line')),
    module: moduleChannel(row),
    login_channels: loginChannels(row, of('id_token')),
    chat_secret: chatSecret(row, of('mbox')),
    tracking_key: found(of('tracking').lastAt, 'Tracking events arrive', 'No tracking event has arrived yet'),
  }
  return Object.entries(findings).map(([name, finding]) => ({
    name: name as keyof typeof findings,
    ...finding,
  }))
}

const NO_COUNTS = { lastAt: null, lastRefusedAt: null, refusedSince: 0, deliveries24h: 0, late24h: 0 }

/** @param seenAt null: deliveries have not proven it yet, for the reason `otherwise` */
const found = (seenAt: string | null, message: string, otherwise: string): Finding =>
  seenAt === null ? { ok: null, message: otherwise, seenAt } : { ok: true, message, seenAt }
const unknown = (message: string): Finding => ({ ok: null, message, seenAt: null })
function disproven(reason: FailureReason, seenAt: string | null, message: string): Finding {
  return { ok: false, message, reason, seenAt }
}

/** ISO times in UTC are in the order of their characters. */
const isLater = (at: string | null, other: string | null): at is string => at !== null && at > (other ?? '')

function channelSecret({ secretChangedAt }: EvidenceRow, line: SourceCounts): Finding {
  const { lastAt, lastRefusedAt, refusedSince } = line
  const acceptedAt = isLater(lastAt, secretChangedAt) ? lastAt : null
  if (isLater(lastRefusedAt, acceptedAt) && isLater(lastRefusedAt, secretChangedAt)) {
    return disproven(
      'secret_refused',
      lastRefusedAt,
      `Deliveries whose signature does not match: ${refusedSince}, the newest at ${lastRefusedAt}. Copy the channel secret from ` +
        'the LINE Developers Console',
    )
  }
  const nothing = 'No delivery has arrived'
  const otherwise = secretChangedAt === null ? `${nothing} yet` : `${nothing} since the secret was changed`
  return found(acceptedAt, 'The stored secret signs what arrives', otherwise)
}

function redelivery({ seenAt, armedAt, isProofArmed, refusedAt, offAt }: EvidenceRow): Finding {
  if (offAt !== null)
    return disproven(
      'redelivery_off',
      offAt,
      `LINE did not send the delivery of ${offAt} again, which was refused on purpose: in the LINE Developers Console switch on ` +
        '"Webhook redelivery"',
    )
  if (refusedAt !== null)
    return unknown(
      `The delivery of ${refusedAt} was refused on purpose. LINE has until ten minutes later to send it again`,
    )
  if (isProofArmed && isLater(armedAt, seenAt))
    return unknown(
      `A proof is armed since ${armedAt}: the next delivery with events will be stored, and refused once`,
    )
  const otherwise = 'Never tested: LINE has sent nothing again. Prove redelivery to test it'
  return found(seenAt, 'LINE sends again what was not accepted', otherwise)
}

function destination(
  { botUserId, foreignDestination, foreignDestinationAt }: EvidenceRow,
  { lastAt }: SourceCounts,
): Finding {
  if (foreignDestinationAt === null)
    return found(lastAt, 'Deliveries are for this bot', 'No delivery has arrived yet')
  return disproven(
    'other_destination',
    foreignDestinationAt,
    `A delivery was for the bot ${foreignDestination}, and the account's bot is ${botUserId}: correct the webhook URL of the other ` +
      'channel, or the bot user id of this account',
  )
}

function responseTime({ deliveries24h, late24h, lastAt }: SourceCounts): Finding {
  if (deliveries24h === 0) return unknown('No delivery has arrived in 24 hours')
  const message = `${late24h} of ${deliveries24h} deliveries of 24 hours were answered later than the 2 s that LINE waits`
  if (late24h / deliveries24h <= LATE_SHARE_MAX) return { ok: true, message, seenAt: lastAt }
  const fix = 'the operator of this service has to look at its database'
  return disproven('responded_late', lastAt, `${message}: ${fix}`)
}

function moduleChannel({ moduleAttached, moduleAt }: EvidenceRow): Finding {
  if (moduleAttached !== false || moduleAt === null)
    return found(moduleAt, 'A module channel is attached', 'No module channel was attached or detached')
  return disproven(
    'module_detached',
    moduleAt,
    `The module channel was detached at ${moduleAt}: attach it again in LINE's manager, or use a Messaging API channel`,
  )
}

function loginChannels({ hasLoginChannel }: EvidenceRow, { lastAt, lastRefusedAt }: SourceCounts): Finding {
  if (isLater(lastRefusedAt, lastAt))
    return disproven(
      'other_login_channel',
      lastRefusedAt,
      `An ID token of another login channel arrived at ${lastRefusedAt}: store the id of the channel of that page`,
    )
  const otherwise = hasLoginChannel ? 'No ID token has arrived yet' : 'No login channel is stored'
  return found(lastAt, 'ID tokens of the login channels prove people', otherwise)
}

function chatSecret({ hasChatSecret }: EvidenceRow, chat: SourceCounts): Finding {
  const { lastAt, lastRefusedAt, refusedSince } = chat
  if (isLater(lastRefusedAt, lastAt))
    return disproven(
      'chat_secret_refused',
      lastRefusedAt,
      `${refusedSince} callbacks of the support chat were refused, the newest at ${lastRefusedAt}: compare the chat secret`,
    )
  const signed = 'The chat secret signs what arrives'
  const message = hasChatSecret ? signed : 'Callbacks arrive, unsigned: no chat secret is stored'
  return found(lastAt, message, 'No callback of the support chat has arrived yet')
}
