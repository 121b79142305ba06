/** Deliveries that the stored channel secret does not sign, and what is stored of them after the secret has changed. */
import { expect } from 'vitest'
import { Secret } from '../../src/config/secret.ts'
import { signLine } from '../../src/line-api/line-signature.ts'
import { lineBody, lineEvent, randomUserId } from '../../tools/simulator/events.ts'
import type { TextDatabase } from '../../tools/text-database.ts'
import { addTenant, type Tenant } from './database.ts'
import { load } from './load.ts'
import { type Service, startApp } from './service.ts'

export const NEW_SECRET = 'f'.repeat(32)

export const message = (userId = randomUserId()) =>
  lineEvent('message', userId, { replyToken: 'r'.repeat(32) })

interface Sent {
  address?: string
  secret?: string
  /** The body is padded to this length. */
  bytes?: number
  to?: Service
}

/** A service that believes X-Forwarded-For, and steps on its database. */
export async function startRefusing(database: TextDatabase, now?: () => number) {
  const start = () => startApp(database, { config: { trustProxy: ['loopback'] }, ...(now && { now }) })
  const service = await start()

  /** Sends a delivery that the new secret signs, and expects 403. */
  const refuse = async (
    tenant: Tenant,
    events: unknown[],
    { address = '192.0.2.1', secret = NEW_SECRET, bytes = 0, to = service }: Sent = {},
  ) => {
    const body = lineBody(tenant.botUserId, events)
    const padded = body.slice(0, -1).padEnd(bytes - 1) + body.slice(-1)
    const headers = { 'x-line-signature': signLine(padded, new Secret(secret)), 'x-forwarded-for': address }
    const { status } = await to.call('POST', `/api/line/${tenant.accountId}`, { headers, body: padded })
    expect(status).toBe(403)
  }

  const peopleOf = async ({ accountId }: Tenant) => {
    const text = 'select user_id from audience_member where channel_oa_id = $1'
    const rows = await load<{ user_id: string }>(database, text, [accountId])
    return rows.map(({ user_id }) => user_id).sort()
  }

  return {
    ...{ service, start, refuse, peopleOf },
    addTenants: (count: number) => Promise.all(Array.from({ length: count }, () => addTenant(database))),
    /** Sends `count` deliveries, each of a person of its own. Returns the people in the order of their deliveries. */
    refuseMany: async (tenant: Tenant, count: number, sent: Sent = {}) => {
      const people = Array.from({ length: count }, randomUserId)
      for (let first = 0; first < count; first += 60) {
        const batch = people.slice(first, first + 60)
        await Promise.all(batch.map((userId) => refuse(tenant, [message(userId)], sent)))
      }
      return people
    },
    changeSecret: (tenants: Tenant[], secret = NEW_SECRET) =>
      load(database, 'update official_account set channel_secret = $2 where id = any ($1)', [
        tenants.map(({ accountId }) => accountId),
        secret,
      ]),
    /** Waits until the members of the account are these people. */
    stores: (tenant: Tenant, people: string[]) =>
      expect.poll(() => peopleOf(tenant)).toEqual(people.toSorted()),
    /** The numbers of deliveries in the activity log. */
    takenOf: async ({ accountId }: Tenant) => {
      const rows = await load<{ taken: number }>(
        database,
        `select (changes->>'deliveries')::int as taken from activity
          where channel_oa_id = $1 and action = 'account.deliveries_taken' order by 1`,
        [accountId],
      )
      return rows.map(({ taken }) => taken)
    },
  }
}
