/** Sends simulated deliveries to a webhook at a fixed rate, as the platform does. */
import { setTimeout as sleep } from 'node:timers/promises'
import { type Delivery, deliveries, type TrafficOptions } from './deliveries.ts'
import type { SimulatedPlatform } from './platform.ts'

/** Maximum number of deliveries that wait for a response. LINE opens more connections, but one machine cannot. */
const IN_FLIGHT_MAX = 256
/** LINE waits this long for a response. */
const RESPONSE_TIMEOUT_MS = 2_000
const TICK_MS = 20

interface SendOptions extends TrafficOptions {
  /** deliveries per second */
  rate: number
  /** number of deliveries; Infinity: until the signal */
  count: number
  /** share of deliveries that the platform fails to make, 0 to 1 */
  hidden: number
}

export interface Tally {
  deliveries: number
  /** distinct events in them */
  events: number
  repeatedDeliveries: number
  /** deliveries that were not made */
  hiddenDeliveries: number
  /** responses by status; `none` if there was no response */
  answers: Record<string, number>
}

/** The rate does not depend on response times while fewer than IN_FLIGHT_MAX deliveries are in flight. */
export async function sendDeliveries(
  platform: SimulatedPlatform,
  address: string,
  { rate, count, hidden, ...traffic }: SendOptions,
  onProgress: (tally: Tally) => void,
  signal: AbortSignal,
): Promise<Tally> {
  const tally: Tally = { deliveries: 0, events: 0, repeatedDeliveries: 0, hiddenDeliveries: 0, answers: {} }
  const source = deliveries(platform, traffic)
  const inFlight = new Set<Promise<void>>()
  const startedAtMs = performance.now()
  while (tally.deliveries < count && !signal.aborted) {
    const due = Math.min(count, Math.ceil(((performance.now() - startedAtMs) / 1000) * rate))
    while (tally.deliveries < due && inFlight.size < IN_FLIGHT_MAX && !signal.aborted) {
      const delivery = source.next().value
      if (Math.random() < hidden) {
        tally.hiddenDeliveries += 1
        tally.deliveries += 1
        continue
      }
      countDelivery(tally, delivery)
      const sending: Promise<void> = send(address, delivery).then((status) => {
        tally.answers[status] = (tally.answers[status] ?? 0) + 1
        inFlight.delete(sending)
      })
      inFlight.add(sending)
    }
    onProgress(tally)
    await sleep(TICK_MS)
  }
  await Promise.all(inFlight)
  onProgress(tally)
  return tally
}

function countDelivery(tally: Tally, { isRepetition, eventCount }: Delivery): void {
  tally.deliveries += 1
  if (isRepetition) tally.repeatedDeliveries += 1
  else tally.events += eventCount
}

async function send(address: string, { body, signature }: Delivery): Promise<string> {
  try {
    const response = await fetch(address, {
      method: 'POST',
      headers: { 'content-type': 'application/json; charset=utf-8', 'x-line-signature': signature },
      body,
      signal: AbortSignal.timeout(RESPONSE_TIMEOUT_MS),
    })
    await response.arrayBuffer()
    return String(response.status)
  } catch {
    return 'none'
  }
}
