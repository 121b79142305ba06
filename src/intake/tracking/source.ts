import type { SourceModule } from '../source.ts'
import { readStoredTrackingEvent } from './payload.ts'
import { addTrackingRoutes } from './routes.ts'

export const trackingSource: SourceModule = {
  name: 'tracking',
  isProven: false,
  // Anybody can send tracking events: a quarter of the others' memory, and one connection.
  share: { flushConnections: 1, maxEvents: 5_000, maxPayload: 16 * 1024 * 1024 },
  addRoutes: addTrackingRoutes,
  isOwnActWithoutContent: () => true,
  reparse: (content, occurredAtMs, _account, key) => readStoredTrackingEvent(content, occurredAtMs, key),
}
