import type { SourceModule } from '../source.ts'
import { isOwnAct, readLineEvent } from './line-payload.ts'
import { addLineRoutes } from './line-routes.ts'
import { LINE } from './line-signature.ts'

export const lineSource: SourceModule = {
  name: LINE,
  isProven: true,
  share: {
    flushConnections: 2,
    maxEvents: 20_000,
    maxPayload: 64 * 1024 * 1024,
    maxBodyBytes: 96 * 1024 * 1024,
  },
  addRoutes: addLineRoutes,
  isOwnActWithoutContent: (kind) => isOwnAct({ type: kind }),
  reparse: (content, occurredAtMs) => readLineEvent(content, occurredAtMs),
}
