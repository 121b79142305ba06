import type { SourceModule } from '../source.ts'
import { readStoredTrackingEvent } from './tracking-payload.ts'
import { addTrackingRoutes } from './tracking-routes.ts'

export const trackingSource: SourceModule = {
  name: 'tracking',
  isProven: false,
  // Anybody can send tracking events, so they get a quarter of the memory of other sources, and one connection. The worst body takes
  // 24 times its size when it is parsed (measured: a list of {"99":0}), so few bytes of bodies are held.
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
