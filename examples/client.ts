/**
 * A typed client of the API. Copy this file and openapi.d.ts, and run `npm install openapi-fetch`.
 * The paths, parameters and bodies of every request are checked by the compiler:
 *
 *   const client = audienceClient('https://oa.example.com', { clientId, clientSecret, apiKey })
 *   for await (const { id, tags } of members(client, { relationship: 'following' })) {
 *     const body = { tags: [...tags, 'vip'] }
 *     const { data, error } = await client.PUT('/api/audience/{id}', { params: { path: { id } }, body })
 *   }
 */
import createClient, { type Client } from 'openapi-fetch'
import type { components, operations, paths } from './openapi.d.ts'

export type Member = components['schemas']['Member']
export type AudienceClient = Client<paths, 'application/json'>
export type Filters = NonNullable<operations['listAudience']['parameters']['query']>

export interface Credentials {
  clientId: string
  clientSecret: string
  apiKey: string
}

export function audienceClient(baseUrl: string, credentials: Credentials): AudienceClient {
  return createClient<paths, 'application/json'>({
    baseUrl,
    headers: {
      'x-client-id': credentials.clientId,
      'x-client-secret': credentials.clientSecret,
      'x-api-key': credentials.apiKey,
    },
  })
}

/** Every member that matches, page by page. */
export async function* members(client: AudienceClient, filters: Filters = {}): AsyncGenerator<Member> {
  for (let cursor = filters.cursor; ; ) {
    const query = cursor === undefined ? filters : { ...filters, cursor }
    const { data: page, error } = await client.GET('/api/audience', { params: { query } })
    if (error) throw new Error(`${error.statusCode} ${error.message} (request ${error.requestId})`)
    if (page === null) throw new Error('The API key is not active.')
    for (const member of page.data) if (!('deletedAt' in member)) yield member
    if (page.nextCursor === null) return
    cursor = page.nextCursor
  }
}
