import type { SourceModule } from '../source.ts'
import { readStoredTrackingEvent } from './payload.ts'
import { addTrackingRoutes } from './routes.ts'

export const trackingSource: SourceModule = {
  name: 'tracking',
  isProven: false,
  addRoutes: addTrackingRoutes,
  reparse: readStoredTrackingEvent,
}
