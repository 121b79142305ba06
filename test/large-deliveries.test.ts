/** A large delivery is committed in slices, and other accounts wait for a slice of it only. */
import { expect, it } from 'vitest'
import { lineEvent, randomUserId } from '../tools/simulator/events.ts'
import { addTenant } from './support/database.ts'
import { setUpService } from './support/service.ts'

const { database, service } = await setUpService()

/** Some 30 slices of 128 people, below 1 MiB. */
const EVENTS = 4_000
const follows = (count: number) => Array.from({ length: count }, () => lineEvent('follow', randomUserId()))

it('a delivery of another account is answered while a large one that came before is being stored', async () => {
  const [tenant, other] = [await addTenant(database), await addTenant(database)]
  const answered: string[] = []
  const large = service.deliver(tenant, follows(EVENTS)).then(({ json }) => {
    answered.push('large')
    return json
  })
  await expect
    .poll(() => database.query('select from event where channel_oa_id = $1 limit 1', [tenant.accountId]))
    .not.toHaveLength(0)
  await service.deliver(other, follows(1)).then(() => answered.push('small'))
  expect(await large).toEqual({ accepted: EVENTS, duplicates: 0 })
  expect(answered).toEqual(['small', 'large'])
})

it('each event counts once, also if it is in several slices and the delivery is repeated at the same time', async () => {
  const tenant = await addTenant(database)
  const events = follows(300)
  const twice = [...events, ...events]
  expect((await service.deliver(tenant, twice)).json).toEqual({ accepted: 300, duplicates: 300 })
  const more = [...follows(300), ...events]
  const answers = await Promise.all([more, more.toReversed()].map((each) => service.deliver(tenant, each)))
  const accepted = answers.map(({ json }) => (json as { accepted: number }).accepted)
  expect(accepted.reduce((sum, count) => sum + count)).toBe(300)
  const [counted] = await database.query(
    `select count(*)::int as members, sum(event_count)::int as events from audience_member where channel_oa_id = $1`,
    [tenant.accountId],
  )
  expect(counted).toEqual({ members: 600, events: 600 })
})
