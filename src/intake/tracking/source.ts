import type { SourceModule } from '../source.ts'
import { readStoredTrackingEvent } from './payload.ts'
import { addTrackingRoutes } from './routes.ts'

export const trackingSource: SourceModule = {
  name: 'tracking',
  isProven: false,
  // Anybody can send tracking events: a quarter of the others' memory, and one connection. A body of arrays in arrays takes 30 times
  // its size once it is parsed, so few are held at a time.
  share: {
    flushConnections: 1,
    maxEvents: 5_000,
    maxPayload: 16 * 1024 * 1024,
    maxBodyBytes: 16 * 1024 * 1024,
  },
  addRoutes: addTrackingRoutes,
  isOwnActWithoutContent: () => true,
  reparse: (content, occurredAtMs, _account, key) => readStoredTrackingEvent(content, occurredAtMs, key),
}
