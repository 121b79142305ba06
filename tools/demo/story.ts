/** Two weeks of fictitious operators in the activity log of the demo. The log itself is written with each change, so it has no past. */
import type { OrganizationId } from '../../src/ids.ts'
import type { Action, Changes, ObjectKind } from '../../src/operators/activity.ts'
import type { Role } from '../../src/operators/actor.ts'
import { type Queryable, statement, type Transactions } from '../../src/postgres/statement.ts'

const NAOMI = 'naomi.sato@example.com'
const KRIT = 'krit.wongsa@example.com'
const ELENA = 'elena.ruiz@example.com'

/** Nobody has a password, so the page for signing in still asks for the token. */
const OPERATORS: Array<{ email: string; name: string; role: Role; seesAll: boolean }> = [
  { email: NAOMI, name: 'Naomi Sato', role: 'owner', seesAll: true },
  { email: KRIT, name: 'Krit Wongsa', role: 'manager', seesAll: false },
  { email: ELENA, name: 'Elena Ruiz', role: 'viewer', seesAll: false },
]

interface Row {
  daysAgo: number
  /** UTC */
  time: string
  /** an operator's address, `token` or `service` */
  actor: string
  action: Action
  /** name of the account */
  account?: string
  /** address of the operator whom an owner changed */
  operator?: string
  changes?: Changes
}

const OLD_URL = 'https://loyalty.example/v1/hooks'
const URL = 'https://loyalty.example/hooks'

/** Oldest first. It fits what the fleet shows: see fleet.ts. */
function storyOf(organization: { id: OrganizationId; name: string }, accounts: string[]): Row[] {
  const invited = (email: string, role: Role, organizationIds: OrganizationId[] | null): Partial<Row> => ({
    operator: email,
    changes: { email: [null, email], role: [null, role], organizationIds: [null, organizationIds] },
  })
  const [naomi, krit, gym] = [{ actor: NAOMI }, { actor: KRIT }, { account: 'Green Gym' }]
  const [token, service] = [{ actor: 'token' }, { actor: 'service' }]
  const added: Row[] = accounts.map((account) => ({
    daysAgo: 13,
    time: '01:05:10',
    ...naomi,
    action: 'account.added',
    account,
    changes: { name: [null, account], channelSecret: 'replaced' },
  }))
  const some = [organization.id]
  return [
    { daysAgo: 14, time: '02:10', ...token, action: 'operator.added', ...invited(NAOMI, 'owner', null) },
    {
      daysAgo: 13,
      time: '01:02',
      ...naomi,
      action: 'organization.added' as const,
      changes: { name: [null, organization.name] },
    },
    ...added,
    {
      daysAgo: 13,
      time: '01:05:10',
      ...naomi,
      action: 'job.started' as const,
      changes: { kind: 'accounts.onboard', accounts: added.length, setsWebhook: true },
    },
    { daysAgo: 13, time: '01:20', ...naomi, action: 'operator.added', ...invited(KRIT, 'manager', some) },
    {
      daysAgo: 12,
      time: '03:12',
      ...krit,
      action: 'account.followers_imported' as const,
      account: 'ร้านกาแฟดอยช้าง',
      changes: { seen: 590, added: 571, skipped: 0 },
    },
    {
      daysAgo: 11,
      time: '05:40',
      ...krit,
      action: 'endpoint.added' as const,
      ...gym,
      changes: { url: [null, OLD_URL], format: [null, 'line'] },
    },
    { daysAgo: 9, time: '02:31', ...service, action: 'endpoint.gone', ...gym },
    {
      daysAgo: 9,
      time: '06:04',
      ...krit,
      action: 'endpoint.updated' as const,
      ...gym,
      changes: { url: [OLD_URL, URL] },
    },
    { daysAgo: 9, time: '06:05', ...krit, action: 'endpoint.resumed', ...gym },
    { daysAgo: 7, time: '08:17', ...service, action: 'account.suspended', account: 'Hotel Aurora' },
    { daysAgo: 6, time: '01:50', ...service, action: 'account.resumed', account: 'Hotel Aurora' },
    {
      daysAgo: 5,
      time: '04:22',
      ...krit,
      action: 'account.updated' as const,
      account: 'Momo Books',
      changes: { channelSecret: 'replaced' },
    },
    {
      daysAgo: 5,
      time: '04:23',
      ...krit,
      action: 'account.verified' as const,
      account: 'Momo Books',
      changes: { verified: false, failed: ['access_token'] },
    },
    { daysAgo: 3, time: '07:35', ...naomi, action: 'member.erased', account: 'Sakura Pharmacy さくら薬局' },
    { daysAgo: 2, time: '02:00', ...krit, action: 'endpoint.paused', ...gym },
    { daysAgo: 2, time: '03:30', ...krit, action: 'endpoint.resumed', ...gym },
    { daysAgo: 1, time: '09:15', ...naomi, action: 'operator.added', ...invited(ELENA, 'viewer', some) },
  ]
}

/** Adds the operators and their story once: the demo may be started again on the same data. */
export async function addStory(
  database: Transactions,
  organization: { id: OrganizationId; name: string },
): Promise<void> {
  await database.transaction(async (transaction) => {
    const operators = new Map<string, bigint>()
    for (const { email, name, role, seesAll } of OPERATORS) {
      const ids = seesAll ? null : [organization.id]
      const [added] = await transaction.query<{ id: bigint }>(insertOperator, [email, name, role, ids])
      if (added === undefined) return
      operators.set(email, added.id)
    }
    const accounts = await transaction.query<StoredAccount>(selectAccounts, [organization.id])
    const names = accounts.map(({ name }) => name)
    for (const row of storyOf(organization, names)) {
      const account = accounts.find(({ name }) => name === row.account)
      await insertRow(transaction, row, { operators, account, organizationId: organization.id })
    }
  })
}

type StoredAccount = { id: bigint; name: string; endpointId: bigint | null; erasedId: bigint | null }

async function insertRow(
  transaction: Queryable,
  { daysAgo, time, actor, action, operator = '', changes = {} }: Row,
  {
    operators,
    account,
    organizationId,
  }: {
    operators: Map<string, bigint>
    account: StoredAccount | undefined
    organizationId: OrganizationId
  },
): Promise<void> {
  const objectKind = action.split('.')[0] as ObjectKind
  const objectIds: Partial<Record<ObjectKind, bigint | null | undefined>> = {
    organization: organizationId,
    account: account?.id,
    endpoint: account?.endpointId,
    member: account?.erasedId,
    operator: operators.get(operator),
  }
  const json = JSON.stringify(changes, (_name, value) => (typeof value === 'bigint' ? String(value) : value))
  await transaction.query(insertActivity, [
    daysAgo,
    time,
    operators.has(actor) ? 'operator' : actor,
    operators.get(actor) ?? null,
    actor,
    action,
    organizationId,
    account?.id ?? null,
    objectKind,
    objectIds[objectKind] ?? null,
    json,
  ])
}

/** $1 email text, $2 name text, $3 role text, $4 organization ids bigint[] or null. No row if the operator exists. */
const insertOperator = statement('demo-insert-operator')`
    insert into operator (email, name, role, organization_ids, created_at, signed_in_at)
    select $1::text, $2, $3::text, $4, now() - interval '14 days', case when $3 <> 'viewer' then now() - interval '1 day' end
     where not exists (select from operator where email = $1)
    returning id`

/** `erasedId`: the id of a member of another account, so no member of this account has it. $1 organization id bigint */
const selectAccounts = statement('demo-select-accounts')`
    select a.id, a.name, (select min(id) from endpoint where channel_oa_id = a.id) as "endpointId",
           (select max(id) + 1 from audience_member where channel_oa_id = a.id) as "erasedId"
      from official_account a where a.organization_id = $1 order by a.id`

/**
 * $1 days ago int, $2 time of that day in UTC time, $3 actor kind text, $4 operator id bigint or null, $5 actor text, $6 action text,
 * $7 organization id bigint, $8 account id bigint or null, $9 object kind text, $10 object id bigint or null, $11 changes jsonb
 */
const insertActivity = statement('demo-insert-activity')`
    insert into activity (occurred_at, actor_kind, operator_id, actor, action, organization_id, channel_oa_id, object_kind, object_id,
                          changes)
    values (((now() at time zone 'UTC')::date - $1::int + $2::time) at time zone 'UTC', $3, $4, $5, $6, $7, $8, $9, $10::bigint::text,
            $11)`
