/** Limits webhook tests. The platform allows 60 per account and hour. The database counts them for all instances. */
import { AppError } from '../errors.ts'
import { type Queryable, statement } from '../postgres/statement.ts'
import type { AccountId } from './account.ts'

const TESTS_PER_HOUR = 60

/** $1 id bigint, $2 tests per hour integer. Starts a new hour if the last one is over. Returns no row at the limit. */
const countTest = statement('count-webhook-test')`
    update official_account
       set webhook_test_hour = case when webhook_test_hour > now() - interval '1 hour' then webhook_test_hour else now() end,
           webhook_test_count = case when webhook_test_hour > now() - interval '1 hour' then webhook_test_count else 0 end + 1
     where id = $1
       and (webhook_test_hour > now() - interval '1 hour' and webhook_test_count >= $2) is not true
    returning id`

/** $1 id bigint */
const selectSecondsLeft = statement('select-webhook-test-wait')`
    select ceil(extract(epoch from webhook_test_hour + interval '1 hour' - now()))::int as seconds
      from official_account
     where id = $1`

/** Counts one test. If the tests are used up, throws `platform_unavailable` with the seconds until the hour ends. */
export async function takeWebhookTest(database: Queryable, id: AccountId): Promise<void> {
  const [counted] = await database.query(countTest, [id, TESTS_PER_HOUR])
  if (counted !== undefined) return
  const [row] = await database.query<{ seconds: number }>(selectSecondsLeft, [id])
  throw new AppError('platform_unavailable', {
    message: `The platform tests a webhook ${TESTS_PER_HOUR} times an hour: try again later, or verify without testWebhook`,
    retryAfterSeconds: Math.max(1, row?.seconds ?? 1),
  })
}
