import type { Source } from '../source.ts'
import { readStoredTrackingEvent } from './payload.ts'
import { addTrackingRoutes } from './routes.ts'

export const trackingSource: Source = {
  name: 'tracking',
  isProven: false,
  addRoutes: addTrackingRoutes,
  reparse: readStoredTrackingEvent,
}
