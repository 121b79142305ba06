/** `oa-audience doctor`: what is wrong with this set-up, and how to mend it. */
import type { Command } from 'commander'
import { Redis } from 'ioredis'
import { type Config, readConfig } from '../config.ts'
import { FatalError } from '../errors.ts'
import { redisRefusal } from '../http/rate-limit-redis.ts'
import type { Database } from '../postgres/database.ts'
import { withDatabase } from '../postgres/open.ts'
import type { Row } from '../postgres/statement.ts'
import { withJson } from './input.ts'
import { printMany } from './output.ts'

const ANSWER_TIMEOUT_MS = 3_000
/** Chat signatures are good for five minutes; a clock that is off by this is on its way there. */
const CLOCK_MAX_SECONDS = 60
/** An account that nobody wrote to for so long is worth a look. */
const DAYS_LOOKED_BACK = 7

type Finding = { check: string; state: 'ok' | 'look' | 'WRONG'; message: string }

export function doctorCommand(program: Command): void {
  withJson(program.command('doctor'))
    .description(
      'look at configuration, database, Redis, platform, clock and accounts; ends with 1 if something is wrong',
    )
    .action(async ({ json }: { json?: boolean }) => {
      const findings = await examine(readConfig())
      printMany(findings, json === true)
      if (findings.some(({ state }) => state === 'WRONG')) process.exitCode = 1
    })
}

async function examine(config: Config): Promise<Finding[]> {
  return [
    ...examineConfig(config),
    ...(await examineDatabase(config)),
    ...(config.redisUrl === null ? [] : [await examineRedis(config.redisUrl.reveal())]),
    ...(await examinePlatform(config.lineApiUrl)),
  ]
}

function examineConfig({ publicUrl, rateLimit, trustProxy, host }: Config): Finding[] {
  const findings: Finding[] = [{ check: 'configuration', state: 'ok', message: 'every variable can be used' }]
  if (publicUrl === null) {
    findings.push({
      check: 'PUBLIC_URL',
      state: 'look',
      message: 'is unset: verification compares the path of the webhook alone',
    })
  }
  const unlimited = { RATE_LIMIT_MAX: rateLimit.max, RATE_LIMIT_WINDOW_MS: rateLimit.windowMs }
  for (const [check, value] of Object.entries(unlimited)) {
    if (value === 0) findings.push({ check, state: 'look', message: 'is 0: nobody is limited' })
  }
  if (host === '127.0.0.1' && trustProxy.length === 0) {
    findings.push({
      check: 'TRUST_PROXY',
      state: 'look',
      message: 'is unset: behind a proxy on this machine, set it to loopback, or all senders share one limit',
    })
  }
  return findings
}

async function examineDatabase({ database: choice }: Config): Promise<Finding[]> {
  if (choice.kind === 'none') {
    return [{ check: 'database', state: 'WRONG', message: 'DATABASE_URL is none: nothing is kept' }]
  }
  try {
    return await withDatabase(choice, async (database, applied) => [
      await examineServer(database),
      {
        check: 'migrations',
        state: 'ok',
        message:
          applied.length === 0 ? 'the schema is up to date' : `applied just now: ${applied.join(', ')}`,
      },
      ...(await examineAccounts(database)),
    ])
  } catch (error) {
    if (!(error instanceof FatalError)) throw error
    return [{ check: 'database', state: 'WRONG', message: error.message }]
  }
}

async function examineServer(database: Database): Promise<Finding> {
  const [server] = await database.query<{ version: string; now: number; fsync: string }>(
    `select current_setting('server_version') as version, extract(epoch from now())::float8 as now,
            current_setting('fsync') as fsync`,
  )
  const check = 'database'
  const skew = Math.abs((server?.now ?? 0) - Date.now() / 1000)
  if (skew > CLOCK_MAX_SECONDS) {
    return {
      check,
      state: 'WRONG',
      message: `its clock differs from ours by ${Math.round(skew)} s: run NTP on both`,
    }
  }
  if (server?.fsync === 'off') {
    return {
      check,
      state: 'WRONG',
      message: 'fsync is off: what was answered 2xx is lost when its machine fails; switch it on',
    }
  }
  return { check, state: 'ok', message: `PostgreSQL ${server?.version} answers` }
}

interface AccountState extends Row {
  id: bigint
  has_secret: boolean
  /** has an access token, or a channel id to have one issued with */
  may_ask: boolean
  /** seconds since deliveries that name another bot were last noted, if that was in those days */
  foreign_noted: number | null
  suspended: boolean | null
  unapplied: number
  /** seconds since its last delivery, if one of the last days is still stored */
  last_delivery: number | null
  /** deliveries with a wrong signature in those days, and seconds since the last */
  refused: number
  last_refused: number | null
  /** sources whose last delivery had a wrong signature */
  broken: string[]
}

// Each source by itself: events of a web page say nothing of the channel's secret.
const selectAccounts = `
  with delivered as (
    select channel_oa_id, source, max(received_at) as last from event
     where received_at > now() - $1 * interval '1 day' group by channel_oa_id, source
  ), accepted as (
    -- A test delivery of the platform's has no events to be stored.
    select channel_oa_id, source, max(last) as last
      from (select * from delivered
             union all
            select id, 'line', verified_at from official_account
             where verification @> '{"checks": [{"name": "webhook_test", "ok": true}]}') known
     group by channel_oa_id, source
  ), refused as (
    select channel_oa_id, source, sum(count) as count, max(last_at) as last from refused_delivery
     where day > (now() at time zone 'UTC')::date - $1::int group by channel_oa_id, source
  )
  select a.id, coalesce(a.channel_secret, '') <> '' as has_secret, a.suspended,
         coalesce(a.channel_access_token, '') <> '' or coalesce(a.channel_id, '') <> '' as may_ask,
         (select extract(epoch from now() - a.foreign_destination_at)::int
           where a.foreign_destination <> a.bot_user_id
             and a.foreign_destination_at > now() - $1 * interval '1 day') as foreign_noted,
         (select count(*) from event e where e.channel_oa_id = a.id and e.failure is not null)::int as unapplied,
         (select extract(epoch from now() - max(d.last))::int from delivered d
           where d.channel_oa_id = a.id) as last_delivery,
         (select coalesce(sum(r.count), 0)::int from refused r where r.channel_oa_id = a.id) as refused,
         (select extract(epoch from now() - max(r.last))::int from refused r
           where r.channel_oa_id = a.id) as last_refused,
         array(select r.source from refused r left join accepted g using (channel_oa_id, source)
                where r.channel_oa_id = a.id and r.last > coalesce(g.last, '-infinity')) as broken
    from official_account a order by a.id`

async function examineAccounts(database: Database): Promise<Finding[]> {
  // Not a request's statement: a week of events may take longer to look through than a request may.
  const accounts = await database.session((session) =>
    session.query<AccountState>(selectAccounts, [DAYS_LOOKED_BACK]),
  )
  return accounts.flatMap((account) =>
    judge(account).map((finding) => ({ check: `account ${account.id}`, ...finding })),
  )
}

/** All that is to be said of it, the worst first. */
function judge(account: AccountState): Array<Omit<Finding, 'check'>> {
  const { id, foreign_noted, unapplied, last_delivery, refused, broken } = account
  const refusals = `deliveries with a wrong signature in ${DAYS_LOOKED_BACK} days: ${refused}, the last ${ago(account.last_refused ?? 0)}`
  const wrong = [
    !account.has_secret && 'has no channel secret: every delivery is refused (403)',
    account.suspended === true && 'is suspended, says the platform: ask LINE why',
    foreign_noted !== null &&
      `deliveries name another bot, noted ${ago(foreign_noted)}: compare bot_user_id with \`oa-audience accounts verify ${id}\``,
    broken.includes('line') &&
      `${refusals}, and no good one of LINE since. Compare the channel secret: oa-audience accounts verify ${id} --test-webhook`,
    broken.includes('mbox') &&
      `${refusals}, and no good one of the support chat since. Compare the chat secret`,
  ]
  const look = [
    unapplied > 0 && `${unapplied} events could not be applied: oa-audience events list --account ${id}`,
    last_delivery === null &&
      `nothing was delivered for ${DAYS_LOOKED_BACK} days: oa-audience accounts verify ${id} --test-webhook`,
    refused > 0 && broken.length === 0 && `${refusals}. Somebody tries, or has an old secret`,
    !account.may_ask &&
      `has no access token and no channel id: no names, no pictures, no verification; oa-audience accounts update ${id} --channel-id ID`,
  ]
  const well = last_delivery !== null && `deliveries arrive, the last ${ago(last_delivery)}`
  const findings = (state: Finding['state'], messages: Array<string | false>) =>
    messages.filter((message) => message !== false).map((message) => ({ state, message }))
  const faults = [...findings('WRONG', wrong), ...findings('look', look)]
  return faults.length > 0 ? faults : findings('ok', [well])
}

function ago(seconds: number): string {
  if (seconds < 120) return `${seconds} s ago`
  if (seconds < 7200) return `${Math.round(seconds / 60)} min ago`
  return seconds < 172_800
    ? `${Math.round(seconds / 3600)} h ago`
    : `${Math.round(seconds / 86_400)} days ago`
}

async function examineRedis(url: string): Promise<Finding> {
  const redis = new Redis(url, {
    lazyConnect: true,
    connectTimeout: ANSWER_TIMEOUT_MS,
    commandTimeout: ANSWER_TIMEOUT_MS,
    socketTimeout: ANSWER_TIMEOUT_MS,
    retryStrategy: () => null,
  })
  redis.on('error', () => undefined)
  try {
    await redis.connect()
    // Not only that it answers: one that is full, or a replica, counts nothing.
    await redis.set('oa-audience-doctor', '1', 'PX', ANSWER_TIMEOUT_MS)
    return { check: 'Redis', state: 'ok', message: 'answers' }
  } catch (error) {
    const refusal = redisRefusal(error as Error)
    return {
      check: 'Redis',
      state: 'WRONG',
      message: `${refusal ? `refuses to write (${refusal})` : 'does not answer'}: the rate limit lets everybody through until it does; compare REDIS_URL`,
    }
  } finally {
    redis.disconnect()
  }
}

async function examinePlatform(url: string): Promise<Finding[]> {
  try {
    // Without credentials it refuses, and that is an answer.
    const response = await fetch(`${url}/v2/bot/info`, { signal: AbortSignal.timeout(ANSWER_TIMEOUT_MS) })
    response.body?.cancel().catch(() => undefined)
    const date = Date.parse(response.headers.get('date') ?? '')
    const skew = Math.round(Math.abs(date - Date.now()) / 1000)
    const clock: Finding =
      skew > CLOCK_MAX_SECONDS
        ? { check: 'clock', state: 'WRONG', message: `differs from the platform's by ${skew} s: run NTP` }
        : { check: 'clock', state: 'ok', message: "agrees with the platform's" }
    return [
      { check: 'platform', state: 'ok', message: `${url} answers` },
      ...(Number.isNaN(skew) ? [] : [clock]),
    ]
  } catch {
    return [
      {
        check: 'platform',
        state: 'WRONG',
        message: `${url} does not answer: no profiles, no verification; allow outgoing HTTPS, or set LINE_API_URL`,
      },
    ]
  }
}
