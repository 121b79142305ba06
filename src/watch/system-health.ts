/** Examines an installation: configuration, database, accounts, endpoints, clients, Redis, the platform, the clocks and PUBLIC_URL. */

import { resolve } from 'node:path'
import { Redis } from 'ioredis'
import { examineLedger } from '../audience/erasure/compare-ledger.ts'
import type { Config } from '../config/config.ts'
import { examineEndpoints, type Severity } from '../endpoints/endpoint-health.ts'
import { FatalError } from '../errors.ts'
import { age } from '../http/format.ts'
import { redisRefusal } from '../http/rate-limit.ts'
import { ALL_ORGANIZATIONS } from '../operators/actor.ts'
import { CLOCK_SKEW_MAX_SECONDS, readClockSkew } from '../postgres/clock.ts'
import { withDatabase } from '../postgres/pool/open.ts'
import { BEHIND_MAX_BYTES, type Replication } from '../postgres/replication/replication.ts'
import { type Queryable, statement } from '../postgres/statement.ts'
import { examineEncryption } from '../upkeep/secrets.ts'
import { examineCredentials } from './credential-health.ts'
import { type FleetAccount, listFleet } from './fleet.ts'
import { examineChannels } from './notifications/channels.ts'
import { explainProblem } from './problem-commands.ts'
import { examineReachability, type Reachability } from './reachability.ts'
import { confirmStatuses } from './store-statuses.ts'

const RESPONSE_TIMEOUT_MS = 3_000
/** Chat signatures are valid for five minutes. A clock that is off by one minute is drifting towards this limit. */
const PLATFORM_SKEW_MAX_SECONDS = 60

export type Finding = { check: string; severity: Severity; message: string; code?: string }

/** At least one finding per part. Problems are findings, never exceptions. */
export async function examineSystem(config: Config): Promise<Finding[]> {
  const reachability = examineReachability(config.publicUrl)
  return [
    ...examineConfig(config),
    ...(await examineDatabase(config)),
    ...(config.redisUrl === null ? [] : [await examineRedis(config.redisUrl.reveal())]),
    ...(await examinePlatform(config.lineApiUrl)),
    describeReachability(await reachability),
  ]
}

const describeReachability = ({ severity, message, fix, code }: Reachability): Finding => ({
  check: 'PUBLIC_URL',
  severity,
  message: `${message} ${fix}`,
  code,
})

function examineConfig({ rateLimit, trustProxy, host, dataDir, erasureLedger }: Config): Finding[] {
  const findings: Finding[] = [{ check: 'configuration', severity: 'ok', message: 'every variable is valid' }]
  const warn = (check: string, message: string) => findings.push({ check, severity: 'warning', message })
  if (erasureLedger === null)
    warn('ERASURE_LEDGER', 'unset, so a restored backup brings back the people who were erased after it')
  else if (resolve(erasureLedger).startsWith(`${dataDir}/`))
    warn('ERASURE_LEDGER', 'inside of DATA_DIR, so a restore of this directory also restores the ledger')
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
  const check = 'database'
  if (choice.kind === 'none') {
    return [{ check, severity: 'error', message: 'DATABASE_URL is none, so nothing is stored' }]
  }
  try {
    return await withDatabase(choice, async (database) => {
      await confirmStatuses(database)
      return [
        await examineServer(database),
        { check: 'replication', ...examineReplication(await database.checkReplication()) },
        ...(await database.replicaLags()).map(examineReplica),
        { check: 'migrations', severity: 'ok', message: 'the schema is up to date' },
        ...(await listFleet(database, ALL_ORGANIZATIONS)).flatMap(examineAccount),
        ...(await database.session(examineEndpoints)).map(({ endpointId, severity, message }) => ({
          check: `endpoint ${endpointId}`,
          severity,
          message,
        })),
        ...(await database.session(examineEncryption)),
        ...(await examineChannels(database, config)),
        ...(config.erasureLedger === null ? [] : await examineLedger(database, config.erasureLedger)),
        ...(await examineCredentials(database)),
      ]
    })
  } catch (error) {
    if (!(error instanceof FatalError)) throw error
    return [{ check, severity: 'error', message: error.message }]
  }
}

function examineAccount({ id, problems, lastDeliveryAt }: FleetAccount): Finding[] {
  const check = `account ${id}`
  if (problems.length === 0) {
    const seconds = (Date.now() - Date.parse(lastDeliveryAt ?? '')) / 1000
    return [{ check, severity: 'ok', message: `LINE delivers; the last delivery was ${age(seconds)} ago` }]
  }
  return problems.map((problem) => {
    const { message, fix } = explainProblem(id, problem, Date.now())
    return {
      check,
      severity: problem.status === 'broken' && !problem.muted ? 'error' : 'warning',
      message: `${message} ${fix}`,
    }
  })
}

/**
 * If checkpoints of the delta feed are ahead of the clock, the clock stepped back. Checkpoints that are more than an hour ahead do not
 * matter, see audience/feed-statement.ts.
 */
const selectServer = statement('select-server-health')`
    select current_setting('server_version') as version, current_setting('fsync') as fsync,
           (select coalesce(extract(epoch from max(marked_at) - clock_timestamp()), 0)::float8 from change_mark
             where marked_at <= clock_timestamp() + interval '1 hour') as ahead`

async function examineServer(database: Queryable): Promise<Finding> {
  const [server] = await database.query<{ version: string; fsync: string; ahead: number }>(selectServer)
  const check = 'database'
  const skewSeconds = await readClockSkew(database)
  if (Math.abs(skewSeconds) > CLOCK_SKEW_MAX_SECONDS) {
    const direction = skewSeconds > 0 ? 'ahead of' : 'behind'
    const message = `the server's clock is ${Math.round(Math.abs(skewSeconds))} s ${direction} this machine's; run NTP on both`
    return { check, severity: 'error', message }
  }
  const aheadSeconds = Math.round(server?.ahead ?? 0)
  if (aheadSeconds > CLOCK_SKEW_MAX_SECONDS) {
    const message = `the server's clock stepped back by ${aheadSeconds} s; until it has caught up, delta feeds repeat more changes`
    return { check, severity: 'warning', message }
  }
  if (server?.fsync === 'off') {
    const message = 'fsync is off, so a power failure loses acknowledged events; set fsync = on'
    return { check, severity: 'error', message }
  }
  return { check, severity: 'ok', message: `PostgreSQL ${server?.version} responds` }
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
    return { check, severity: 'ok', message: 'responds' }
  } catch (error) {
    const refusal = redisRefusal(error as Error)
    const problem = refusal ? `refuses writes (${refusal})` : 'does not respond'
    const message = `${problem}, so requests are not rate limited until it does; check REDIS_URL`
    return { check, severity: 'error', message }
  } finally {
    redis.disconnect()
  }
}

async function examinePlatform(url: string): Promise<Finding[]> {
  const check = 'platform'
  try {
    // The platform rejects a request without credentials, which proves that it responds.
    const response = await fetch(`${url}/v2/bot/info`, { signal: AbortSignal.timeout(RESPONSE_TIMEOUT_MS) })
    response.body?.cancel().catch(() => undefined)
    return [
      { check, severity: 'ok', message: `${url} responds` },
      ...compareClock(Date.parse(response.headers.get('date') ?? '')),
    ]
  } catch {
    const message = `${url} does not respond, so profiles and verification are unavailable; allow outgoing HTTPS or set LINE_API_URL`
    return [{ check, severity: 'error', message }]
  }
}

/** @param dateMs NaN if the platform's response has no date */
function compareClock(dateMs: number): Finding[] {
  if (Number.isNaN(dateMs)) return []
  const skewSeconds = Math.round(Math.abs(dateMs - Date.now()) / 1000)
  if (skewSeconds <= PLATFORM_SKEW_MAX_SECONDS) {
    return [{ check: 'clock', severity: 'ok', message: "agrees with the platform's clock" }]
  }
  const message = `differs from the platform's clock by ${skewSeconds} s; run NTP`
  return [{ check: 'clock', severity: 'error', message }]
}

// Findings of `doctor` about the standbys of the database and the replicas that serve reads.

const ONE_DISK = 'an acknowledged event exists on one disk'
const MEBIBYTE = 1024 * 1024

/** @param replication null: no standby is expected */
function examineReplication(replication: Replication | null): { severity: Severity; message: string } {
  if (replication === null) return { severity: 'ok', message: `no standby is configured: ${ONE_DISK}` }
  const { state, waits, standbys, behindBytes } = replication
  switch (state) {
    case 'synchronous':
      return { severity: 'ok', message: `commits wait for the disk of a standby; connected: ${standbys}` }
    case 'asynchronous':
      return {
        severity: 'warning',
        message: `commits do not wait for the disk of a standby, so ${ONE_DISK}; set synchronous_standby_names and synchronous_commit = on`,
      }
    case 'behind':
      return {
        severity: 'warning',
        message: `the standby lacks the last ${Math.round(behindBytes / MEBIBYTE)} MiB, and ${ONE_DISK}; check its disk and network`,
      }
    case 'missing':
      return waits
        ? {
            severity: 'error',
            message:
              'commits wait for a standby and none is connected, so nothing is stored; start a standby',
          }
        : { severity: 'warning', message: `no standby is connected, so ${ONE_DISK}; start a standby` }
    case 'unknown':
      return {
        severity: 'warning',
        message: 'the database user may not see the standbys; run `grant pg_monitor to …` as a superuser',
      }
  }
}

/** `behindBytes` is the WAL that the replica has not replayed; null: the replica cannot be read. */
export function examineReplica({ replica, behindBytes }: { replica: string; behindBytes: number | null }): {
  check: string
  severity: Severity
  message: string
} {
  const check = `replica ${replica}`
  if (behindBytes === null) {
    const message =
      'does not respond, is not a standby of the primary in DATABASE_URL (after a takeover: not yet), or is a pooler that does not keep sessions; the primary serves its reads; check DATABASE_READ_URL'
    return { check, severity: 'warning', message }
  }
  if (behindBytes <= BEHIND_MAX_BYTES) return { check, severity: 'ok', message: 'serves reads' }
  const message = `is ${Math.round(behindBytes / MEBIBYTE)} MiB behind, so the primary serves most of its reads; check its disk and network`
  return { check, severity: 'warning', message }
}
