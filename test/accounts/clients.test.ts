/** Rotation of client secrets, and what is said of clients and keys, by commands and in the console. */
import { expect, it } from 'vitest'
import { findingsOf, runCommand } from '../support/command.ts'
import { addSignedIn, startSignedIn } from '../support/console.ts'
import { addCredentials, addTenant } from '../support/database.ts'
import { activityOf, insertRow, readEverything } from '../support/load.ts'
import { setUpService } from '../support/service.ts'

const { database, env, service, tenant } = await setUpService()
const { app, url, operator } = await startSignedIn(database)

const newCredentials = () => addCredentials(database, tenant.accountId, tenant.organizationId)
type Credentials = Awaited<ReturnType<typeof newCredentials>>

async function command(...args: unknown[]) {
  const { status, stdout, stderr } = await runCommand([...args.map(String), '--json'], env)
  return { status, stderr, json: status === 0 ? JSON.parse(stdout) : null }
}

const statusWith = async (headers: Record<string, string>, secret = headers['x-client-secret'] ?? '') =>
  (await service.call('GET', '/api/audience', { headers: { ...headers, 'x-client-secret': secret } })).status

const recorded = async (kind: string, id: bigint) =>
  (await activityOf(database, kind, id)).map(({ action, changes }) => ({ action, changes }))

it('the rotation of a client’s secret accepts both secrets until it is finished, lists neither, and then deletes the previous one', async () => {
  const { headers, clientRowId: id } = await newCredentials()
  const { json } = await command('clients', 'rotate', id)
  expect(json).toEqual({ id: String(id), clientSecret: expect.stringMatching(/^secret_.{32}$/) })
  expect([await statusWith(headers), await statusWith(headers, json.clientSecret)]).toEqual([200, 200])

  const again = await command('clients', 'rotate', id)
  expect(again.status).toBe(1)
  expect(again.stderr).toContain(`"oa-audience clients rotate ${id} --finish"`)
  const listed = await runCommand(['clients', 'list', '--json'], env)
  expect(JSON.parse(listed.stdout)).toContainEqual(
    expect.objectContaining({ id: String(id), isRotating: true }),
  )
  expect(listed.stdout).not.toContain(json.clientSecret)
  expect(listed.stdout).not.toContain(headers['x-client-secret'])

  expect((await command('clients', 'rotate', id, '--finish')).json).toEqual({
    id: String(id),
    status: 'finished',
  })
  expect([await statusWith(headers), await statusWith(headers, json.clientSecret)]).toEqual([401, 200])
  expect(await recorded('client', id)).toEqual([
    { action: 'client.rotated', changes: { clientSecret: 'replaced' } },
    { action: 'client.rotation_finished', changes: {} },
  ])
  expect(await readEverything(database)).not.toContain(headers['x-client-secret'])
})

it('the rotation of a client’s secret goes back to the previous secret alone when the new one is discarded', async () => {
  const { headers, clientRowId: id } = await newCredentials()
  const { clientSecret } = (await operator.post(`/api/clients/${id}/rotate`)).json
  expect((await operator.post(`/api/clients/${id}/discard-rotation`)).status).toBe(204)
  expect([await statusWith(headers), await statusWith(headers, clientSecret)]).toEqual([200, 401])
  expect(await readEverything(database)).not.toContain(clientSecret)
  const again = await command('clients', 'rotate', id, '--discard')
  expect(again.stderr).toContain(`client ${id} is not rotating: it has one secret. Nothing was changed.`)
  expect((await command('clients', 'rotate', id)).status).toBe(0)
})

it('the rotation of a client’s secret is refused for a client that is not active or does not exist', async () => {
  const { clientRowId: id } = await newCredentials()
  await command('clients', 'revoke', id)
  expect((await command('clients', 'rotate', id)).stderr).toContain('is not active')
  for (const args of [
    ['rotate', '0'],
    ['rotate', '0', '--finish'],
    ['rotate', '0', '--discard'],
  ])
    expect((await command('clients', ...args)).stderr).toContain('client 0 does not exist')
})

it('the rotation of a client’s secret gives one of two concurrent rotations a secret', async () => {
  const { headers, clientRowId: id } = await newCredentials()
  const rotations = await Promise.all([1, 2].map(() => operator.post(`/api/clients/${id}/rotate`)))
  expect(rotations.map(({ status }) => status).sort()).toEqual([200, 400])
  const secret = rotations.find(({ status }) => status === 200)?.json.clientSecret
  expect([await statusWith(headers), await statusWith(headers, secret)]).toEqual([200, 200])
})

it.each([
  ['null', null],
  [`'infinity'`, null],
  [`'-infinity'`, '1970-01-01T00:00:00.000Z'],
  [`'4713-01-01 BC'`, '1970-01-01T00:00:00.000Z'],
  [`'294276-12-31'`, '9999-12-31T23:59:59.999Z'],
])('shows a last use that another program has set to %s', async (time, lastUsedAt) => {
  const { clientRowId, keyId } = await newCredentials()
  await database.query(`update api_client set last_used_at = ${time} where id = $1`, [clientRowId])
  await database.query(`update api_key set last_used_at = ${time} where id = $1`, [keyId])
  const { client } = (await operator.get(`/api/clients/${clientRowId}`)).json
  expect(client).toMatchObject({ lastUsedAt, isRotating: false, activeKeys: 1 })
  const { keys } = (await operator.get(`/api/clients/${clientRowId}/keys`)).json
  expect(keys).toMatchObject([{ lastUsedAt, works: true }])
  const own = (list: Array<{ id: string }>, id: bigint) => list.find((row) => row.id === String(id))
  expect(own((await command('clients', 'list')).json, clientRowId)).toMatchObject({ lastUsedAt })
  expect(own((await command('keys', 'list')).json, keyId)).toMatchObject({ lastUsedAt })
})

it('refuses changes by an operator of some organizations to a client that also has keys of others, and does not say how many', async () => {
  const { clientRowId, keyId } = await newCredentials()
  const other = await addTenant(database)
  const foreign = await insertRow(database, 'api_key', {
    ...{ api_client_id: clientRowId, key: 'x', channel_oa_id: other.accountId },
    organization_id: other.organizationId,
  })
  const organizationIds = [tenant.organizationId]
  const limited = await addSignedIn({ url, database }, { role: 'manager', organizationIds })
  const post = (path: string) => limited.post(path)
  const client = `/api/clients/${clientRowId}`
  const [reads, changes] = [['removal'], ['rotate', 'finish-rotation', 'remove', 'revoke']]
  for (const action of [...reads, ...changes]) {
    const { status, text } = await limited.call(
      reads.includes(action) ? 'GET' : 'POST',
      `${client}/${action}`,
    )
    expect([action, status, text]).toEqual([
      action,
      400,
      expect.stringMatching(/keys of other organizations/),
    ])
  }
  expect((await post(`/api/keys/${keyId}/revoke`)).status).toBe(204)
  expect((await post(`/api/keys/${foreign}/revoke`)).status).toBe(404)
  await app.close()
})

it('doctor lists credentials that were not used for 90 days, or have an end that has no effect, and fails for neither', async () => {
  const all = await Promise.all([1, 2, 3].map(newCredentials))
  const [ending, unused, fresh] = all as [Credentials, Credentials, Credentials]
  const update = (set: string, { clientRowId }: { clientRowId: bigint }) =>
    database.query(`update api_client set ${set} where id = $1`, [clientRowId])
  await update(`expires_at = '2030-01-01T00:00Z'`, ending)
  await database.query(`update api_key set expires_at = '-infinity' where id = $1`, [ending.keyId])
  await update(`last_used_at = now() - interval '91 days'`, unused)
  await database.query(`update api_key set last_used_at = now() - interval '91 days' where id = $1`, [
    unused.keyId,
  ])
  await update(`created_at = now() - interval '89 days', expires_at = 'infinity'`, fresh)
  const findings = await findingsOf(env)
  const of = (check: string) =>
    findings.filter((finding) => finding.check === check).map(({ severity, message }) => [severity, message])
  const hasNoEnd = (text: string) => [['warning', expect.stringContaining(text)]]
  expect(of(`client ${ending.clientRowId}`)).toEqual(
    hasNoEnd(`expires_at 2030-01-01T00:00:00.000Z no longer ends it; oa-audience clients revoke`),
  )
  expect(of(`key ${ending.keyId}`)).toEqual(hasNoEnd('expires_at 1970-01-01T00:00:00.000Z no longer ends it'))
  const isUnused = [['ok', expect.stringContaining('has not been used for 90 days')]]
  expect(of(`client ${unused.clientRowId}`)).toEqual(isUnused)
  expect(of(`key ${unused.keyId}`)).toEqual(isUnused)
  expect(of(`client ${fresh.clientRowId}`)).toEqual([])
})
