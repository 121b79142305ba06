import type { Source } from '../source.ts'
import { LINE } from './channel.ts'
import { readLineEvent } from './payload.ts'
import { addLineRoutes } from './routes.ts'

export const lineSource: Source = {
  name: LINE,
  isProven: true,
  addRoutes: addLineRoutes,
  reparse: (content, occurredAtMs) => readLineEvent(content, occurredAtMs),
}
