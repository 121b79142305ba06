/** A delivery that waits for a flush. Large deliveries are split into slices, so that other accounts wait for one slice only. */
import type { ForwardedDelivery, IntakeEvent } from './event.ts'
import type { Admission, AdmittedEvent, Outcome } from './flush-batch.ts'

/** People in the events of a slice: about 3 ms of a flush. Most deliveries are far smaller. */
const SLICE_MAX_PEOPLE = 128
/** UTF-16 units of payload: 256 Ki ÷ 40 MB/s = 6 ms of a flush. A single event may be larger. */
const SLICE_MAX_PAYLOAD = 256 * 1024

interface Weight {
  /** People in the events, at least one per event. */
  people: number
  /** UTF-16 units. */
  payloadLength: number
}

export interface QueuedDelivery extends Weight {
  accountId: Admission['accountId']
  events: AdmittedEvent[]
  resolve: (outcomes: Outcome[]) => void
  reject: (error: unknown) => void
}

export interface Slice extends Weight {
  events: IntakeEvent[]
}

export function sliceEvents(events: IntakeEvent[]): Slice[] {
  const slices: Slice[] = []
  let slice: Slice | undefined
  for (const event of events) {
    const people = 1 + event.otherUserIds.length
    const payloadLength = event.payload?.length ?? 0
    const fits =
      slice !== undefined &&
      slice.people + people <= SLICE_MAX_PEOPLE &&
      slice.payloadLength + payloadLength <= SLICE_MAX_PAYLOAD
    if (slice === undefined || !fits) {
      slice = { events: [], people: 0, payloadLength: 0 }
      slices.push(slice)
    }
    slice.events.push(event)
    slice.people += people
    slice.payloadLength += payloadLength
  }
  return slices
}

export function queuedDelivery(
  admission: Admission,
  { events, people, payloadLength }: Slice,
  forwarded: ForwardedDelivery | null,
): { delivery: QueuedDelivery; outcomes: Promise<Outcome[]> } {
  const delivery: QueuedDelivery = {
    accountId: admission.accountId,
    events: events.map((event) => ({ admission, event, forwarded })),
    people,
    payloadLength,
    resolve: () => undefined,
    reject: () => undefined,
  }
  const outcomes = new Promise<Outcome[]>((resolve, reject) => Object.assign(delivery, { resolve, reject }))
  return { delivery, outcomes }
}

export function settle(deliveries: QueuedDelivery[], outcomes: Outcome[]): void {
  let start = 0
  for (const { events, resolve } of deliveries) {
    resolve(outcomes.slice(start, start + events.length))
    start += events.length
  }
}
