/** Examines an installation: configuration, database, accounts, endpoints, clients, Redis, the platform, the clocks and PUBLIC_URL. */
import { resolve } from 'node:path'
import { Redis } from 'ioredis'
import { listEnding } from '../accounts/clients.ts'
import { examineLedger } from '../audience/erasure/compare-ledger.ts'
import { type Config, SERVICE_LINK } from '../config/config.ts'
import { warnOfParameters } from '../config/database-url.ts'
import { examineEndpoints } from '../endpoints/endpoint-health.ts'
import { FatalError, type Finding, finding } from '../errors.ts'
import { EgressProxy, type Fetch, ProxyFault } from '../http/egress-proxy.ts'
import { redisRefusal } from '../http/rate-limit.ts'
import { age } from '../http/times.ts'
import { ALL_ORGANIZATIONS } from '../operators/actor.ts'
import { CLOCK_SKEW_MAX_SECONDS, readClockSkew } from '../postgres/clock.ts'
import { withDatabase } from '../postgres/pool/open.ts'
import { BEHIND_MAX_BYTES, type Replication } from '../postgres/replication/replication.ts'
import { type Queryable, statement } from '../postgres/statement.ts'
import { examineEncryption } from '../upkeep/change-secrets.ts'
import type { FleetAccount } from './account-status.ts'
import { listFleet } from './fleet.ts'
import { explainProblem } from './languages.ts'
import { examineChannels } from './notifications/channels.ts'
import { examineReachability } from './reachability.ts'
import { confirmStatuses } from './store-statuses.ts'

const RESPONSE_TIMEOUT_MS = 3_000
/** Chat signatures are valid for five minutes. A clock that is off by one minute is drifting towards this limit. */
const PLATFORM_SKEW_MAX_SECONDS = 60

/** More of a kind would hide other findings. */
const FINDINGS_MAX = 50

const { ok, warning, error: failure } = finding

/** Problems are findings, never exceptions. */
export async function examineSystem(config: Config): Promise<Finding[]> {
  const examined = examineReachability(config.publicUrl)
  const findings = [
    ...examineConfig(config),
    ...(await examineDatabase(config)),
    ...(config.redisUrl === null ? [] : [await examineRedis(config.redisUrl.reveal())]),
    ...(await examinePlatform(config.lineApiUrl, EgressProxy.open(config.egressProxy)?.fetch)),
  ]
  const { severity, message, fix, code } = await examined
  return [...findings, { check: 'PUBLIC_URL', severity, message: `${message} ${fix}`, code }]
}

function examineConfig(config: Config): Finding[] {
  const { rateLimit, trustProxy, host, dataDir, erasureLedger, database, serviceLinks } = config
  const findings = [ok('configuration', 'every variable is valid')]
  const warn = (check: string, message: string) => findings.push(warning(check, message))
  for (const name of serviceLinks) warn(name, SERVICE_LINK)
  if (erasureLedger === null)
    warn('ERASURE_LEDGER', 'unset, so a restored backup brings back the people who were erased after it')
  else if (resolve(erasureLedger).startsWith(`${dataDir}/`))
    warn('ERASURE_LEDGER', 'inside of DATA_DIR, so a restore of this directory also restores the ledger')
  if (database.kind === 'url') warnOfParameters(database.url.reveal(), (message) => warn('database', message))
  if (rateLimit.max === 0) warn('RATE_LIMIT_MAX', '0, so there is no rate limit')
  if (rateLimit.windowMs === 0) warn('RATE_LIMIT_WINDOW_MS', '0, so there is no rate limit')
  if (host === '127.0.0.1' && trustProxy.length === 0) {
    warn(
      'TRUST_PROXY',
      'unset; if a proxy on this machine forwards requests, set it to loopback, or all clients share one rate limit',
    )
  }
  return findings
}

async function examineDatabase(config: Config): Promise<Finding[]> {
  const { database: choice } = config
  if (choice.kind === 'none') return [failure('database', 'DATABASE_URL is none, so nothing is stored')]
  try {
    return await withDatabase(choice, async (database) => {
      await confirmStatuses(database)
      return [
        await examineServer(database),
        ...(await examineLocale(database)),
        examineReplication(await database.checkReplication()),
        ...(await database.replicaLags()).map(examineReplica),
        ok('migrations', 'the schema is up to date'),
        ...(await examineRoles(database)),
        ...(await listFleet(database, ALL_ORGANIZATIONS)).flatMap(examineAccount),
        ...(await database.session(examineEndpoints)),
        ...(await database.session(examineEncryption)),
        ...(await examineChannels(database, config)),
        ...(config.erasureLedger === null ? [] : await examineLedger(database, config.erasureLedger)),
        ...(await examineCredentials(database)),
      ]
    })
  } catch (error) {
    if (!(error instanceof FatalError)) throw error
    return [failure('database', error.message)]
  }
}

function examineAccount({ id, problems, lastDeliveryAt }: FleetAccount): Finding[] {
  const check = `account ${id}`
  if (problems.length === 0) {
    const seconds = (Date.now() - Date.parse(lastDeliveryAt ?? '')) / 1000
    return [ok(check, `LINE delivers; the last delivery was ${age(seconds)} ago`)]
  }
  return problems.map((problem) => {
    const { message, fix } = explainProblem(id, problem, Date.now())
    const isBroken = problem.status === 'broken' && !problem.muted
    return (isBroken ? failure : warning)(check, `${message} ${fix}`)
  })
}

/** If checkpoints of the delta feed are ahead of the clock, it stepped back. Beyond an hour they do not matter (feed-statement.ts). */
const selectServer = statement('select-server-health')`
    select current_setting('server_version') as version, current_setting('fsync') as fsync,
           (select coalesce(extract(epoch from max(marked_at) - clock_timestamp()), 0)::float8 from change_mark
             where marked_at <= clock_timestamp() + interval '1 hour') as ahead`

const selectLocale = statement('select-locale')`select lower('É') = 'é' as "hasCase"`

async function examineLocale(database: Queryable): Promise<Finding[]> {
  const [locale] = await database.query<{ hasCase: boolean }>(selectLocale)
  if (locale?.hasCase) return []
  return [warning('locale', 'has no case beyond ASCII, so a search for é does not find É; use C.UTF-8')]
}

async function examineServer(database: Queryable): Promise<Finding> {
  const [server] = await database.query<{ version: string; fsync: string; ahead: number }>(selectServer)
  const check = 'database'
  const skewSeconds = await readClockSkew(database)
  if (Math.abs(skewSeconds) > CLOCK_SKEW_MAX_SECONDS) {
    const difference = `${Math.round(Math.abs(skewSeconds))} s ${skewSeconds > 0 ? 'ahead of' : 'behind'}`
    return failure(check, `the server's clock is ${difference} this machine's; run NTP on both`)
  }
  const aheadSeconds = Math.round(server?.ahead ?? 0)
  if (aheadSeconds > CLOCK_SKEW_MAX_SECONDS) {
    const message = `the server's clock stepped back by ${aheadSeconds} s; until it has caught up, delta feeds repeat more changes`
    return warning(check, message)
  }
  if (server?.fsync === 'off')
    return failure(check, 'fsync is off, so a power failure loses acknowledged events; set fsync = on')
  return ok(check, `PostgreSQL ${server?.version} responds`)
}

/** See migrations/functions/roles.sql. */
const selectRoles = statement('select-roles-with-access')`
    select role, reads, changes, quote_ident(current_schema()) as schema from roles_with_access() limit ${FINDINGS_MAX}`

async function examineRoles(database: Queryable): Promise<Finding[]> {
  type Access = { role: string; reads: string | null; changes: string | null; schema: string }
  const roles = await database.query<Access>(selectRoles)
  return roles.map(({ role, reads, changes, schema }) => {
    const rights = [reads && `read ${reads}`, changes && `change ${changes}`].filter(Boolean).join(', and ')
    const revoke = `run revoke all on all tables in schema ${schema} from ${role}`
    const fix = `if no program needs this, ${revoke}, or take ${role} out of the role that has these rights`
    return warning(`role ${role}`, `may ${rights}, where secrets or members are; ${fix}`)
  })
}

async function examineRedis(url: string): Promise<Finding> {
  const check = 'Redis'
  const redis = new Redis(url, {
    lazyConnect: true,
    connectTimeout: RESPONSE_TIMEOUT_MS,
    commandTimeout: RESPONSE_TIMEOUT_MS,
    socketTimeout: RESPONSE_TIMEOUT_MS,
    retryStrategy: () => null,
  })
  redis.on('error', () => undefined)
  try {
    await redis.connect()
    // A full server or a replica responds to pings, but refuses the rate limiter's writes.
    await redis.set('oa-audience-doctor', '1', 'PX', RESPONSE_TIMEOUT_MS)
    return ok(check, 'responds')
  } catch (error) {
    const refusal = redisRefusal(error as Error)
    const problem = refusal ? `refuses writes (${refusal})` : 'does not respond'
    return failure(check, `${problem}, so requests are not rate limited until it does; check REDIS_URL`)
  } finally {
    redis.disconnect()
  }
}

async function examinePlatform(url: string, fetch: Fetch = globalThis.fetch): Promise<Finding[]> {
  const check = 'LINE'
  try {
    // The platform rejects a request without credentials, which proves that it responds.
    const response = await fetch(`${url}/v2/bot/info`, { signal: AbortSignal.timeout(RESPONSE_TIMEOUT_MS) })
    response.body?.cancel().catch(() => undefined)
    return [ok(check, `${url} responds`), ...compareClock(Date.parse(response.headers.get('date') ?? ''))]
  } catch (error) {
    const [fault, fix] =
      error instanceof ProxyFault
        ? [error.message, 'check EGRESS_PROXY']
        : [`${url} does not respond`, 'allow outgoing HTTPS or set LINE_API_URL']
    const message = `${fault}, so profiles and verification are unavailable; ${fix}`
    return [failure(check, message)]
  }
}

/** @param dateMs NaN if the platform's response has no date */
function compareClock(dateMs: number): Finding[] {
  if (Number.isNaN(dateMs)) return []
  const skewSeconds = Math.round(Math.abs(dateMs - Date.now()) / 1000)
  if (skewSeconds <= PLATFORM_SKEW_MAX_SECONDS) return [ok('clock', "agrees with LINE's clock")]
  return [failure('clock', `differs from LINE's clock by ${skewSeconds} s; run NTP`)]
}

const ONE_DISK = 'an acknowledged event exists on one disk'
const MEBIBYTE = 1024 * 1024

/** @param replication null: no standby is expected */
function examineReplication(replication: Replication | null): Finding {
  const check = 'replication'
  if (replication === null) return ok(check, `no standby is configured: ${ONE_DISK}`)
  const { state, waits, standbys, behindBytes } = replication
  switch (state) {
    case 'synchronous':
      return ok(check, `commits wait for the disk of a standby; connected: ${standbys}`)
    case 'asynchronous':
      return warning(
        check,
        `commits do not wait for the disk of a standby, so ${ONE_DISK}; set synchronous_standby_names and synchronous_commit = on`,
      )
    case 'behind':
      return warning(
        check,
        `the standby lacks the last ${Math.round(behindBytes / MEBIBYTE)} MiB, and ${ONE_DISK}; check its disk and network`,
      )
    case 'missing':
      if (!waits) return warning(check, `no standby is connected, so ${ONE_DISK}; start a standby`)
      return failure(
        check,
        'commits wait for a standby and none is connected, so nothing is stored; start a standby',
      )
    case 'unknown':
      return warning(
        check,
        'the database user may not see the standbys; run `grant pg_monitor to …` as a superuser',
      )
  }
}

/** `behindBytes` is the WAL that the replica has not replayed; null: the replica cannot be read. */
export function examineReplica({
  replica,
  behindBytes,
}: {
  replica: string
  behindBytes: number | null
}): Finding {
  const check = `replica ${replica}`
  if (behindBytes === null)
    return warning(
      check,
      'does not respond, is not a standby of the primary in DATABASE_URL (after a takeover: not yet), or is a pooler that does not keep sessions; the primary serves its reads; check DATABASE_READ_URL',
    )
  if (behindBytes <= BEHIND_MAX_BYTES) return ok(check, 'serves reads')
  const behind = `is ${Math.round(behindBytes / MEBIBYTE)} MiB behind`
  return warning(check, `${behind}, so the primary serves most of its reads; check its disk and network`)
}

// Clients and keys that have not been used for long, or have an end that has no effect.

const UNUSED_DAYS = 90
/** $1 days without use int, $2 maximum number of rows int */
const selectUnused = statement('select-unused-credentials')`
    with credential as (
      select 'client' as kind, id, coalesce(last_used_at, created_at) as used_at from api_client where status = 'active'
       union all
      select 'key', k.id, coalesce(k.last_used_at, k.created_at)
        from api_key k join api_client c on c.id = k.api_client_id
       where k.status = 'active' and c.status = 'active'
    )
    select kind, id from credential where used_at < now() - $1 * interval '1 day' order by kind, id limit $2`

async function examineCredentials(database: Queryable): Promise<Finding[]> {
  const ending = (await listEnding(database)).slice(0, FINDINGS_MAX)
  const unused = await database.query<{ kind: string; id: bigint }>(selectUnused, [UNUSED_DAYS, FINDINGS_MAX])
  return [
    ...ending.map(({ kind, id, expiresAt }) =>
      warning(
        `${kind} ${id}`,
        `its expires_at ${expiresAt} no longer ends it; oa-audience ${kind}s revoke ${id} does`,
      ),
    ),
    ...unused.map(({ kind, id }) =>
      ok(
        `${kind} ${id}`,
        `has not been used for ${UNUSED_DAYS} days; if no program needs it, run oa-audience ${kind}s revoke ${id}`,
      ),
    ),
  ]
}
