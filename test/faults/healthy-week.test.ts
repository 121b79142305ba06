/** Accounts that work raise nothing in a week, with quiet nights, weekends and a rhythm of their own each. */
import { expect, it } from 'vitest'
import { refreshDueFigures } from '../../src/watch/account-figures.ts'
import { accountWatch, confirmStatuses } from '../../src/watch/store-statuses.ts'
import { addTenant, createTestDatabase } from '../support/database.ts'
import { load } from '../support/load.ts'

/** Twice each hour of the day on each day of the week. */
const ACCOUNTS = 336
/** Meets every hour of the day in turn. */
const STEP_HOURS = 11
const WEEK_HOURS = 168

/** $1 organization bigint, $2 number of accounts int */
const insertAccounts = `
  insert into official_account (organization_id, name, channel_id, channel_secret, channel_access_token, bot_user_id, created_at,
                                verification, verified_at)
  select $1, 'Shop ' || i, i::text, 'secret', 'token', 'U' || md5(i::text), now() - interval '60 days',
         '{"verified":true,"checks":[]}', now()
    from generate_series(1, $2::int) i`

/**
 * The deliveries of five weeks that end in the given hour of the week. An account delivers in four hours of its day, some at night, and
 * every seventh one rests on two days of the week. One delivery in fifty is missing, by a hash.
 *
 * $1 int: hours that have passed
 */
const insertDeliveries = `
  insert into delivery_hour (channel_oa_id, hour, source, deliveries, accepted, last_at)
  select a.id, hour, 'line', 3, 3, hour + interval '20 minutes'
    from official_account a
   cross join generate_series(date_trunc('hour', now()) - interval '35 days', date_trunc('hour', now()), interval '1 hour') hour
   cross join lateral (select (extract(epoch from hour) / 3600)::bigint + $1 as number) h
   where (h.number + a.id) % 24 in (9, 12, 18, 21)
     and (a.id % 7 > 0 or (h.number / 24) % 7 < 5)
     and hashint8(h.number * 100000 + a.id) % 50 <> 0 and hour + interval '20 minutes' < now()`

const insertDays = `
  insert into account_day (channel_oa_id, day, members, following, blocked, first_follows, returns, unfollows, line_followers, line_blocks)
  select id, (now() at time zone 'UTC' + interval '9 hours')::date - age, 1000 - age, 900 - age, 100, 1, 0, 0, 1000 - age, 100
    from official_account, generate_series(0, 30) age`

it('336 accounts that work raise no problem in a week', async () => {
  const { database } = await createTestDatabase()
  const { organizationId } = await addTenant(database)
  await load(database, insertAccounts, [organizationId, ACCOUNTS])
  await load(database, `delete from official_account where name !~ '^Shop'`)
  await load(database, insertDays)
  await load(
    database,
    `insert into notification_channel (name, format, target) values ('Chat', 'slack', 'https://chat.example.com')`,
  )
  const watch = accountWatch(database)
  for (let hours = 0; hours <= WEEK_HOURS; hours += STEP_HOURS) {
    await load(database, 'delete from delivery_hour')
    await load(database, insertDeliveries, [hours])
    await load(
      database,
      `update account_check set checked_at = now(), due_at = 'infinity', count_due_at = now(), counted_at = now(), fault = null`,
    )
    while ((await refreshDueFigures(database)) > 0);
    await confirmStatuses(database)
    await load(database, `update notification_watch set passed_at = passed_at - interval '1 minute'`)
    await watch()
    const raised = await load(
      database,
      `select channel_oa_id, status, problems from account_check where status <> 'ok' order by channel_oa_id limit 5`,
    )
    expect(raised, `after ${hours} hours`).toEqual([])
  }
  expect(await load(database, 'select from account_check where status = $1', ['ok'])).toHaveLength(ACCOUNTS)
  expect(await load(database, 'select from notification')).toEqual([])
})
