/** Mutes of an account's worst problem: until they end, no message is sent about it. */
import { refuseRequest } from '../errors.ts'
import { readTime } from '../http/times.ts'
import { refuseInput } from '../http/validate.ts'
import type { AccountId } from '../ids.ts'
import { type Changes, changesBetween } from '../operators/activity.ts'
import { type Queryable, statement } from '../postgres/statement.ts'
import type { Mute } from './account-status.ts'

/** A mute that nobody remembers would hide a broken account. */
export const MUTE_MAX_DAYS = 90
const DAY_MS = 86_400_000

/** Throws `invalid_input`. */
export function readMute({ until, reason }: Mute): Mute {
  const untilMs = readTime('until', until)
  const now = Date.now()
  if (untilMs <= now || untilMs > now + MUTE_MAX_DAYS * DAY_MS)
    refuseInput('until', 'must be in the future, and at most 90 days from now')
  if (reason.trim() === '') refuseInput('reason', 'must not be empty')
  return { until: new Date(untilMs).toISOString(), reason: reason.trim() }
}

/** $1 account id bigint, $2 until timestamptz or null, $3 reason text or null. No row: the account has no problem. */
const setMute = statement('set-mute')`
    with before as (
      select channel_oa_id as id, problems->0->>'reason' as problem, muted_until > now() as is_muted, muted_until, mute_reason
        from account_check where channel_oa_id = $1 and problems <> '[]' for no key update)
    update account_check c set muted_until = $2, mute_reason = $3
      from before where c.channel_oa_id = before.id
    returning before.problem, iso(c.muted_until) as until,
              case when is_muted then iso(before.muted_until) end as "untilBefore",
              case when is_muted then before.mute_reason end as "reasonBefore"`

type Muted = {
  problem: string
  until: string | null
  untilBefore: string | null
  reasonBefore: string | null
}

/**
 * Call it in a transaction. Returns null if nothing changes. Throws `invalid_input` if there is no problem to mute.
 * @param mute null: messages are sent again
 */
export async function setMuteOf(
  transaction: Queryable,
  id: AccountId,
  mute: Mute | null,
): Promise<Changes | null> {
  const reason = mute?.reason ?? null
  const [muted] = await transaction.query<Muted>(setMute, [id, mute?.until ?? null, reason])
  if (muted === undefined && mute !== null) refuseRequest(`account ${id} has no problem that could be muted.`)
  if (muted === undefined) return null
  const { problem, until, untilBefore, reasonBefore } = muted
  const changes = changesBetween({ until: untilBefore, reason: reasonBefore }, { until, reason })
  return Object.keys(changes).length === 0 ? null : { problem, ...changes }
}
