/** An account that is verified against the simulated platform. */
import { beforeEach } from 'vitest'
import { addTenant, createTestDatabase, type Tenant } from './database.ts'
import { startPlatform } from './platform.ts'
import { type Answer, type Service, startApp } from './service.ts'

/** For a test file: a service, the platform that it calls, and their database. */
export async function setUpVerification() {
  const { database } = await createTestDatabase()
  const platform = await startPlatform()
  const service = await startApp(database, { config: { lineApiUrl: platform.url } })
  beforeEach(() => {
    platform.misbehave(null)
    platform.settings.isVerified = true
    platform.calls.length = 0
  })
  return {
    database,
    platform,
    service,
    /** An account that is set up correctly on the platform. */
    addVerifiable: async (columns: Parameters<typeof addTenant>[1] = {}): Promise<Tenant> => {
      const { channelSecret, channelAccessToken, botUserId } = platform.account
      const tenant = await addTenant(database, { channelSecret, channelAccessToken, botUserId, ...columns })
      platform.settings.webhook = { endpoint: `${service.url}/api/line/${tenant.accountId}`, active: true }
      return tenant
    },
    verify: (tenant: Tenant, body?: unknown, on: Service = service): Promise<Answer> =>
      on.call('POST', '/api/line-oa/verify', {
        headers: { ...tenant.headers, ...(body === undefined ? {} : { 'content-type': 'application/json' }) },
        ...(body === undefined ? {} : { body: typeof body === 'string' ? body : JSON.stringify(body) }),
      }),
  }
}
