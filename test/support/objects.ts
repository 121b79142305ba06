/** Objects of every kind. */
import { randomUUID } from 'node:crypto'
import { ulid } from '../../tools/simulator/events.ts'
import type { TextDatabase } from '../../tools/text-database.ts'
import type { Objects } from './console-routes.ts'
import type { Tenant } from './database.ts'
import { addFailedEvent, insertRow } from './load.ts'
import type { Service } from './service.ts'

interface Here {
  database: TextDatabase
  service: Pick<Service, 'addFollower'>
}

/** Gives a tenant an object of each kind. @param mark appears in every text of them */
export async function addObjects(
  { database, service }: Here,
  tenant: Tenant,
  { mark }: { mark: string },
): Promise<Objects> {
  const { accountId, organizationId } = tenant
  const add = async (table: string, columns: Record<string, unknown>) =>
    String(await insertRow(database, table, columns))
  const idOf = async (text: string) => {
    const [row] = await database.query<{ id: bigint }>(text, [accountId])
    return String(row?.id)
  }
  const ofAccount = { channel_oa_id: accountId }
  const { eventKey, requestId } = { eventKey: ulid(Date.now()), requestId: randomUUID() }
  const { id: member, userId } = await service.addFollower(tenant, { webhookEventId: eventKey })
  await database.query('update organization set name = $2 where id = $1', [organizationId, mark])
  for (const change of [
    'update official_account set name = $2 where id = $1',
    'update api_client set name = $2 where id = (select api_client_id from api_key where channel_oa_id = $1)',
  ])
    await database.query(change, [accountId, mark])
  await database.query('update audience_member set display_name = $2 where id = $1', [member, mark])
  const url = `https://${mark}.example/`
  const endpoint = await add('endpoint', { ...ofAccount, name: mark, url, format: 'members' })
  // A row that has joined: signing in takes half a second of hashing.
  const operator = await add('operator', {
    ...{ email: `somebody@${mark}.example`.toLowerCase(), role: 'viewer' },
    ...{ organization_ids: [organizationId], signed_in_at: new Date() },
  })
  await add('activity', {
    ...{ actor_kind: 'operator', actor: mark, action: 'endpoint.added', organization_id: organizationId },
    ...{ ...ofAccount, object_kind: 'endpoint', object_id: endpoint },
    ...{ operator_id: operator, request_id: requestId },
  })
  return {
    organization: String(organizationId),
    account: String(accountId),
    ...{ userId, member, endpoint, eventKey, requestId },
    delivery: await add('endpoint_delivery', {
      ...{ ...ofAccount, endpoint_id: endpoint, type: 'account.verified', created_at: new Date() },
    }),
    segment: await add('segment', { ...ofAccount, name: mark, condition: '{}' }),
    client: await idOf('select api_client_id as id from api_key where channel_oa_id = $1'),
    key: await idOf('select id from api_key where channel_oa_id = $1'),
    event: await addFailedEvent(database, tenant, mark),
    failure: mark,
    operator,
    channel: await add('notification_channel', {
      ...{ organization_id: organizationId, name: mark, format: 'email', target: `${mark}@example.com` },
    }),
    job: await add('job', {
      ...{ kind: 'members.import', ...ofAccount, organization_id: organizationId, status: 'uploading' },
      ...{ actor_kind: 'command', actor: mark, parameters: '{"format":"csv","size":2}' },
    }),
  }
}
