/** Who edited a member, and from what to what: as it is stored, shown and erased. */
import { expect, it } from 'vitest'
import type { Member } from '../../src/audience/member.ts'
import { lineEvent, randomUserId } from '../../tools/simulator/events.ts'
import { runCommand } from '../support/command.ts'
import { addSignedIn, startConsole } from '../support/console.ts'
import { endOf, startJobRunner, uploadFile } from '../support/jobs.ts'
import { readEverything } from '../support/load.ts'
import { setUpService } from '../support/service.ts'

const { database, service, tenant, env } = await setUpService()
const jobs = startJobRunner(database)
const { url } = await startConsole(database, { onJob: jobs.wake })
const operator = await addSignedIn({ url, database }, { role: 'manager', email: 'mali@example.com' })
const account = `/api/accounts/${tenant.accountId}`

async function newMember(): Promise<Member> {
  const userId = randomUserId()
  await service.deliver(tenant, [lineEvent('follow', userId)])
  return (await service.member(tenant, userId)) as Member
}

type Edit = { fields: string[]; changes: unknown; by: unknown }

async function editsOf({ userId }: Member): Promise<Edit[]> {
  const { json } = await operator.get(`${account}/timeline?user=${userId}`)
  return json.timeline
    .filter(({ kind }: { kind: string }) => kind === 'edit')
    .map(({ effect: { fields, changes, by } }: { effect: Edit }) => ({ fields, changes, by }))
}

const update = (set: string, { id }: Member) =>
  database.query(`update audience_member set ${set} where id = ${id}`)

it('an edit of a member is shown with the client and the values before and after', async () => {
  const member = await newMember()
  await service.put(tenant, member.id, {
    externalId: 'c-1',
    tags: ['a', 'b'],
    attributes: { cups: 3, vip: true },
  })
  await service.put(tenant, member.id, { tags: ['b', 'c'], attributes: { cups: 4, vip: true, note: 'hi' } })
  const by = { keyId: String(tenant.keyId), clientId: tenant.headers['x-client-id'], clientName: null }
  expect(await editsOf(member)).toEqual([
    {
      fields: ['tags', 'attributes'],
      changes: {
        tags: { added: ['c'], removed: ['a'] },
        attributes: { cups: [3, 4], note: [null, 'hi'] },
      },
      by,
    },
    {
      fields: ['externalId', 'tags', 'attributes'],
      changes: {
        externalId: [null, 'c-1'],
        tags: { added: ['a', 'b'], removed: [] },
        attributes: { cups: [null, 3], vip: [null, true] },
      },
      by,
    },
  ])
})

it('an edit of a member by an operator, a job, a command or another program is shown once, with its author', async () => {
  const member = await newMember()
  const { id, userId } = member
  const edit = { member: id, version: '1', update: { tags: ['vip'] } }
  expect((await operator.post(`${account}/update-member`, edit)).status).toBe(200)
  const line = (tags: string[]) => JSON.stringify({ userId, tags })
  await endOf(operator, await uploadFile(operator, tenant, 'ndjson', line(['file'])))
  const args = ['audience', 'import', '--account', String(tenant.accountId), '-']
  const { status } = await runCommand(args, env, { input: line(['shell']) })
  expect(status).toBe(0)
  await service.put(tenant, id, { tags: ['put'] })
  await update(`tags = '{crm}'`, member)
  const edits = await editsOf(member)
  expect(edits.map(({ by }) => by)).toEqual([
    null,
    expect.objectContaining({ clientId: tenant.headers['x-client-id'] }),
    { actor: expect.stringMatching(/^.+@.+$/) },
    { actor: 'mali@example.com' },
    { actor: 'mali@example.com' },
  ])
  expect(edits[4]?.changes).toEqual({ tags: { added: ['vip'], removed: [] } })
})

it.each([
  ['is too large to keep', `attributes = jsonb_build_object('note', repeat('x', 5000))`],
  ['has more tags than the API accepts', `tags = array(select i::text from generate_series(1, 300) i)`],
  [
    'would take long to compare',
    `attributes = (select jsonb_object_agg(i, md5(i::text)) from generate_series(1, 9999) i)`,
  ],
])('an edit of a member that %s keeps the names of the fields only', async (_, set) => {
  const member = await newMember()
  await update(set, member)
  expect(await editsOf(member)).toEqual([{ fields: [set.split(' ')[0]], changes: null, by: null }])
})

it('an edit of a member with null or repeated tags, or none, is stored', async () => {
  const member = await newMember()
  await update(`tags = '{a,a,null}'`, member)
  await update(`tags = '{}'`, member)
  expect((await editsOf(member)).map(({ changes }) => changes)).toEqual([
    { tags: { added: [], removed: ['a', 'a', null] } },
    { tags: { added: ['a', 'a', null], removed: [] } },
  ])
})

it('an edit of a member is erased with the member, and its values are nowhere in the database afterwards', async () => {
  const member = await newMember()
  const secret = 'Somsri-0812345678'
  const values = { externalId: secret, tags: [secret], attributes: { [secret]: secret } }
  await operator.post(`${account}/update-member`, { member: member.id, version: '1', update: values })
  await service.put(tenant, member.id, { externalId: 'x', tags: [], attributes: {} })
  expect(await readEverything(database)).toContain(secret)
  const [activity] = await database.query(`select string_agg(a::text, ' ') as text from activity a`)
  expect(String(activity?.text)).not.toContain(secret)
  expect((await service.erase(tenant, member.id)).status).toBe(204)
  expect(await readEverything(database)).not.toContain(secret)
})
