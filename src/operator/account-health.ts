/** Examines all official accounts: whether deliveries arrive, carry valid signatures and can be applied. */
import type { AccountId } from '../accounts/account.ts'
import type { Database } from '../postgres/database.ts'
import type { Row } from '../postgres/statement.ts'
import { age } from './age.ts'

/** Period that is examined. An account without deliveries for this long needs attention. */
const PERIOD_DAYS = 7

export type Severity = 'ok' | 'warning' | 'error'

export type AccountFinding = { accountId: AccountId; severity: Severity; message: string }

interface AccountState extends Row {
  id: AccountId
  has_channel_secret: boolean
  /** an access token is stored, or a channel id with which one can be issued */
  can_call_platform: boolean
  /** age in seconds of the last delivery that named another bot; null: none in the period */
  foreign_destination_age: number | null
  is_suspended: boolean
  unapplied_count: number
  /** age in seconds of the last stored event; null: none in the period */
  last_delivery_age: number | null
  /** deliveries with an invalid signature in the period, and the age in seconds of the last one */
  rejected_count: number
  last_rejected_age: number | null
  /** sources whose last delivery had an invalid signature */
  broken_sources: string[]
}

/**
 * Sources are compared one by one: tracking events from a web page prove nothing about the channel secret.
 *
 * $1 period in days int
 */
const selectAccountStates = `
  with delivered as (
    select channel_oa_id, source, max(received_at) as last_at
      from stored_event
     where received_at > now() - $1::int * interval '1 day'
     group by channel_oa_id, source
  ), accepted as (
    -- The platform's test delivery has no events, so only the stored verification proves that it was accepted.
    select channel_oa_id, source, max(last_at) as last_at
      from (select channel_oa_id, source, last_at from delivered
             union all
            select id, 'line', verified_at from official_account
             where verification @> '{"checks": [{"name": "webhook_test", "ok": true}]}') as proof
     group by channel_oa_id, source
  ), rejected as (
    select channel_oa_id, source, sum(count) as count, max(last_at) as last_at
      from refused_delivery
     where day > (now() at time zone 'UTC')::date - $1::int
     group by channel_oa_id, source
  )
  select a.id,
         coalesce(a.channel_secret, '') <> '' as has_channel_secret,
         coalesce(a.channel_access_token, '') <> '' or coalesce(a.channel_id, '') <> '' as can_call_platform,
         coalesce(a.suspended, false) as is_suspended,
         (select extract(epoch from now() - a.foreign_destination_at)::int
           where a.foreign_destination <> a.bot_user_id
             -- Another account with this bot may have been added since. It receives them now.
             and account_of_destination(a.id, a.foreign_destination) = a.id
             and a.foreign_destination_at > now() - $1::int * interval '1 day') as foreign_destination_age,
         (select count(*)::int from event e
           where e.channel_oa_id = a.id and e.failure is not null) as unapplied_count,
         (select extract(epoch from now() - max(d.last_at))::int from delivered d
           where d.channel_oa_id = a.id) as last_delivery_age,
         (select coalesce(sum(r.count), 0)::int from rejected r
           where r.channel_oa_id = a.id) as rejected_count,
         (select extract(epoch from now() - max(r.last_at))::int from rejected r
           where r.channel_oa_id = a.id) as last_rejected_age,
         array(select r.source from rejected r left join accepted using (channel_oa_id, source)
                where r.channel_oa_id = a.id
                  and r.last_at > coalesce(accepted.last_at, '-infinity')) as broken_sources
    from official_account a
   order by a.id`

/** At least one finding per account, errors first. */
export async function examineAccounts(database: Database): Promise<AccountFinding[]> {
  // A scan of a week of events may exceed a request's time limit, so it runs in its own session.
  const accounts = await database.session((session) =>
    session.query<AccountState>(selectAccountStates, [PERIOD_DAYS]),
  )
  return accounts.flatMap((account) =>
    findingsOf(account).map((finding) => ({ accountId: account.id, ...finding })),
  )
}

function findingsOf(account: AccountState): Array<Omit<AccountFinding, 'accountId'>> {
  const problems = [
    ...errorsOf(account).map((message) => ({ severity: 'error' as const, message })),
    ...warningsOf(account).map((message) => ({ severity: 'warning' as const, message })),
  ]
  if (problems.length > 0) return problems
  return [
    { severity: 'ok', message: `deliveries arrive; the last one was ${ago(account.last_delivery_age ?? 0)}` },
  ]
}

function errorsOf(account: AccountState): string[] {
  const { id, foreign_destination_age: foreignAge, broken_sources: broken } = account
  const verify = `run oa-audience accounts verify ${id}`
  return only([
    !account.has_channel_secret &&
      `no channel secret is stored, so every delivery is refused (403); run oa-audience accounts update ${id} --channel-secret SECRET`,
    account.is_suspended && 'the platform has suspended the account; ask LINE for the reason',
    foreignAge !== null &&
      `deliveries name another bot, last noted ${ago(foreignAge)}; to compare the bot user id, ${verify}; for a module channel, add the other account`,
    broken.includes('line') &&
      `${rejections(account)}; LINE has sent no valid one since; to compare the channel secret, ${verify} --test-webhook`,
    broken.includes('mbox') &&
      `${rejections(account)}; the support chat has sent no valid one since; compare the chat secret`,
  ])
}

function warningsOf(account: AccountState): string[] {
  const { id, unapplied_count: unapplied, rejected_count: rejected, broken_sources: broken } = account
  return only([
    unapplied > 0 && `${unapplied} events could not be applied; run oa-audience events list --account ${id}`,
    account.last_delivery_age === null &&
      `nothing was delivered for ${PERIOD_DAYS} days; run oa-audience accounts verify ${id} --test-webhook`,
    rejected > 0 &&
      broken.length === 0 &&
      `${rejections(account)}; valid ones arrived since, so the invalid ones came from another sender or had an old secret`,
    !account.can_call_platform &&
      `no access token and no channel id are stored, so profiles and verification are unavailable; run oa-audience accounts update ${id} --channel-id ID`,
  ])
}

function rejections({ rejected_count: count, last_rejected_age: age }: AccountState): string {
  return `deliveries with an invalid signature in ${PERIOD_DAYS} days: ${count}, the last one ${ago(age ?? 0)}`
}

function only(messages: Array<string | false>): string[] {
  return messages.filter((message) => message !== false)
}

const ago = (seconds: number): string => `${age(seconds)} ago`
