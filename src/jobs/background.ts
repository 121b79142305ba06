/**
 * Periodic work that starts once the database is ready: profiles, audiences at LINE, checks of accounts, messages about them, the
 * heartbeat, jobs, maintenance, pending erasures, change marks, encryption of secrets, and deliveries to endpoints.
 */
import type { FastifyBaseLogger } from 'fastify'
import { finishErasures } from '../accounts/erasure-lock.ts'
import type { Verifier } from '../accounts/verify.ts'
import { readLedgerDelay } from '../audience/erasure/compare-ledger.ts'
import { type ErasureLedger, LedgerUnwritable } from '../audience/erasure/erasure-ledger.ts'
import { addCheckpoint, CHECKPOINT_INTERVAL_MS } from '../audience/feed-statement.ts'
import { SegmentSync } from '../audience/line-audiences.ts'
import { countDueProfiles, ProfileFiller } from '../audience/profiles.ts'
import type { Secret } from '../config/secret.ts'
import { listBacklogs } from '../endpoints/endpoint-health.ts'
import type { Sender } from '../endpoints/sender.ts'
import { every, type Stop } from '../every.ts'
import type { Fetch } from '../http/egress-proxy.ts'
import { clockCompared } from '../observability/facts.ts'
import type { Metrics } from '../observability/metrics.ts'
import { ALL_ORGANIZATIONS } from '../operators/actor.ts'
import { CLOCK_SKEW_MAX_SECONDS, readClockSkew } from '../postgres/clock.ts'
import type { OpenDatabase } from '../postgres/pool/open.ts'
import type { PostgresDatabase } from '../postgres/pool/postgres-database.ts'
import type { Transactions } from '../postgres/statement.ts'
import { MAINTENANCE_INTERVAL_MS, runMaintenance } from '../upkeep/maintenance.ts'
import type { Retention } from '../upkeep/retention.ts'
import { changeSecrets, countPlainRows } from '../upkeep/stored-secrets.ts'
import { monitorAccounts } from '../watch/account-monitor.ts'
import { listChannels } from '../watch/notifications/channels.ts'
import { startHeartbeat } from '../watch/notifications/heartbeat.ts'
import { startOutbox } from '../watch/notifications/outbox.ts'
import type { NotificationSender } from '../watch/notifications/send.ts'
import { listProblems, startWatch } from '../watch/store-statuses.ts'
import { JobRunner } from './runner.ts'

/** Erasures of commands without ERASURE_LEDGER and of killed processes are recorded within this time. */
const RECORD_INTERVAL_MS = 60_000

interface BackgroundParts {
  retention: Retention
  opened: OpenDatabase
  verifier: Omit<Verifier, 'database'>
  sender: Sender
  notificationSender: NotificationSender
  heartbeatUrl: Secret | null
  fetch: Fetch | undefined
  /** null: erasures are recorded in the database only */
  erasureLedger: ErasureLedger | null
  metrics: Metrics | null
  log: FastifyBaseLogger
}

export class Background {
  readonly #sender: Sender
  readonly jobs: JobRunner
  #stops: Stop[] = []
  #isClockWrong = false
  #isStopped = false

  constructor(parts: BackgroundParts) {
    const { opened, verifier, sender, notificationSender, heartbeatUrl, fetch, erasureLedger, metrics, log } =
      parts
    const { database, ready } = opened
    this.#sender = sender
    const onQueued = (endpointId: bigint) => sender.expect([endpointId])
    this.jobs = new JobRunner(database, log, { platform: verifier, onQueued, erasureLedger })
    const maintain = async () => {
      const maintenance = database.session((session) => runMaintenance(session, parts.retention))
      await Promise.all([maintenance, finishErasures(database)]).catch((error: Error) => {
        // A shutdown interrupts maintenance. The next start runs it again.
        if (!this.#isStopped) log.warn({ fault: error.name }, 'maintenance failed; it runs again in an hour')
      })
    }
    const record = async () => {
      await erasureLedger?.recordAll(database).catch((error: Error) => {
        if (this.#isStopped) return
        const reason = error instanceof LedgerUnwritable ? error.message : error.name
        log.error(`erasures could not be recorded in the ledger (${reason}); the next attempt is in a minute`)
      })
    }
    const start = () => {
      if (this.#isStopped) return
      const repetitions = [
        every('maintenance', MAINTENANCE_INTERVAL_MS, maintain),
        every('ledger', RECORD_INTERVAL_MS, record),
        every('checkpoint', CHECKPOINT_INTERVAL_MS, () => this.#addCheckpoint(database, log)),
        // Separate from the checkpoint, which hangs while commits wait for a missing standby.
        every('replication', CHECKPOINT_INTERVAL_MS, () => this.#checkReplication(database, log)),
        ...monitorAccounts(database, verifier),
        new ProfileFiller(database, verifier.lineApi).start(),
        ...new SegmentSync(database, verifier.lineApi).start(),
        every(
          'encryption',
          ENCRYPTION_INTERVAL_MS,
          async () => void (await encryptPlainSecrets(database, log)),
        ),
      ]
      this.#stops = repetitions.map(({ stop }) => stop)
      this.#stops.push(startWatch(database, log), startOutbox(database, notificationSender, log))
      if (heartbeatUrl !== null) this.#stops.push(startHeartbeat(database, heartbeatUrl, log, { fetch }))
      this.#sender.start()
      this.jobs.start()
      metrics?.watchProfileBacklog(() => countDueProfiles(database))
      metrics?.watchEndpoints(async () => ((await sender.isElected()) ? listBacklogs(database) : []))
      metrics?.watchNotifications(() => listChannels(database, ALL_ORGANIZATIONS))
      if (erasureLedger !== null) metrics?.watchErasureLedger(() => readLedgerDelay(database))
      if (database.secretKeys.currentId !== null) metrics?.watchPlainSecrets(() => countPlainRows(database))
      metrics?.watchAccounts(() => listProblems(database))
    }
    // If the database can never become ready, the process ends with that error.
    ready.then(start, () => undefined)
  }

  async stop(): Promise<void> {
    this.#isStopped = true
    await Promise.all([...this.#stops.map((stop) => stop()), this.#sender.stop(), this.jobs.stop()])
  }

  async #addCheckpoint(database: PostgresDatabase, log: FastifyBaseLogger): Promise<void> {
    await addCheckpoint(database)
    const skewSeconds = await readClockSkew(database)
    clockCompared.publish({ skewSeconds })
    const isWrong = Math.abs(skewSeconds) > CLOCK_SKEW_MAX_SECONDS
    if (isWrong && !this.#isClockWrong)
      log.warn({ skewSeconds }, "the database's clock differs from this machine's; run NTP on both")
    this.#isClockWrong = isWrong
  }

  async #checkReplication(database: PostgresDatabase, log: FastifyBaseLogger): Promise<void> {
    const before = database.replication
    const { state } = (await database.checkReplication()) ?? {}
    if (state === undefined || state === before) return
    if (state === 'synchronous') log.info('commits wait for the disk of a standby')
    else log.warn({ replication: state }, 'an acknowledged event may exist on one disk; run doctor')
  }
}

// Encrypts secrets that other programs have stored as plain text, which also work before that. Runs in every instance.

/** A pass reads three tables, which have a row per account, endpoint and channel. */
const ENCRYPTION_INTERVAL_MS = 20_000

/** Returns the number of encrypted values, 0 without keys. Throws DatabaseUnavailable. */
export async function encryptPlainSecrets(database: Transactions, log: FastifyBaseLogger): Promise<number> {
  if (database.secretKeys.currentId === null) return 0
  const { values, unchangedRows } = await changeSecrets(database, true)
  if (values > 0) log.info({ values }, 'encrypted secrets that were stored as plain text')
  if (unchangedRows > 0)
    log.warn(
      { rows: unchangedRows },
      'secrets stay plain text: another program has locked or restricted the rows',
    )
  return values
}
