/** How long deliveries of one account take while others use the service. */
import { setTimeout as sleep } from 'node:timers/promises'
import { expect } from 'vitest'
import { lineEvent, randomUserId } from '../../tools/simulator/events.ts'
import type { Tenant } from './database.ts'
import { signedDelivery } from './service.ts'

/** Deliveries measured, one every 20 ms: few enough that they queue behind each other only if something else holds them up. */
const DELIVERIES = 250
const IDLE_DELIVERIES = 100
const DELIVERY_INTERVAL_MS = 20

/** Returns the 95th percentile, in milliseconds, or the given one. */
export async function measureDeliveries(
  url: string,
  tenant: Tenant,
  percentile = 95,
  count = DELIVERIES,
): Promise<number> {
  const latenciesMs = await Promise.all(
    Array.from({ length: count }, async (_, no) => {
      const { path, init } = signedDelivery(tenant, [lineEvent('message', randomUserId())])
      await sleep(no * DELIVERY_INTERVAL_MS)
      const startedAtMs = performance.now()
      const answer = await fetch(url + path, init)
      expect(answer.status).toBe(200)
      await answer.arrayBuffer()
      return performance.now() - startedAtMs
    }),
  )
  latenciesMs.sort((a, b) => a - b)
  return latenciesMs[Math.floor((count * percentile) / 100)] as number
}

/** The same of a service that does nothing else, after a round that has warmed it up. */
export async function measureIdle(url: string, tenant: Tenant, percentile = 95): Promise<number> {
  await measureDeliveries(url, tenant, percentile, IDLE_DELIVERIES)
  return measureDeliveries(url, tenant, percentile, IDLE_DELIVERIES)
}
