/**
 * Requests HEARTBEAT_URL once a minute while the database stores. The statement that chooses the process of this minute is a proof: it has
 * committed. But it needs no room on the disk, as a delivery does. So a process whose last delivery could not be stored takes every turn,
 * also those of others, and requests nothing.
 */
import type { FastifyBaseLogger } from 'fastify'
import type { Secret } from '../../config/secret.ts'
import { every, type Stop } from '../../every.ts'
import type { Fetch } from '../../http/egress-proxy.ts'
import { heartbeatSent } from '../../observability/facts.ts'
import type { Database } from '../../postgres/database.ts'
import { statement } from '../../postgres/statement.ts'

/** One process has its turn after 55 s, so there are 55 to 65 s between two requests. */
const TRY_INTERVAL_MS = 10_000
const REQUEST_TIMEOUT_MS = 10_000

const beat = statement('beat-heart')`
    update notification_watch set heartbeat_at = now()
     where is_due(heartbeat_at + interval '55 seconds', interval '55 seconds')
    returning true as "isChosen"`

const skipBeat = statement('skip-heart-beat')`update notification_watch set heartbeat_at = now()`

export function startHeartbeat(
  database: Pick<Database, 'query' | 'state'>,
  url: Secret,
  log: FastifyBaseLogger,
  { tryMs = TRY_INTERVAL_MS, fetch = globalThis.fetch }: { tryMs?: number; fetch?: Fetch | undefined } = {},
): Stop {
  let hasFailed = false
  return every('heartbeat', tryMs, async (signal) => {
    const isFailing = (await database.state()) === 'failing'
    const chosen = await database.query(isFailing ? skipBeat : beat)
    if (chosen.length === 0) return
    const isAccepted = await request(fetch, url, signal)
    if (signal.aborted) return
    heartbeatSent.publish({ outcome: isAccepted ? 'accepted' : 'failed' })
    if (!isAccepted && !hasFailed)
      log.warn('HEARTBEAT_URL does not accept requests; its watchdog may report an outage')
    if (isAccepted && hasFailed) log.info('HEARTBEAT_URL accepts requests again')
    hasFailed = !isAccepted
  }).stop
}

/** Errors may contain the URL, whose path is usually a token. */
async function request(fetch: Fetch, url: Secret, stopped: AbortSignal): Promise<boolean> {
  try {
    const signal = AbortSignal.any([AbortSignal.timeout(REQUEST_TIMEOUT_MS), stopped])
    const response = await fetch(url.reveal(), { redirect: 'manual', signal })
    await response.body?.cancel()
    return response.ok
  } catch {
    return false
  }
}
