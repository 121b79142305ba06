/** Fastify with pg-boss: one job per event, deduplicated by its key while the job is queued. A worker completes the jobs. */
import PgBoss from 'pg-boss'
import { serve } from './peer.mjs'

const boss = new PgBoss({ connectionString: process.env.DATABASE_URL, max: 16 })
boss.on('error', console.error)
await boss.start()
await boss.createQueue('event', { policy: 'short' })
await boss.work('event', { batchSize: 500, pollingIntervalSeconds: 0.5 }, async () => undefined)

await serve(async (events) => {
  for (const event of events) await boss.send('event', event, { singletonKey: event.webhookEventId })
})
