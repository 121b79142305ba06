/** An account that is verified against the simulated platform. */

import { beforeEach } from 'vitest'
import { type SimulatedPlatform, simulatePlatform } from '../../tools/simulator/platform.ts'
import type { TextDatabase } from '../../tools/text-database.ts'
import { atEnd } from './at-end.ts'
import { addTenant, createTestDatabase, type Tenant } from './database.ts'
import { type Answer, type Service, startApp } from './service.ts'

interface Verification {
  database: TextDatabase
  platform: SimulatedPlatform
  service: Service
  /** an account that is set up correctly on the platform */
  addVerifiable: (columns?: Parameters<typeof addTenant>[1]) => Promise<Tenant>
  verify: (tenant: Tenant, body?: unknown, on?: Service) => Promise<Answer>
}

/** For a test file: a service, the platform that it calls, and their database. */
export async function setUpVerification(): Promise<Verification> {
  const { database } = await createTestDatabase()
  const platform = await simulatePlatform()
  const service = await startApp(database, { config: { lineApiUrl: platform.url } })
  beforeEach(() => {
    platform.misbehave(null)
    platform.settings.isVerified = true
    platform.calls.length = 0
  })
  atEnd(() => platform.close())
  return {
    database,
    platform,
    service,
    addVerifiable: async (columns = {}) => {
      const { channelSecret, channelAccessToken, botUserId } = platform.account
      const tenant = await addTenant(database, { channelSecret, channelAccessToken, botUserId, ...columns })
      platform.settings.webhook = { endpoint: `${service.url}/api/line/${tenant.accountId}`, active: true }
      return tenant
    },
    verify: (tenant, body, on = service) =>
      on.call('POST', '/api/line-oa/verify', {
        headers: { ...tenant.headers, ...(body === undefined ? {} : { 'content-type': 'application/json' }) },
        ...(body === undefined ? {} : { body: typeof body === 'string' ? body : JSON.stringify(body) }),
      }),
  }
}
