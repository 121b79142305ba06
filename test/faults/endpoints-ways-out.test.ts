/** Each filter of an endpoint meets each way by which an event leaves, and each page that says what was sent. */
import { expect, it } from 'vitest'
import { listDeliveries, previewDelivery } from '../../src/endpoints/endpoints.ts'
import { listEventDeliveries } from '../../src/endpoints/event-deliveries.ts'
import { listEndpointsOfPerson } from '../../src/endpoints/repliers.ts'
import { Sender } from '../../src/endpoints/sender.ts'
import { EndpointTester } from '../../src/endpoints/test-delivery.ts'
import { ENDPOINTS } from '../../src/operations/endpoints.ts'
import { REPLAYS } from '../../src/operations/replays.ts'
import { lineEvent, textMessage } from '../../tools/simulator/events.ts'
import { eventually } from '../support/process.ts'
import { setBackEvents, startReplaying } from '../support/replays.ts'

type Replaying = Awaited<ReturnType<typeof startReplaying>>

/** What becomes of two events: `in`, a message of a vip, and `out`, which the filter concerns. Parentheses: without a reply token. */
interface Row {
  columns?: Record<string, unknown>
  /** `out` is received before the endpoint is added */
  isAddedLater?: boolean
  out?: () => object
  /** while both wait */
  meanwhile?: (replaying: Replaying, out: Message) => Promise<unknown>
  /** in the previews of the deliveries that wait */
  preview: string[]
  /** by the retry of another process */
  retry: string[]
  /** of `in` and `out`, while they wait and after the retry */
  pages: [string, string, string, string]
  /** a second pair, when the receiver works */
  live: string[]
  /** a replay of everything */
  replay: string[]
  /** the people whose messages it receives */
  people: string[]
}

const SENT = ['pending', 'pending', 'accepted', 'accepted'] as Row['pages']
const BOTH = ['in', 'out']
const AGAIN = ['(in)', '(out)', '(in)', '(out)']
const message = (userId: string, text: string) => ({
  ...textMessage(userId, text),
  replyToken: `token of ${text}`,
})
type Message = ReturnType<typeof message>

const FILTERS: Record<string, Row> = {
  none: { preview: BOTH, retry: BOTH, pages: SENT, live: BOTH, replay: AGAIN, people: ['Uvip', 'Uout'] },
  events: {
    ...{
      columns: { events: ['message'] },
      out: () => lineEvent('postback', 'Uvip'),
      people: ['Uvip', 'Uout'],
    },
    pages: ['pending', 'excluded', 'accepted', 'excluded'],
    ...{ preview: ['in'], retry: ['in'], live: ['in'], replay: ['(in)', '(in)'] },
  },
  condition: {
    ...{ columns: { condition: { tagsAll: ['vip'] } }, people: ['Uvip'] },
    pages: ['pending', 'excluded', 'accepted', 'excluded'],
    ...{ preview: ['in'], retry: ['in'], live: ['in'], replay: ['(in)', '(in)'] },
  },
  'replies, priority': {
    ...{ columns: { priority: 2 }, people: ['Uvip', 'Uout'] },
    pages: SENT,
    ...{ preview: ['(in)', '(out)'], retry: ['(in)', '(out)'], live: ['(in)', '(out)'], replay: AGAIN },
  },
  status: {
    ...{ columns: { status: 'paused' }, people: ['Uvip', 'Uout'] },
    meanwhile: ({ database }) => database.query(`update endpoint set status = 'active'`),
    ...{ preview: BOTH, retry: BOTH, pages: SENT, live: BOTH, replay: AGAIN },
  },
  'added later': {
    ...{ isAddedLater: true, people: ['Uvip', 'Uout'] },
    pages: ['pending', 'added_later', 'accepted', 'added_later'],
    // A replay is how an endpoint gets what was received before it was added.
    ...{ preview: ['in'], retry: ['in'], live: BOTH, replay: ['(out)', '(in)', '(in)', '(out)'] },
  },
  erased: {
    meanwhile: ({ service, tenant }) => service.eraseUser(tenant, 'Uout'),
    pages: ['pending', 'pending', 'accepted', 'unknown'],
    ...{
      preview: BOTH,
      retry: ['in'],
      live: BOTH,
      replay: ['(in)', '(in)', '(out)'],
      people: ['Uvip', 'Uout'],
    },
  },
  unsent: {
    meanwhile: ({ service, tenant }, { message: { id } }) =>
      service.deliver(tenant, [lineEvent('unsend', 'Uout', { unsend: { messageId: id } })]),
    pages: ['pending', 'pending', 'accepted', 'unknown'],
    ...{ preview: BOTH, retry: ['(unsend)', 'in'], live: BOTH, people: ['Uvip', 'Uout'] },
    replay: ['(in)', '(unsend)', '(in)', '(out)'],
  },
}

const textsIn = (body: string | null): string[] =>
  (body === null ? [] : JSON.parse(body).events).map(
    ({ message, type, replyToken }: Record<string, never>) => {
      const text = (message as { text?: string } | undefined)?.text ?? type
      return replyToken === undefined ? `(${text})` : text
    },
  )

it.each(Object.entries(FILTERS))(
  'by all ways, an endpoint receives what its filter "%s" allows',
  async (_, row) => {
    const {
      columns = {},
      isAddedLater = false,
      out = () => message('Uout', 'out'),
      meanwhile,
      ...expected
    } = row
    const replaying = await startReplaying()
    const { database, service, tenant, addReceiver, makeDue, becomesQuiet, replay, endOf } = replaying
    await service.deliver(tenant, [message('Uvip', 'before'), message('Uout', 'before')])
    await database.query(`update audience_member set tags = '{vip}' where user_id = 'Uvip'`)
    // The range of the replay begins later.
    await database.query('delete from event')
    const deliver = async (...events: object[]) => {
      for (const event of events) expect((await service.deliver(tenant, [event])).status).toBe(200)
    }
    const first = out()
    if (isAddedLater) await deliver(first)
    const { receiver, id } = await addReceiver({ replies: true, ...columns })
    await addReceiver({ replies: true, priority: 1 })
    receiver.answer = { status: 400 }
    await deliver(message('Uvip', 'in'), ...(isAddedLater ? [] : [first]))
    await eventually(
      () => listDeliveries(database, id, 'pending', { limit: 10 }),
      (found) =>
        found.every(
          ({ status, attempts }) => status === 'pending' && (attempts > 0 || columns.status === 'paused'),
        ),
    )

    const sent = () =>
      receiver.received
        .splice(0)
        .flatMap(({ body }) => textsIn(body))
        .sort()
    const events = await database.query<{ id: bigint }>(
      `select id from event order by payload like '%"in"%' desc limit 2`,
    )
    const outcomes = async () => {
      const found = await Promise.all(
        events.map((event) => listEventDeliveries(database, tenant.accountId, event.id)),
      )
      return found.map((deliveries) => deliveries.find(({ endpointId }) => endpointId === id)?.outcome)
    }
    const waiting = await listDeliveries(database, id, 'pending', { limit: 10 })
    const endpoint = { id, accountId: tenant.accountId }
    const previews = await Promise.all(
      waiting.map((one) => previewDelivery(database, endpoint, one.id, Date.now())),
    )
    const seen: Partial<Row> = { preview: previews.flatMap(({ body }) => textsIn(body)).sort() }
    const before = await outcomes()

    await meanwhile?.(replaying, first as Message)
    await replaying.sender.stop()
    receiver.received.length = 0
    receiver.answer = { status: 200 }
    const other = new Sender(database, () => false)
    other.start()
    await makeDue()
    await becomesQuiet()
    seen.retry = sent()
    seen.pages = [...before, ...(await outcomes())] as Row['pages']

    await deliver(message('Uvip', 'in'), out())
    await becomesQuiet()
    seen.live = sent()
    await other.stop()

    replaying.sender.start()
    await setBackEvents(database)
    await endOf(await replay(id))
    seen.replay = receiver.received.splice(0).flatMap(({ body }) => textsIn(body))
    const people = await Promise.all(
      ['Uvip', 'Uout'].map(async (userId) => {
        const receiving = await listEndpointsOfPerson(database, tenant.accountId, userId)
        return receiving.some((one) => one.id === id) ? [userId] : []
      }),
    )
    expect({ ...seen, people: people.flat() }).toEqual(expected)
    // A test carries no event, so no filter concerns it.
    await new EndpointTester(() => false).test(database, id)
    expect(receiver.received.map(({ body }) => textsIn(body))).toEqual([[]])
  },
)

it('a resend sends to an endpoint what its filters allow, and waits while it is paused', async () => {
  const { database, service, tenant, addReceiver, resend, endOf, until } = await startReplaying()
  await service.deliver(tenant, [message('Uin', 'in'), message('Uout', 'out')])
  const members = (columns: object = {}) => addReceiver({ format: 'members', ...columns })
  const { id: other } = await members({ events: ['member.erased'] })
  await expect(resend(other)).rejects.toMatchObject({
    message: expect.stringContaining('does not receive member.updated'),
  })
  const { receiver, id } = await members({ events: ['member.updated'], status: 'paused' })
  const job = await resend(id)
  expect(await until(job, ({ tally }) => (tally as { waiting?: string }).waiting === 'paused')).toMatchObject(
    { done: 0n },
  )
  await service.eraseUser(tenant, 'Uout')
  expect(receiver.received).toEqual([])
  await database.query(`update endpoint set status = 'active'`)
  await endOf(job)
  const sent = receiver.received.map(
    ({ body }) => JSON.parse(body) as { type: string; data: { userId: string } },
  )
  expect(sent.map(({ type, data }) => [type, data.userId])).toEqual([['member.updated', 'Uin']])
})

it('has a row for each column of an endpoint that decides, and a way for each operation', async () => {
  const { database } = await startReplaying(false)
  const columns = await database.query<{ name: string }>(
    `select attname as name from pg_attribute where attrelid = 'endpoint'::regclass and attnum > 0 and not attisdropped`,
  )
  const deciding = [
    ...Object.values(FILTERS).flatMap(({ columns = {} }) => Object.keys(columns)),
    'replies',
    'created_at',
  ]
  const others = [
    'id',
    'channel_oa_id',
    'name',
    'url',
    'format',
    'secret',
    'previous_secret',
    'allow_private_network',
  ]
  const feed = ['change_position', 'change_member', 'first_change', 'open_changes']
  expect(columns.map(({ name }) => name).sort()).toEqual([...deciding, ...others, ...feed].sort())
  const ways = [
    'deliveries',
    'delivery',
    'test',
    'retry',
    'ofPerson',
    'rehearse',
    'rehearseNew',
    'count',
    'countResend',
    'replay',
    'resend',
  ]
  const settings = [
    'list',
    'show',
    'history',
    'add',
    'update',
    'pause',
    'resume',
    'remove',
    'rotate',
    'finishRotation',
  ]
  const operations = Object.keys({ ...ENDPOINTS, ...REPLAYS })
  expect(operations.filter((name) => ![...ways, ...settings, 'discardRotation'].includes(name))).toEqual([])
})
