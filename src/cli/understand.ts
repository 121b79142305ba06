/** Parses a stored event again, with the parser of the source that received it. */
import { InvalidEvent } from '../intake/event.ts'
import { readLineEvent } from '../intake/line/payload.ts'
import { isElsewhere, readWebhook } from '../intake/mbox/payload.ts'
import type { Understand } from '../intake/retry.ts'
import { readStoredTrackingEvent } from '../intake/tracking/payload.ts'

export const understand: Understand = (source, payload, occurredAtMs, chatInboxId) => {
  const value: unknown = JSON.parse(payload)
  switch (source) {
    case 'line':
      return readLineEvent(value, occurredAtMs)
    case 'mbox':
      if (isElsewhere(value, chatInboxId)) throw new InvalidEvent("it is of another inbox than the account's")
      return readWebhook(value, undefined, occurredAtMs)
    case 'tracking':
      return readStoredTrackingEvent(value, occurredAtMs)
  }
}
