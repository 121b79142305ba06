/** Requests of chosen accounts that PostgreSQL does not finish until the test releases them. */
import { expect, onTestFinished } from 'vitest'
import { SCAN_MAX } from '../../src/audience/list-statements.ts'
import { Metrics } from '../../src/observability/metrics.ts'
import { lineEvent } from '../../tools/simulator/events.ts'
import type { TextDatabase } from '../../tools/text-database.ts'
import { addTenant, createTestDatabase, markUsed, openDatabase, type Tenant } from './database.ts'
import { holdTransaction } from './locks.ts'
import { type Service, startApp } from './service.ts'

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

/** The service, a database of the test's own, and tenants with the members U1 and U2. */
export async function setUpTenants(tenantCount: number) {
  const { database: direct, connection } = await createTestDatabase()
  const database = openDatabase(connection)
  const metrics = new Metrics(['line'])
  metrics.watchDatabase(database)
  const service = await startApp(database, { metrics })
  onTestFinished(() => metrics.close())
  const tenants: Tenant[] = []
  for (let no = 0; no < tenantCount; no += 1) {
    const tenant = await addTenant(direct)
    await service.deliver(tenant, [lineEvent('follow', 'U1'), lineEvent('follow', 'U2')])
    tenants.push(tenant)
  }
  // The first use of an hour would take a connection of the pool for a moment.
  await markUsed(direct)
  return { direct, service, metrics, tenants: tenants as [Tenant, Tenant, Tenant] }
}

export const search = (service: Service, { headers }: Tenant) =>
  service.call('GET', '/api/audience?q=ann', { headers })

export const list = (service: Service, { headers }: Tenant) =>
  service.call('GET', '/api/audience', { headers })

export const health = (service: Service) => service.call('GET', '/api/health')

/** Resolves when this number of statements is stuck in the database. */
export const waitForStuck = (direct: TextDatabase, count: number) =>
  expect
    .poll(() =>
      direct.query(
        `select from pg_stat_activity where wait_event = 'PgSleep' and datname = current_database()`,
      ),
    )
    .toHaveLength(count)
