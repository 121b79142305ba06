/**
 * Periodic work that starts once the database is ready: profiles, checks of accounts, messages about them, the heartbeat, jobs, maintenance, pending
 * erasures, change marks, encryption of secrets, and deliveries to endpoints.
 */
import type { FastifyBaseLogger } from 'fastify'
import type { Verifier } from '../accounts/verify.ts'
import { countDueProfiles } from '../audience/due-profiles.ts'
import type { ErasureLedger } from '../audience/erasure-ledger.ts'
import { addCheckpoint, CHECKPOINT_INTERVAL_MS } from '../audience/feed-statement.ts'
import { LedgerUnwritable } from '../audience/ledger-writer.ts'
import { finishErasures } from '../audience/pending-erasure.ts'
import { ProfileFiller } from '../audience/profiles.ts'
import type { Secret } from '../config/secret.ts'
import type { Sender } from '../endpoints/sender.ts'
import { every, type Repetition, type Stop } from '../every.ts'
import { clockCompared } from '../observability/facts.ts'
import type { Metrics } from '../observability/metrics.ts'
import { listProblems } from '../operator/accounts/store-statuses.ts'
import { listBacklogs } from '../operator/endpoints/endpoint-health.ts'
import { readLedgerDelay } from '../operator/erasures.ts'
import { countNotifications } from '../operator/notifications/channels.ts'
import type { NotificationSender } from '../operator/notifications/send.ts'
import { countPlainRows } from '../operator/secrets.ts'
import { CLOCK_SKEW_MAX_SECONDS, readClockSkew } from '../postgres/clock.ts'
import type { OpenDatabase } from '../postgres/pool/open.ts'
import type { PostgresDatabase } from '../postgres/pool/postgres-database.ts'
import { JobRunner } from './jobs.ts'
import { MAINTENANCE_INTERVAL_MS, runMaintenance } from './maintenance/maintenance.ts'
import type { Retention } from './maintenance/retention.ts'
import { AccountMonitor } from './monitoring/account-monitor.ts'
import { startHeartbeat } from './notifications/heartbeat.ts'
import { startOutbox } from './notifications/outbox.ts'
import { startWatch } from './notifications/watch.ts'
import { ENCRYPTION_INTERVAL_MS, encryptPlainSecrets } from './secret-encryption.ts'

/** Erasures of commands without ERASURE_LEDGER and of killed processes are recorded within this time. */
const RECORD_INTERVAL_MS = 60_000

export interface BackgroundParts {
  retention: Retention
  opened: OpenDatabase
  verifier: Omit<Verifier, 'database'>
  sender: Sender
  notificationSender: NotificationSender
  /** null: nothing is requested */
  heartbeatUrl: Secret | null
  /** null: erasures are recorded in the database only */
  erasureLedger: ErasureLedger | null
  metrics: Metrics | null
  log: FastifyBaseLogger
}

export class Background {
  readonly #monitor: AccountMonitor
  readonly #sender: Sender
  readonly jobs: JobRunner
  /** A shutdown waits for these. */
  #awaited: Repetition[] = []
  #notifying: Stop[] = []
  #others: Repetition[] = []
  #isClockWrong = false
  #isStopped = false

  constructor(parts: BackgroundParts) {
    const {
      retention,
      opened,
      verifier,
      sender,
      notificationSender,
      heartbeatUrl,
      erasureLedger,
      metrics,
      log,
    } = parts
    const { database, ready } = opened
    this.#monitor = new AccountMonitor(database, verifier)
    this.#sender = sender
    const onQueued = (endpointId: bigint) => sender.expect([endpointId])
    this.jobs = new JobRunner(database, log, { platform: verifier, onQueued, erasureLedger })
    const maintain = async () => {
      const maintenance = database.session((session) => runMaintenance(session, retention))
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
      this.#others = [
        every(MAINTENANCE_INTERVAL_MS, maintain),
        every(RECORD_INTERVAL_MS, record),
        every(CHECKPOINT_INTERVAL_MS, () => this.#addCheckpoint(database, log)),
        // Separate from the checkpoint, which hangs while commits wait for a missing standby.
        every(CHECKPOINT_INTERVAL_MS, () => this.#checkReplication(database, log)),
      ]
      this.#awaited = [
        new ProfileFiller(database, verifier.lineApi).start(),
        every(ENCRYPTION_INTERVAL_MS, async () => void (await encryptPlainSecrets(database, log))),
      ]
      this.#monitor.start()
      this.#notifying = [startWatch(database, log), startOutbox(database, notificationSender, log)]
      if (heartbeatUrl !== null) this.#notifying.push(startHeartbeat(database, heartbeatUrl, log))
      this.#sender.start()
      this.jobs.start()
      metrics?.watchProfileBacklog(() => countDueProfiles(database))
      metrics?.watchEndpoints(() => listBacklogs(database))
      metrics?.watchNotifications(() => countNotifications(database))
      if (erasureLedger !== null) metrics?.watchErasureLedger(() => readLedgerDelay(database))
      if (database.secretKeys.currentId !== null) metrics?.watchPlainSecrets(() => countPlainRows(database))
      metrics?.watchAccounts(() => listProblems(database))
    }
    // If the database can never become ready, the process ends with that error.
    ready.then(start, () => undefined)
  }

  async stop(): Promise<void> {
    this.#isStopped = true
    for (const { stop } of this.#others) void stop()
    const notifying = this.#notifying.map((stop) => stop())
    const awaited = this.#awaited.map(({ stop }) => stop())
    await Promise.all([...awaited, this.#monitor.stop(), ...notifying, this.#sender.stop(), this.jobs.stop()])
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
