/** Fastify with graphile-worker: one job per event, deduplicated by its key while the job is queued. A worker completes the jobs. */
import { Logger, run } from 'graphile-worker'
import { serve } from './peer.mjs'

const runner = await run({
  connectionString: process.env.DATABASE_URL,
  maxPoolSize: 16,
  concurrency: 8,
  logger: new Logger(() => () => undefined),
  taskList: { event: async () => undefined },
})

await serve(async (events) => {
  for (const event of events) await runner.addJob('event', event, { jobKey: event.webhookEventId })
})
