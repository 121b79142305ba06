import type { SourceModule } from '../source.ts'
import { LINE } from './channel.ts'
import { readLineEvent } from './payload.ts'
import { addLineRoutes } from './routes.ts'

export const lineSource: SourceModule = {
  name: LINE,
  isProven: true,
  addRoutes: addLineRoutes,
  reparse: (content, occurredAtMs) => readLineEvent(content, occurredAtMs),
}
