/** What runs beside requests once the database is ready: profiles, maintenance, pending erasures. */
import type { FastifyBaseLogger } from 'fastify'
import { countDueProfiles } from './audience/due-profiles.ts'
import { finishErasures } from './audience/pending-erasure.ts'
import { ProfileFiller } from './audience/profiles.ts'
import type { LineApi } from './line-api/client.ts'
import { MAINTENANCE_INTERVAL_MS, runMaintenance } from './maintenance/maintenance.ts'
import type { Retention } from './maintenance/retention.ts'
import type { Metrics } from './observability/metrics.ts'
import type { OpenDatabase } from './postgres/open.ts'

export class Background {
  readonly #profiles: ProfileFiller
  #timer: NodeJS.Timeout | undefined
  #isStopped = false

  constructor(
    retention: Retention,
    { database, ready }: OpenDatabase,
    lineApi: LineApi,
    metrics: Metrics | null,
    log: FastifyBaseLogger,
  ) {
    this.#profiles = new ProfileFiller(database, lineApi)
    const maintain = () => {
      const maintenance = database.session((session) => runMaintenance(session, retention))
      Promise.all([maintenance, finishErasures(database)]).catch((error: Error) => {
        // A shutdown interrupts maintenance. The next start runs it again.
        if (!this.#isStopped) log.warn({ fault: error.name }, 'maintenance failed; it runs again in an hour')
      })
    }
    const start = () => {
      if (this.#isStopped) return
      maintain()
      this.#timer = setInterval(maintain, MAINTENANCE_INTERVAL_MS)
      this.#profiles.start()
      metrics?.watchProfileBacklog(() => countDueProfiles(database))
    }
    // If the database never becomes ready, the process ends with that error.
    ready.then(start, () => undefined)
  }

  async stop(): Promise<void> {
    this.#isStopped = true
    clearInterval(this.#timer)
    await this.#profiles.stop()
  }
}
