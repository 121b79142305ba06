/** Who may let an endpoint reach the private network. */
import { expect, it } from 'vitest'
import { addSignedIn, signedIn, startConsole } from './support/console.ts'
import { addTenant, createTestDatabase } from './support/database.ts'
import { startReceiver } from './support/endpoints.ts'
import { load } from './support/load.ts'

const { database } = await createTestDatabase()
const { url } = await startConsole(database)
const operator = await signedIn(url)
const { accountId, organizationId } = await addTenant(database)
const receiver = await startReceiver()
const settings = { account: String(accountId), url: receiver.url, allowPrivateNetwork: true }

it('only operators of all organizations let an endpoint reach the private network', async () => {
  const manager = await addSignedIn({ url, database }, { role: 'manager', organizationIds: [organizationId] })
  const refusalOf = async (path: string, body: unknown) => {
    const { status, json } = await manager.post(`/api/endpoints${path}`, body)
    return [status, json.details?.[0]?.path]
  }
  const outside = {
    ...settings,
    format: 'line',
    url: 'https://tool.example/hook',
    allowPrivateNetwork: false,
  }
  const inside = (await operator.post('/api/endpoints', { ...settings, format: 'line' })).json.id
  const { id } = (await manager.post('/api/endpoints', outside)).json
  const refused = [400, 'allowPrivateNetwork']
  expect(await refusalOf('', { ...outside, allowPrivateNetwork: true })).toEqual(refused)
  expect(await refusalOf(`/${id}/update`, { allowPrivateNetwork: true })).toEqual(refused)
  expect(await refusalOf(`/${inside}/update`, { url: 'http://10.0.0.1/' })).toEqual([400, 'url'])
  expect((await manager.post(`/api/endpoints/${inside}/update`, { name: 'Ours' })).status).toBe(204)
  const stored = await load(
    database,
    'select url, allow_private_network from endpoint where id = any ($1) order by id',
    [[inside, id]],
  )
  expect(stored).toEqual([
    { url: expect.stringContaining(new URL(receiver.url).host), allow_private_network: true },
    { url: outside.url, allow_private_network: false },
  ])
})
