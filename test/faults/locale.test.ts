/** A database whose locale has no case beyond ASCII. Its migrations take seconds. */
import { expect, it } from 'vitest'
import { findingsOf, runCommand } from '../support/command.ts'
import { addTenant, createTestDatabase } from '../support/database.ts'
import { load } from '../support/load.ts'
import { startApp } from '../support/service.ts'

const { database, env } = await createTestDatabase()

it('doctor warns of a locale in which searches ignore the case of ASCII letters alone', async () => {
  const found = async (env: Record<string, string>) =>
    (await findingsOf(env)).filter(({ check, message }) => check === 'locale' && message.includes('C.UTF-8'))
  expect(await found(env)).toEqual([])
  const { env: other, database: inC } = await createTestDatabase(`template0 locale_provider libc locale 'C'`)
  expect((await runCommand(['migrate'], other)).status).toBe(0)
  expect(await found(other)).toEqual([expect.objectContaining({ severity: 'warning' })])
  for (const [each, matches] of [
    [database, true],
    [inC, false],
  ] as const) {
    const tenant = await addTenant(each)
    await load(
      each,
      `insert into audience_member (channel_oa_id, organization_id, user_id, display_name) values ($1, $2, 'U1', 'ÉCLAIR Жанна')`,
      [tenant.accountId, tenant.organizationId],
    )
    const service = await startApp(each)
    for (const [q, isFound] of [
      ['éclair', matches],
      ['жанна', matches],
      ['clair', true],
    ] as const) {
      const { json } = await service.call('GET', `/api/audience?q=${encodeURIComponent(q)}`, {
        headers: tenant.headers,
      })
      expect(json.data, q).toHaveLength(Number(isFound))
    }
  }
})
