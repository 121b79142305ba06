/** The report of followers: what a view reads from daily rows, and what counting the days of a large account costs. */
import { performance } from 'node:perf_hooks'
import { addAccount, addOrganization } from '../dist/src/accounts/provisioning.js'
import { lineDay, plusDays } from '../dist/src/line-api/line-day.js'
import { countAccountDays, countDaysOfSources } from '../dist/src/watch/account-days.js'
import { readReport } from '../dist/src/watch/report.js'
import { openDatabase } from './database.mjs'
import { median } from './load.mjs'

const dayBefore = (days) => plusDays(lineDay(Date.now()), -days)

export async function run({ smoke }) {
  const { database, close } = await openDatabase()
  try {
    const large = await addLarge(database, smoke ? 1_000 : 1_000_000, smoke ? 100 : 100_000)
    await database.session((session) => session.query('vacuum analyze'))
    const counts = {
      days: () => countAccountDays(database, large),
      sources: inSession(database, countDaysOfSources, large),
    }
    for (const [name, count] of Object.entries(counts)) {
      const [first, again] = [await timed(count), await timed(count)]
      console.log(
        `counting ${name} of a large account: first ${first.toFixed(0)} ms, again ${again.toFixed(0)} ms`,
      )
    }
    for (const accounts of smoke ? [10] : [2_000]) {
      await addAccounts(database, accounts)
      await view(database, `a month of ${accounts.toLocaleString('en')} accounts`, null, 30, smoke)
    }
    await view(database, 'a year of one account', large, 365, smoke)
  } finally {
    await close()
  }
}

const inSession = (database, work, id) => () => database.session((session) => work(session, id))

async function view(database, title, account, days, smoke) {
  const query = { from: dayBefore(days), to: dayBefore(1), organization: null, account }
  for (const by of ['total', 'day', 'month', 'account', 'organization', 'source']) {
    const times = []
    for (let i = 0; i < (smoke ? 1 : 5); i += 1)
      times.push(
        await timed(() => database.session((session) => readReport(session, null, { ...query, by }))),
      )
    console.log(`${title}, by ${by.padEnd(12)} ${median(times).toFixed(0)} ms`)
  }
}

async function timed(work) {
  const startedAt = performance.now()
  await work()
  return performance.now() - startedAt
}

/** An account of a million members, a third of them from 20 sources, with follows and unfollows in the last 62 days. */
async function addLarge(database, members, follows) {
  const organizationId = await addOrganization(database, 'bench')
  const { id } = await addAccount(database, organizationId, { name: 'large', channel_secret: '0'.repeat(32) })
  await database.session(async (session) => {
    await session.query(
      `insert into audience_member (channel_oa_id, organization_id, user_id, relationship, followed_at, first_followed_at, source,
                                    source_at, source_key, last_seen_at, profile_due_at)
       select $1, $2, 'U' || i, 'following', at, at, case when i % 3 = 0 then 'source-' || i % 20 end, at, gen_random_uuid(), at, null
         from (select i, now() - i % 1000 * interval '1 day' as at from generate_series(1, $3::int) i) person`,
      [id, organizationId, members],
    )
    await session.query(
      `insert into event (channel_oa_id, source, kind, key, occurred_at, user_id, payload)
       select $1, 'line', case when i % 3 = 0 then 'unfollow' else 'follow' end, gen_random_uuid(), now() - i % 62 * interval '1 day',
              'U' || i, '{"type":"follow","follow":{"isUnblocked":false}}'
         from generate_series(1, $2::int) i`,
      [id, follows],
    )
  })
  return id
}

/** With a year of days, and five sources on every third day. */
async function addAccounts(database, wanted) {
  await database.session(async (session) => {
    await session.query('set synchronous_commit = off')
    await session.query(
      `insert into official_account (organization_id, name, channel_id, channel_secret)
       select (select min(id) from organization), 'Account ' || i, i, '0'
         from generate_series((select count(*) from official_account), $1::int) i`,
      [wanted],
    )
    await session.query(
      `insert into account_day (channel_oa_id, day, following, line_followers, line_blocks, first_follows, returns, unfollows, blocked_within_7_days)
       select a.id, (now() at time zone 'UTC')::date - d, 900 - d, 1000 - d, 100, 3, 1, 2, 1
         from generate_series(365, 0, -1) d, official_account a
           on conflict do nothing`,
    )
    await session.query(
      `insert into source_day
       select a.id, (now() at time zone 'UTC')::date - d, 'source-' || s, 2, 0, 1, 0, 1, 1
         from generate_series(365, 0, -3) d, official_account a, generate_series(1, 5) s
           on conflict do nothing`,
    )
    await session.query('vacuum analyze')
  })
}
