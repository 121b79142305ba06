/** A Varnish with its default configuration, which caches each response that does not forbid it for two minutes. */
import { beforeAll, describe, expect, it } from 'vitest'
import { addTenant } from '../support/database.ts'
import { setUpService } from '../support/service.ts'
import { canRunVarnish, startVarnish } from '../support/varnish.ts'

describe.runIf(canRunVarnish('a shared cache in front of the service'))(
  'a default Varnish in front of the service',
  async () => {
    const { database, service, tenant } = await setUpService()
    const tenants = [tenant, await addTenant(database)]
    const userIds = await Promise.all(tenants.map(async (each) => (await service.addFollower(each)).userId))
    let url = ''
    beforeAll(async () => {
      const varnish = await startVarnish(new URL(service.url).host)
      url = varnish.url
      return varnish.stop
    })

    it.each(['application/json', 'application/x-ndjson', 'text/csv'])(
      'shows no client the members of another, as %s',
      async (accept) => {
        for (let round = 0; round < 2; round += 1) {
          for (const [no, { headers }] of tenants.entries()) {
            const answer = await fetch(`${url}/api/audience`, { headers: { ...headers, accept } })
            const text = await answer.text()
            expect(answer.headers.get('via')).toContain('varnish')
            expect(userIds.filter((userId) => text.includes(userId))).toEqual([userIds[no]])
          }
          expect((await fetch(`${url}/api/audience`, { headers: { accept } })).status).toBe(401)
        }
      },
    )

    it('shows what has changed, and a page to a client that was refused before', async () => {
      const query = `${url}/api/audience?tag=changed`
      expect((await fetch(query)).status).toBe(401)
      const list = async () =>
        (await (await fetch(query, { headers: tenant.headers })).json()) as { data: unknown[] }
      expect((await list()).data).toEqual([])
      const path = `/api/audience/${(await service.member(tenant, userIds[0] as string))?.id}`
      const headers = { ...tenant.headers, 'content-type': 'application/json', 'if-match': 'W/"1"' }
      expect((await fetch(url + path, { method: 'PUT', headers, body: '{"tags":["changed"]}' })).status).toBe(
        200,
      )
      expect((await list()).data).toHaveLength(1)
    })

    it('asks the service for each check of its health', async () => {
      const health = async () => (await fetch(`${url}/api/health`)).headers.get('x-varnish')
      await health()
      // A response from the cache has a second number, that of the request for which it was stored.
      expect(await health()).toMatch(/^\d+$/)
    })
  },
)
