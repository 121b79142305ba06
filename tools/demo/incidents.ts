/**
 * Incidents of a fleet on the simulated platform, and the messages that notification channels receive about them. Nobody has to wait:
 * instead of letting an hour pass, the stored times are moved back by an hour.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import { addAccount, addOrganization } from '../../src/accounts/provisioning.ts'
import type { Verifier } from '../../src/accounts/verify.ts'
import type { Database } from '../../src/postgres/database.ts'
import { type Queryable, statement } from '../../src/postgres/statement.ts'
import { checkDueAccounts } from '../../src/watch/account-monitor.ts'
import { GROUP_SECONDS } from '../../src/watch/notifications/announce.ts'
import { accountWatch } from '../../src/watch/store-statuses.ts'
import { MISBEHAVIOURS, refuseCredentials } from '../simulator/misbehaviour.ts'
import type { SimulatedPlatform } from '../simulator/platform.ts'
import { randomAccount } from '../simulator/state.ts'

const FLEET_SIZE = 8
const SECONDS = { group: GROUP_SECONDS + 1, outage: 16 * 60 }

type ShopState = ReturnType<SimulatedPlatform['addAccount']>

interface IncidentParts {
  database: Database
  platform: SimulatedPlatform
  verifier: Omit<Verifier, 'database'>
  organizationId: bigint
  /** Runs after each incident, when its messages are due. */
  settle: (incident: string) => Promise<void>
}

/** Adds an organization with accounts whose webhooks lead here. */
export async function addShops(database: Database, platform: SimulatedPlatform, name: string) {
  const organizationId = await addOrganization(database, name)
  const shops: ShopState[] = []
  const accountIds: bigint[] = []
  for (let number = 1; number <= FLEET_SIZE; number += 1) {
    const simulated = randomAccount(`Shop ${number}`)
    const { id } = await addAccount(database, organizationId, {
      name: simulated.displayName,
      channel_id: simulated.channelId,
      channel_secret: simulated.channelSecret,
      channel_access_token: simulated.channelAccessToken,
      bot_user_id: simulated.botUserId,
    })
    const shop = platform.addAccount(simulated)
    shop.settings.webhook = { endpoint: `https://audience.example.com/api/line/${id}`, active: true }
    shops.push(shop)
    accountIds.push(id)
  }
  return { organizationId, accountIds, shops }
}

/** LINE refuses the token of one account, the webhooks of all others lead elsewhere, LINE itself is down, and everything is repaired. */
export async function playIncidents(parts: IncidentParts, shops: ShopState[]): Promise<void> {
  const { platform, settle } = parts
  const [first] = shops
  if (first === undefined) return
  first.settings.misbehaviour = refuseCredentials
  await observe(parts)
  await settle('The platform refuses the credentials of one account')

  const webhooks = shops.map(({ settings }) => settings.webhook)
  for (const { settings } of shops)
    settings.webhook = { endpoint: 'https://chat.example.com/line', active: true }
  await observe(parts)
  await settle('Somebody points the webhooks of all accounts to another service')

  platform.misbehave(MISBEHAVIOURS.error ?? null)
  await pass(parts.database, SECONDS.outage)
  await observe(parts)
  await settle('The platform itself is down')

  platform.misbehave(null)
  first.settings.misbehaviour = null
  for (const [index, { settings }] of shops.entries()) settings.webhook = webhooks[index] ?? null
  await observe(parts)
  await settle('Everything works again')
}

/** Checks all accounts, and lets two passes see the result, after which the messages are due. */
async function observe({ database, verifier, organizationId }: IncidentParts): Promise<void> {
  const [started] = await database.query<{ at: string }>(makeDue, [organizationId])
  while ((await checkDueAccounts(database, verifier)) > 0);
  // A service on the same database may have taken some of the checks.
  while ((await database.query(selectUnchecked, [organizationId, started?.at])).length > 0) await sleep(50)
  const watch = accountWatch(database)
  for (let passes = 0; passes < 2; passes += 1) {
    await pass(database, SECONDS.group)
    await watch()
  }
}

/** $1 organization id bigint */
const makeDue = statement('incidents-make-checks-due')`
    with made_due as (
      update account_check c set due_at = now()
        from official_account a where a.id = c.channel_oa_id and a.organization_id = $1)
    select now()::text as at`

/** $1 organization id bigint, $2 timestamptz */
const selectUnchecked = statement('incidents-select-unchecked')`
    select from account_check c join official_account a on a.id = c.channel_oa_id
     where a.organization_id = $1 and coalesce(c.checked_at, '-infinity') < $2 limit 1`

/** $1 seconds int */
const moveWatch = statement('incidents-move-watch')`
    update notification_watch
       set passed_at = passed_at - $1 * interval '1 second', platform_since = platform_since - $1 * interval '1 second'`
const moveMessages = statement('incidents-move-messages')`
    update notification set due_at = due_at - $1 * interval '1 second' where sent_at is null and attempts = 0`
const moveChecks = statement('incidents-move-checks')`
    update account_check set checked_at = checked_at - $1 * interval '1 second', status_since = status_since - $1 * interval '1 second'`
const moveSent = statement('incidents-move-sent')`
    with sent as (update notification_account set since = since - $1 * interval '1 second' where is_current)
    update notification_channel set outage_since = outage_since - $1 * interval '1 second'`

/** Moves the stored times back. */
async function pass(database: Queryable, seconds: number): Promise<void> {
  for (const move of [moveWatch, moveMessages, moveChecks, moveSent])
    await database.query(move, [Math.ceil(seconds)])
}

/** $1 organization id bigint */
const selectUnsent = statement('incidents-select-unsent')`
    select from notification n join notification_channel c on c.id = n.notification_channel_id
     where c.organization_id = $1 and n.sent_at is null limit 1`

/** Waits until all messages of the organization are sent. */
export async function untilSent(database: Queryable, organizationId: bigint): Promise<void> {
  while ((await database.query(selectUnsent, [organizationId])).length > 0) {
    await database.query(moveMessages, [SECONDS.group])
    await sleep(50)
  }
}
