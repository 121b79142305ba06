/** The platform tests an account's webhook 60 times an hour and no more: counted in the database, for all instances. */
import { AppError } from '../errors.ts'
import type { Queryable } from '../postgres/statement.ts'
import type { AccountId } from './account.ts'

const TESTS_PER_HOUR = 60

/** Counts one test. Throws `platform_unavailable` with the time until the hour is over, without a call, if they are used up. */
export async function takeWebhookTest(database: Queryable, id: AccountId): Promise<void> {
  const [taken] = await database.query(
    `update official_account
        set webhook_test_hour = case when webhook_test_hour > now() - interval '1 hour' then webhook_test_hour else now() end,
            webhook_test_count = case when webhook_test_hour > now() - interval '1 hour' then webhook_test_count else 0 end + 1
      where id = $1
        and (webhook_test_hour > now() - interval '1 hour' and webhook_test_count >= $2) is not true
     returning id`,
    [id, TESTS_PER_HOUR],
  )
  if (taken !== undefined) return
  const [row] = await database.query<{ seconds: number }>(
    `select ceil(extract(epoch from webhook_test_hour + interval '1 hour' - now()))::int as seconds
       from official_account where id = $1`,
    [id],
  )
  throw new AppError('platform_unavailable', {
    message: `The platform tests a webhook ${TESTS_PER_HOUR} times an hour: try again later, or verify without testWebhook`,
    retryAfterSeconds: Math.max(1, row?.seconds ?? 1),
  })
}
