/** No client ever sees another's people: by the text of every statement, and by trying every door with every key. */
import { readdirSync, readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { lineEvent } from '../tools/simulator/events.ts'
import { addCredentials, addTenant, type Tenant } from './support/database.ts'
import { setUpFile } from './support/service.ts'

const { database, service } = await setUpFile()

describe('every statement over members', () => {
  const SRC = fileURLToPath(new URL('../src', import.meta.url))
  const files = readdirSync(SRC, { recursive: true, encoding: 'utf8' })
    .filter((name) => name.endsWith('.ts'))
    .map((name) => ({ name, text: readFileSync(`${SRC}/${name}`, 'utf8') }))
  /** Texts between backticks that read or write the table, without what is quoted inside them. */
  const statements = files.flatMap(({ name, text }) =>
    [...text.matchAll(/`[^`]*\b(?:from|join|update|into)\s+audience_member\b[^`]*`/g)].map(([statement]) => ({
      name,
      statement,
    })),
  )

  it('names the account', () => {
    expect(statements.length).toBeGreaterThan(8)
    for (const { name, statement } of statements) {
      // ${inScope} stands for account and organization.
      expect(statement, name).toMatch(/channel_oa_id|\$\{inScope\}|\$\{hasPieces\}/)
    }
  })

  it('that serves a client names the organization, too', () => {
    const served = ['audience/select.ts', 'audience/update.ts', 'audience/erase.ts']
    const theirs = statements.filter(({ name }) => served.includes(name))
    expect(new Set(theirs.map(({ name }) => name)).size).toBe(served.length)
    for (const { name, statement } of theirs) {
      // memberOf looks up, by account and id, what a statement in scope has found.
      if (/\$\{condition\} offset 0/.test(statement)) continue
      expect(statement, name).toMatch(/organization_id = \$2|\$\{inScope\}|\$\{hasPieces\}/)
    }
  })
})

it('the database itself keeps account and organization together', async () => {
  const [one, two] = [await addTenant(database), await addTenant(database)]
  const crossed = database.query(
    `insert into audience_member (channel_oa_id, organization_id, user_id) values ($1, $2, 'U1')`,
    [one.accountId, two.organizationId],
  )
  await expect(crossed).rejects.toThrow(/audience_member_account/)
})

it('every route, with every key, shows its own people alone (property)', async () => {
  // Two organizations, three accounts; one person who is a member of all, and some of each.
  const first = await addTenant(database)
  const [sister] = await database.query<{ id: bigint; oa_hash: string; tracking_key: string }>(
    `insert into official_account (organization_id, name, channel_secret) values ($1, 'sister', $2)
     returning id, oa_hash, tracking_key`,
    [first.organizationId, first.channelSecret],
  )
  if (!sister) throw new Error('no account')
  const second: Tenant = {
    ...first,
    accountId: sister.id,
    oaHash: sister.oa_hash,
    trackingKey: sister.tracking_key,
    ...(await addCredentials(database, sister.id, first.organizationId)),
  }
  const third = await addTenant(database)
  const tenants = [first, second, third]
  for (const [no, tenant] of tenants.entries()) {
    const people = [`Umark${no}a`, `Umark${no}b`, 'Ushared']
    await service.deliver(
      tenant,
      people.map((userId) => lineEvent('follow', userId)),
    )
    for (const member of await service.members(tenant)) {
      await service.call('PUT', `/api/audience/${member.id}`, {
        headers: { ...tenant.headers, 'content-type': 'application/json' },
        body: JSON.stringify({ externalId: `mark${no}-${member.userId}`, tags: [`mark${no}`, 'common'] }),
      })
    }
  }
  const membersOf = await Promise.all(tenants.map((tenant) => service.members(tenant)))
  const cursors = await Promise.all(
    tenants.map(
      async ({ headers }) =>
        (await service.call('GET', '/api/audience?limit=1', { headers })).json.nextCursor,
    ),
  )
  const foreignIds = (no: number) =>
    membersOf.flatMap((members, at) => (at === no ? [] : members.map(({ id }) => id)))
  // A key is good with its own client alone: crossed pairs have no scope.
  const credentials = tenants.flatMap((client, c) =>
    tenants.map((key, k) => ({
      no: c === k ? c : null,
      headers: { ...client.headers, 'x-api-key': key.headers['x-api-key'] },
    })),
  )
  const anyTenant = fc.nat({ max: 2 })
  const parameter = fc.oneof(
    fc.tuple(fc.constant('userId'), fc.constantFrom('Umark0a', 'Umark1b', 'Umark2a', 'Ushared')),
    fc.tuple(
      fc.constant('externalId'),
      anyTenant.map((no) => `mark${no}-Ushared`),
    ),
    fc.tuple(fc.constant('tag'), fc.constantFrom('common', 'mark0', 'mark1', 'mark2')),
    fc.tuple(fc.constant('relationship'), fc.constant('following')),
    fc.tuple(fc.constant('updatedSince'), fc.constant('2020-01-01T00:00:00Z')),
    fc.tuple(
      fc.constant('cursor'),
      anyTenant.map((no) => cursors[no] as string),
    ),
    fc.tuple(fc.constant('limit'), fc.constantFrom('1', '200')),
  )
  const call = fc.record({
    who: fc.constantFrom(...credentials),
    method: fc.constantFrom('GET', 'PUT', 'POST'),
    query: fc.array(parameter, { maxLength: 3 }),
    accept: fc.constantFrom('application/json', 'text/csv', 'application/x-ndjson'),
    target: fc.tuple(anyTenant, fc.nat({ max: 2 })),
    body: fc.constantFrom('{"tags":["common"]}', '{"externalId":"anything"}', '{}'),
  })
  await fc.assert(
    fc.asyncProperty(call, async ({ who, method, query, accept, target, body }) => {
      const id = membersOf[target[0]]?.[target[1]]?.id
      const [path, init] =
        method === 'GET'
          ? [`/api/audience?${new URLSearchParams(query)}`, { headers: { ...who.headers, accept } }]
          : [
              method === 'PUT' ? `/api/audience/${id}` : '/api/line-oa/verify',
              { headers: { ...who.headers, 'content-type': 'application/json' }, body },
            ]
      const { text, status } = await service.call(method, path, init)
      for (const no of [0, 1, 2].filter((other) => other !== who.no)) {
        expect(text, `${method} ${path} ${status}`).not.toMatch(new RegExp(`mark${no}`))
      }
      const foreign = foreignIds(who.no ?? -1)
      for (const [, shown] of text.matchAll(/"id":"(\d+)"/g)) expect(foreign).not.toContain(shown)
      if (method === 'PUT' && target[0] !== who.no) expect([404, 500]).toContain(status)
    }),
    { numRuns: 400 },
  )
  // Nobody lost or gained anything by it, and nobody can erase another's people.
  for (const [no, tenant] of tenants.entries()) {
    for (const id of foreignIds(no)) {
      expect((await service.call('DELETE', `/api/audience/${id}`, { headers: tenant.headers })).status).toBe(
        404,
      )
    }
  }
  for (const [no, tenant] of tenants.entries()) {
    const ids = (await service.members(tenant)).map(({ id }) => id)
    expect(ids).toEqual(membersOf[no]?.map(({ id }) => id))
  }
}, 60_000)
