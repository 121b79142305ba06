/** GET /api/audience page by page. */
import { expect } from 'vitest'
import type { Tenant } from './database.ts'
import type { Answer, Service } from './service.ts'

/** A member, or in a delta feed the tombstone of one. */
export interface Listed {
  id: string
  userId: string
  updatedAt: string
  deletedAt?: string
}

export const listPage = (service: Service, tenant: Tenant, query: string): Promise<Answer> =>
  service.call('GET', `/api/audience?${query}`, { headers: tenant.headers })

/** The pages of a walk, each requested when the one before it has been used. */
export async function* pagesOf(
  service: Service,
  tenant: Tenant,
  query: string,
  limit: number,
): AsyncGenerator<Listed[]> {
  for (let cursor: string | null = ''; cursor !== null; ) {
    const position: string = cursor && `&cursor=${cursor}`
    const answer = await listPage(service, tenant, `limit=${limit}&${query}${position}`)
    expect(answer.status, answer.text).toBe(200)
    yield answer.json.data
    cursor = answer.json.nextCursor
  }
}

/** All that a walk returns, with up to `limit` entries on each page. */
export async function walk(service: Service, tenant: Tenant, query: string, limit = 7): Promise<Listed[]> {
  const seen: Listed[] = []
  for await (const page of pagesOf(service, tenant, query, limit)) seen.push(...page)
  return seen
}
