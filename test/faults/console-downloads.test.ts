/** Downloads of the console: who may have how many, and that they end with the operator's access. */
import { once } from 'node:events'
import { type IncomingMessage, request } from 'node:http'
import { expect, it } from 'vitest'
import { lineEvent } from '../../tools/simulator/events.ts'
import { addSignedIn, type Operator, signedIn, startConsole } from '../support/console.ts'
import { addTenant } from '../support/database.ts'
import { load } from '../support/load.ts'
import { setUpService } from '../support/service.ts'
import { addLargeTenant } from '../support/stream.ts'

const { database, service, tenant: other } = await setUpService()
const large = await addLargeTenant(database)
const { url } = await startConsole(database)
const here = { url, database }
const organizationIds = [large.organizationId]
const LIST = '/audience/export?format=ndjson'
const members = `/api/accounts/${large.accountId}${LIST}`

/** Opens a download, and pauses it at its first bytes. */
async function open({ headers }: Operator, path = members): Promise<IncomingMessage> {
  const [response] = await once(request(url + path, { headers, agent: false }).end(), 'response')
  await once(response, 'readable')
  return response
}

/** What a paused download still has, and whether it is complete. */
async function readAll(response: IncomingMessage): Promise<{ text: string; isComplete: boolean }> {
  let text = ''
  response.setEncoding('utf8').on('data', (chunk) => (text += chunk))
  await new Promise((resolve) => response.once('error', resolve).once('end', resolve))
  return { text, isComplete: response.complete }
}

const addActivity = () =>
  load(
    database,
    `insert into activity (actor_kind, actor, action, object_kind, organization_id, changes)
     select 'command', 'row ' || i, 'key.added', 'key', $1, jsonb_build_object('pad', repeat('x', 8000))
       from generate_series(1, 5000) i`,
    [large.organizationId],
  )

const ofOperator = (change: string) =>
  `update operator set ${change} where id = $1 and $2::bigint is not null`

it.each<[string, string]>([
  ['whose operator is disabled', ofOperator(`status = 'disabled'`)],
  [
    'whose operator signed out',
    'delete from operator_session where operator_id = $1 and $2::bigint is not null',
  ],
  ['of an organization that was taken from the operator', ofOperator('organization_ids = array[$2::bigint]')],
])('a download %s is cut off with the next part', async (_, change) => {
  const operator = await addSignedIn(here, { role: 'viewer', organizationIds })
  const download = await open(operator)
  await database.query(change, [operator.id, other.organizationId])
  await service.deliver(large, [lineEvent('follow', 'Ulate')])
  const { text, isComplete } = await readAll(download)
  expect(isComplete).toBe(false)
  expect(text).not.toContain('Ulate')
})

it('the export of the activity log is cut off once its reader is no longer an owner', async () => {
  await addActivity()
  const path = '/api/activity/export'
  const operator = await addSignedIn(here, { role: 'owner', organizationIds })
  const complete = await readAll(await open(operator, path))
  expect(complete).toMatchObject({ isComplete: true, text: expect.stringContaining('row 1"') })
  const download = await open(operator, path)
  await database.query(`update operator set role = 'manager' where id = $1`, [operator.id])
  expect((await readAll(download)).isComplete).toBe(false)
})

it('one operator has one download at a time, and the operators of one organization have two', async () => {
  const crowd = await Promise.all([1, 2, 3].map(() => addSignedIn(here, { role: 'viewer', organizationIds })))
  const [first, second, third] = crowd as unknown as [Operator, Operator, Operator]
  const downloads = [await open(first), await open(second)]
  expect((await first.get(members)).json.message).toMatch(/^Another stream of this api key or operator/)
  const refused = await third.get(members)
  expect([refused.status, refused.headers.get('retry-after')]).toEqual([429, '10'])
  expect(refused.json.message).toBe('Two streams of this organization are open; try again later')
  const elsewhere = await addTenant(database)
  const owner = await signedIn(url)
  expect((await owner.get(`/api/accounts/${elsewhere.accountId}${LIST}`)).status).toBe(200)
  for (const download of downloads) download.destroy()
  const retried = async () => {
    const { status } = await fetch(url + members, { headers: third.headers }).then((response) => {
      void response.body?.cancel()
      return response
    })
    return status
  }
  await expect.poll(retried).toBe(200)
})
