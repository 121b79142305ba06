/** Several tools behind one account: a condition decides who receives an event, and the priority who may reply to it. */
import { expect, it } from 'vitest'
import { ENDPOINTS } from '../../src/operations/endpoints.ts'
import { lineEvent, textMessage } from '../../tools/simulator/events.ts'
import { runCommand } from '../support/command.ts'
import { type Receiver, startReceiver, startSending } from '../support/endpoints.ts'
import { runOperation } from '../support/operations.ts'

const VIP = { tagsAll: ['vip'] }

/** What a receiver got: `text` with the reply token, `(text)` in standby. One array per request. */
const seenBy = ({ received }: Receiver) =>
  received.map(({ body }) =>
    JSON.parse(body).events.map((event: Record<string, unknown>) => {
      const { text = event.type } = (event.message ?? {}) as { text?: unknown }
      return String(event.replyToken).startsWith('token-') ? text : `(${text})`
    }),
  )

async function startTools() {
  const sending = await startSending()
  const { service, tenant, database, becomesQuiet } = sending
  const message = (user: string, text: string) => ({
    ...textMessage(user, text),
    replyToken: `token-${text}`,
  })
  const deliver = async (...events: object[]) => {
    expect((await service.deliver(tenant, events)).status).toBe(200)
    await becomesQuiet()
  }
  const setTags = (user: string, tags: string[]) =>
    database.query('update audience_member set tags = $3 where channel_oa_id = $1 and user_id = $2', [
      tenant.accountId,
      user,
      tags,
    ])
  return { ...sending, message, deliver, setTags }
}

/** A tool for all people, and one for vips, which replies first. `Uvip` is one of them. */
async function startTwoTools() {
  const tools = await startTools()
  const { message, deliver, setTags, addEndpoint } = tools
  await deliver(message('Uvip', 'before'), message('Ugone', 'before'), message('Uother', 'before'))
  await setTags('Uvip', ['vip'])
  const [all, vips] = [await startReceiver(), await startReceiver()]
  await addEndpoint(all.url, { replies: true, events: ['message'] })
  await addEndpoint(vips.url, { condition: VIP, replies: true, priority: -1 })
  return { ...tools, all, vips }
}

it('an endpoint with a condition receives the events of the people for whom it holds, and those without a person', async () => {
  const { addEndpoint, message, deliver, setTags } = await startTools()
  await deliver(message('Uvip', 'before'), message('Uother', 'before'))
  await setTags('Uvip', ['vip'])
  const receiver = await startReceiver()
  await addEndpoint(receiver.url, { condition: VIP, replies: true })
  const { source: _, ...withoutPerson } = lineEvent('accountLink', 'Unobody') as { source: object }
  await deliver(message('Uvip', 'mine'), message('Uother', 'not mine'), withoutPerson)
  expect(seenBy(receiver)).toEqual([['mine', '(accountLink)']])
})

it('an endpoint with a condition evaluates a condition after the effects of the event itself', async () => {
  const { addEndpoint, deliver } = await startTools()
  const [followers, blockers] = [await startReceiver(), await startReceiver()]
  await addEndpoint(followers.url, { condition: { relationship: 'following', eventCountMin: 1 } })
  await addEndpoint(blockers.url, { condition: { relationship: 'blocked' } })
  await deliver(lineEvent('follow', 'Unew'))
  await deliver(lineEvent('unfollow', 'Unew'))
  expect([seenBy(followers), seenBy(blockers)]).toEqual([[['(follow)']], [['(unfollow)']]])
})

it('an endpoint with a condition follows a change with the next event, and repeats what it was sent before', async () => {
  const { addEndpoint, message, deliver, setTags, makeDue, becomesQuiet } = await startTools()
  const receiver = await startReceiver()
  await deliver(message('Uvip', 'before'))
  await setTags('Uvip', ['vip'])
  await addEndpoint(receiver.url, { condition: VIP, replies: true })
  receiver.answer = { status: 500 }
  await deliver(message('Uvip', 'first'))
  await setTags('Uvip', [])
  await deliver(message('Uvip', 'second'))
  receiver.answer = { status: 200 }
  await makeDue()
  await becomesQuiet()
  expect(seenBy(receiver)).toEqual([['first'], ['first']])
})

it('an endpoint with a condition is refused by the database if a flush could not evaluate its condition', async () => {
  const { addEndpoint } = await startTools()
  for (const condition of [
    { tag: 'vip' },
    { followedAfter: 'yesterday' },
    { eventCountMin: 'many' },
    ['vip'],
  ])
    await expect(addEndpoint('https://a.example', { condition: JSON.stringify(condition) })).rejects.toThrow(
      /endpoint_condition_check/,
    )
})

it('of several endpoints that may reply the first by priority and id whose condition holds has the token, and the others are in standby', async () => {
  const { addEndpoint, message, deliver, all, vips } = await startTwoTools()
  const crm = await startReceiver()
  await addEndpoint(crm.url, { replies: true })
  await deliver(message('Uvip', 'one'), message('Uother', 'two'), message('Uvip', 'three'))
  expect(seenBy(all)).toEqual([['(one)', 'two', '(three)']])
  expect(seenBy(vips)).toEqual([['one', 'three']])
  expect(seenBy(crm)).toEqual([['(one)', '(two)', '(three)']])
})

it('of several endpoints that may reply none loses its turn by the event types of another', async () => {
  const { addEndpoint, message, deliver } = await startTools()
  const [first, second] = [await startReceiver(), await startReceiver()]
  await addEndpoint(first.url, { replies: true, events: ['follow'] })
  await addEndpoint(second.url, { replies: true })
  await deliver(message('Uany', 'hello'))
  expect([seenBy(first), seenBy(second)]).toEqual([[], [['hello']]])
})

it('an erased person is missing in a retry, and the tokens of the others stay with theirs', async () => {
  const { service, tenant, message, deliver, makeDue, becomesQuiet, all } = await startTwoTools()
  all.answer = { status: 500 }
  await deliver(message('Ugone', 'gone'), message('Uvip', 'one'), message('Uother', 'two'))
  await service.eraseUser(tenant, 'Ugone')
  all.received.length = 0
  all.answer = { status: 200 }
  await makeDue()
  await becomesQuiet()
  expect(seenBy(all)).toEqual([['(one)', 'two']])
})

it('a rehearsal counts who would move to another endpoint, and changes nothing', async () => {
  const { database, tenant, env, addEndpoint, message, deliver, setTags } = await startTools()
  await deliver(...['U1', 'U2', 'U3'].map((user) => message(user, 'before')))
  await setTags('U1', ['vip'])
  await setTags('U2', ['vip'])
  const all = await addEndpoint('https://all.example', { replies: true })
  const vips = await addEndpoint('https://vips.example', { condition: { tagsAll: ['none'] }, priority: -1 })
  const command = ['endpoints', 'rehearse', String(vips), '--condition', JSON.stringify(VIP)]
  const rehearse = async (...options: string[]) => {
    const { stdout, stderr } = await runCommand([...command, ...options, '--json'], env)
    expect(stderr).toBe('')
    return JSON.parse(stdout)
  }
  const [id, from] = [String(vips), String(all)]
  expect(await rehearse()).toEqual({ id, members: 3, moves: [] })
  expect(await rehearse('--replies')).toEqual({
    id,
    members: 3,
    moves: [{ from, fromName: '', to: id, toName: '', people: 2 }],
  })
  expect(await rehearse('--replies', '--priority', '0')).toEqual({ id, members: 3, moves: [] })
  expect(await database.query('select replies, priority from endpoint where id = $1', [vips])).toEqual([
    { replies: false, priority: -1 },
  ])
  const seen = async (userId: string) => {
    const input = { account: String(tenant.accountId), user: userId }
    const { result } = await runOperation(database, ENDPOINTS.ofPerson, { input })
    return result?.endpoints.map(({ id: endpoint, mayReply }) => [endpoint, mayReply])
  }
  await database.query('update endpoint set condition = $2, replies = true where id = $1', [
    vips,
    JSON.stringify(VIP),
  ])
  expect(await seen('U1')).toEqual([
    [all, false],
    [vips, true],
  ])
  expect(await seen('U3')).toEqual([[all, true]])
  await database.query('update endpoint set priority = 0 where id = $1', [vips])
  expect(await seen('U1')).toEqual([
    [all, true],
    [vips, false],
  ])
})
