/** Requests of chosen accounts that PostgreSQL does not finish until the test releases them. */
import { SCAN_MAX } from '../../src/audience/list-statements.ts'
import type { TextDatabase } from '../../tools/text-database.ts'
import type { Tenant } from './database.ts'
import { holdTransaction } from './locks.ts'

/**
 * Makes name searches (`q`) and updates of these accounts busy until the returned function runs, or until their statement
 * timeout of 5 s. They do not wait for a lock, so no lock timeout ends them earlier.
 */
export async function makeStuck(database: TextDatabase, tenants: Tenant[]): Promise<() => Promise<void>> {
  const accounts = tenants.map(({ accountId }) => accountId).join(',')
  const spin = `loop
      exit when pg_try_advisory_xact_lock_shared(7);
      perform pg_sleep(0.01);
    end loop;`
  await database.session(async (session) => {
    // Searches use the index of names only if the first candidates do not fill the page.
    for (const { accountId, organizationId } of tenants) {
      await session.query(
        `insert into audience_member (channel_oa_id, organization_id, user_id)
         select $1, $2, 'M' || i from generate_series(1, ${SCAN_MAX}) i`,
        [accountId, organizationId],
      )
    }
    await session.query(
      `create or replace function part_ngrams(account bigint, part text) returns bigint[] language plpgsql immutable as
         $$ begin if account in (${accounts}) then ${spin} end if; return name_ngrams(account, part); end $$`,
    )
    await session.query(
      `create or replace function spin() returns trigger language plpgsql as $$ begin ${spin} return new; end $$`,
    )
    await session.query(
      `create or replace trigger spin before update on audience_member for each row
         when (new.channel_oa_id in (${accounts})) execute function spin()`,
    )
  })
  return holdTransaction(database, 'select pg_advisory_xact_lock(7)')
}
