import { InvalidEvent } from '../event.ts'
import type { SourceModule } from '../source.ts'
import { belongsToOtherInbox, readWebhook } from './mbox-payload.ts'
import { addMboxRoutes } from './mbox-routes.ts'

export const mboxSource: SourceModule = {
  name: 'mbox',
  isProven: true,
  share: {
    flushConnections: 1,
    maxEvents: 20_000,
    maxPayload: 64 * 1024 * 1024,
    maxBodyBytes: 96 * 1024 * 1024,
  },
  addRoutes: addMboxRoutes,
  // Only the content has the inbox of the event.
  needsContent: ({ chatInboxId }) => chatInboxId !== null,
  // Only the content has the type of a message.
  isOwnActWithoutContent: () => false,
  reparse: (content, occurredAtMs, { chatInboxId }) => {
    if (belongsToOtherInbox(content, chatInboxId)) {
      throw new InvalidEvent("the event belongs to another inbox than the account's")
    }
    return readWebhook(content, null, occurredAtMs)
  },
}
