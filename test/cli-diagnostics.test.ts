/** What operators ask first: `doctor` and `members show`. */
import { describe, expect, it } from 'vitest'
import { lineEvent } from '../tools/simulator/events.ts'
import { runCommand } from './support/command.ts'
import { addTenant, createTestDatabase } from './support/database.ts'
import { load } from './support/load.ts'
import { setUpService } from './support/service.ts'

const { database, env } = await createTestDatabase()

describe('doctor', () => {
  it('reports a database that does not sync to disk, and exits with 1', async () => {
    const { stdout, status } = await runCommand(['doctor', '--json'], env)
    const message = expect.stringMatching('fsync is off')
    expect(JSON.parse(stdout)).toContainEqual({ check: 'database', severity: 'error', message })
    expect(status).toBe(1)
  })

  it('reports every server that does not respond and exits with 1', async () => {
    const { stdout, status } = await runCommand(['doctor', '--json'], {
      DATABASE_URL: 'postgres://nobody@127.0.0.1:1/none',
      LINE_API_URL: 'http://127.0.0.1:9',
      REDIS_URL: 'redis://127.0.0.1:9',
    })
    expect(status).toBe(1)
    for (const check of ['database', 'Redis', 'platform'])
      expect(JSON.parse(stdout)).toContainEqual(expect.objectContaining({ check, severity: 'error' }))
  })

  it('warns when the clock of the database stepped back', async () => {
    await load(database, `insert into change_mark values (now() + interval '1 hour', 1)`)
    const { stdout } = await runCommand(['doctor', '--json'], env)
    await load(database, 'truncate change_mark')
    const message = expect.stringMatching(/clock stepped back by 3\d\d\d s/)
    expect(JSON.parse(stdout)).toContainEqual({ check: 'database', severity: 'warning', message })
  })

  it('names the account of each finding', async () => {
    const tenant = await addTenant(database)
    const { stdout } = await runCommand(['doctor', '--json'], env)
    expect(JSON.parse(stdout)).toContainEqual(
      expect.objectContaining({ check: `account ${tenant.accountId}`, severity: 'warning' }),
    )
  })
})

describe('members show', () => {
  const AT = 1_700_000_000_000

  async function setUpMember() {
    const { env: ownEnv, ...parts } = await setUpService()
    const { service, tenant } = parts
    await service.deliver(tenant, [
      lineEvent('unfollow', 'U1', { timestamp: AT + 2000 }),
      lineEvent('follow', 'U1', { timestamp: AT }),
      lineEvent('memberJoined', null, {
        timestamp: AT + 1000,
        source: { type: 'group', groupId: 'C1' },
        joined: { members: [{ type: 'user', userId: 'U1' }] },
      }),
    ])
    const id = (await service.member(tenant, 'U1'))?.id
    const edit = (body: object) => service.put(tenant, id, body)
    const show = (user: string) =>
      runCommand(['members', 'show', '--account', String(tenant.accountId), user, '--json'], ownEnv)
    return { ...parts, id, edit, show }
  }

  it('lists the events and edits that led to the state of a member, newest first', async () => {
    const { database: own, tenant, edit, show } = await setUpMember()
    await edit({ tags: ['vip'], externalId: 'customer-1' })
    await edit({ tags: ['vip'] })
    await own.query(`update audience_member set attributes = '{"cups":3}' where user_id = 'U1'`)
    const { member, timeline } = JSON.parse((await show('U1')).stdout)
    expect(member).toMatchObject({ userId: 'U1', relationship: 'blocked', eventCount: 3 })
    expect(timeline.map(({ effect }: { effect: string }) => effect)).toEqual([
      'attributes by another program',
      `externalId, tags by ${tenant.headers['x-client-id']}`,
      'blocked',
      'joined_or_left',
      'following',
    ])
    expect(timeline.map(({ changes }: { changes: unknown }) => changes).slice(0, 3)).toEqual([
      { attributes: { cups: [null, 3] } },
      { externalId: [null, 'customer-1'], tags: { added: ['vip'], removed: [] } },
      null,
    ])
  })
})
