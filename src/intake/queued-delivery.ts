/** A delivery on its way through a flush. */
import type { AccountId } from '../accounts/account.ts'
import type { AdmittedEvent, Outcome } from './flush.ts'

export interface QueuedDelivery {
  accountId: AccountId
  events: AdmittedEvent[]
  /** People whom its events name, at least one each. */
  people: number
  /** UTF-16 units. */
  payloadLength: number
  resolve: (outcomes: Outcome[]) => void
  reject: (error: unknown) => void
}

/** Hands each delivery the outcomes of its own events. */
export function settle(deliveries: QueuedDelivery[], outcomes: Outcome[]): void {
  let start = 0
  for (const { events, resolve } of deliveries) {
    resolve(outcomes.slice(start, start + events.length))
    start += events.length
  }
}
