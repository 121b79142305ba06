/** Objects of every kind. */
import { randomUUID } from 'node:crypto'
import { lineEvent } from '../../tools/simulator/events.ts'
import type { TextDatabase } from '../../tools/text-database.ts'
import type { Objects } from './console-routes.ts'
import type { Tenant } from './database.ts'
import { load } from './load.ts'
import type { Service } from './service.ts'

interface Here {
  database: TextDatabase
  service: Pick<Service, 'deliver'>
}

/** Gives a tenant an object of each kind. @param mark appears in every text of them */
export async function addObjects(
  { database, service }: Here,
  tenant: Tenant,
  { mark, requestId = randomUUID() }: { mark: string; requestId?: string },
): Promise<Objects> {
  const one = async (text: string, values: unknown[]): Promise<string> => {
    const [row] = await load<{ id: bigint }>(database, text, values)
    return String(row?.id)
  }
  const { accountId, organizationId } = tenant
  const account = [accountId]
  await load(database, `update organization set name = $2 where id = $1`, [organizationId, mark])
  await load(database, `update official_account set name = $2 where id = $1`, [accountId, mark])
  await service.deliver(tenant, [lineEvent('follow', `U-${mark}`)])
  await load(database, `update audience_member set display_name = $2 where channel_oa_id = $1`, [
    accountId,
    mark,
  ])
  await load(
    database,
    `insert into event (channel_oa_id, source, kind, key, occurred_at, failure, payload)
     values ($1, 'line', 'message', $2, now(), $3, '{}')`,
    [accountId, randomUUID(), mark],
  )
  const endpoint = await one(
    `insert into endpoint (channel_oa_id, name, url, format) values ($1, $2, 'https://' || $2 || '.example/', 'members') returning id`,
    [accountId, mark],
  )
  await load(
    database,
    `update api_client set name = $2 where id = (select api_client_id from api_key where channel_oa_id = $1)`,
    [accountId, mark],
  )
  // A row that has joined: signing in takes half a second of hashing.
  const operator = await one(
    `insert into operator (email, role, organization_ids, signed_in_at)
     values (lower('somebody@' || $1 || '.example'), 'viewer', array[$2::bigint], now()) returning id`,
    [mark, organizationId],
  )
  await load(
    database,
    `insert into activity (actor_kind, actor, action, organization_id, channel_oa_id, object_kind, object_id, operator_id, request_id)
     values ('operator', $2, 'account.updated', $1, $3::bigint, 'account', $3::bigint::text, $4, $5)`,
    [organizationId, mark, accountId, operator, requestId],
  )
  return {
    organization: String(organizationId),
    account: String(accountId),
    userId: `U-${mark}`,
    member: await one(`select id from audience_member where channel_oa_id = $1`, account),
    endpoint,
    delivery: await one(
      `insert into endpoint_delivery (channel_oa_id, endpoint_id, type, created_at) values ($1, $2, 'account.verified', now()) returning id`,
      [accountId, endpoint],
    ),
    segment: await one(
      `insert into segment (channel_oa_id, name, condition) values ($1, $2, '{}') returning id`,
      [accountId, mark],
    ),
    client: await one(`select api_client_id as id from api_key where channel_oa_id = $1`, account),
    key: await one(`select id from api_key where channel_oa_id = $1`, account),
    event: await one(`select id from event where channel_oa_id = $1 and failure is not null`, account),
    operator,
    channel: await one(
      `insert into notification_channel (organization_id, name, format, target)
       values ($1, $2, 'email', $2 || '@example.com') returning id`,
      [organizationId, mark],
    ),
    task: await one(
      `insert into job (kind, channel_oa_id, organization_id, actor_kind, actor, parameters, status)
       values ('members.import', $1, $2, 'command', $3, '{"format":"csv","size":2}', 'uploading') returning id`,
      [accountId, organizationId, mark],
    ),
  }
}
