/** What waits for a flush: a delivery, or a slice of a large one, so that other accounts wait for a slice only. */
import type { ForwardedDelivery, IntakeEvent } from './event.ts'
import type { Admission, AdmittedEvent, Outcome } from './flush.ts'

/** People whom the events of a slice name: some 3 ms of a flush. Ordinary deliveries are far smaller. */
const SLICE_MAX_PEOPLE = 128
/** UTF-16 units of payload: at 40 MB/s, 6 ms of a flush. A single event may be larger. */
const SLICE_MAX_PAYLOAD = 256 * 1024

export interface QueuedDelivery {
  accountId: Admission['accountId']
  events: AdmittedEvent[]
  /** People whom its events name, at least one each. */
  people: number
  /** UTF-16 units. */
  payloadLength: number
  resolve: (outcomes: Outcome[]) => void
  reject: (error: unknown) => void
}

const peopleOf = ({ otherUserIds }: IntakeEvent) => 1 + otherUserIds.length
const payloadLengthOf = ({ payload }: IntakeEvent) => payload?.length ?? 0

/** Splits the events of one delivery, in their order. Most deliveries are one slice. */
export function sliceEvents(events: IntakeEvent[]): IntakeEvent[][] {
  const slices: IntakeEvent[][] = []
  let people = 0
  let payloadLength = 0
  for (const event of events) {
    people += peopleOf(event)
    payloadLength += payloadLengthOf(event)
    if (slices.length === 0 || people > SLICE_MAX_PEOPLE || payloadLength > SLICE_MAX_PAYLOAD) {
      slices.push([])
      people = peopleOf(event)
      payloadLength = payloadLengthOf(event)
    }
    slices.at(-1)?.push(event)
  }
  return slices
}

export function queuedDelivery(
  admission: Admission,
  events: IntakeEvent[],
  forwarded: ForwardedDelivery | null,
): { delivery: QueuedDelivery; outcomes: Promise<Outcome[]> } {
  const delivery: QueuedDelivery = {
    accountId: admission.accountId,
    events: events.map((event) => ({ admission, event, forwarded })),
    people: events.reduce((sum, event) => sum + peopleOf(event), 0),
    payloadLength: events.reduce((sum, event) => sum + payloadLengthOf(event), 0),
    resolve: () => undefined,
    reject: () => undefined,
  }
  const outcomes = new Promise<Outcome[]>((resolve, reject) => Object.assign(delivery, { resolve, reject }))
  return { delivery, outcomes }
}

/** Hands each delivery the outcomes of its own events. */
export function settle(deliveries: QueuedDelivery[], outcomes: Outcome[]): void {
  let start = 0
  for (const { events, resolve } of deliveries) {
    resolve(outcomes.slice(start, start + events.length))
    start += events.length
  }
}
