import { Counter, Gauge, type Registry } from 'prom-client'
import { heartbeatSent, notificationResponded } from './facts.ts'

const FORMATS = ['slack', 'webhook', 'email']
const OUTCOMES = ['accepted', 'rejected', 'no_response'] as const

/** Counts attempts and heartbeats. Returns a function that ends it. */
export function countNotificationFacts(registry: Registry): () => void {
  const attempts = new Counter({
    name: 'oa_audience_notification_attempts_total',
    help: 'Attempts to send a notification by format and outcome: accepted, rejected, or no_response',
    labelNames: ['format', 'outcome'] as const,
    registers: [registry],
  })
  const heartbeats = new Counter({
    name: 'oa_audience_heartbeats_total',
    help: 'Requests to HEARTBEAT_URL by outcome: accepted, or failed (twice)',
    labelNames: ['outcome'] as const,
    registers: [registry],
  })
  for (const format of FORMATS) for (const outcome of OUTCOMES) attempts.inc({ format, outcome }, 0)
  for (const outcome of ['accepted', 'failed'] as const) heartbeats.inc({ outcome }, 0)
  const subscriptions = [
    notificationResponded.subscribe((facts) => attempts.inc(facts)),
    heartbeatSent.subscribe((facts) => heartbeats.inc(facts)),
  ]
  return () => {
    for (const end of subscriptions) end()
  }
}

export interface NotificationCounts {
  format: string
  pending: number
  failed: number
}

/** Returns a function that replaces the counts of all formats. Null: the counts are unknown. */
export function notificationGauges(registry: Registry): (counts: NotificationCounts[] | null) => void {
  const gauge = (name: string, help: string) =>
    new Gauge({ name, help, aggregator: 'max', labelNames: ['format'] as const, registers: [registry] })
  const pending = gauge('oa_audience_notifications_pending', 'Notifications that are not sent yet')
  const failed = gauge(
    'oa_audience_notifications_failed',
    'Notifications of the last 30 days that failed permanently',
  )
  return (counts) => {
    for (const each of [pending, failed]) each.reset()
    if (counts === null) return
    // Prometheus sees no increase in a series that first appears with 1, so an alert would miss the first failure.
    for (const each of [pending, failed]) for (const format of FORMATS) each.set({ format }, 0)
    for (const { format, ...count } of counts) {
      pending.set({ format }, count.pending)
      failed.set({ format }, count.failed)
    }
  }
}
