/** Service stage of the protected routes: resolves the scope of the caller's API key. */
import type { AccountId, OrganizationId } from '../accounts/account.ts'
import { AppError } from '../errors.ts'
import type { Database } from '../postgres/database.ts'
import type { Row } from '../postgres/statement.ts'
import type { Caller } from './api-client.ts'

/** The official account and organization that a request may read and change. */
export interface Scope {
  /** id of the API key; null: the command line */
  keyId: bigint | null
  accountId: AccountId
  organizationId: OrganizationId
}

interface ScopeRow extends Row {
  id: bigint
  channel_oa_id: bigint
  organization_id: bigint
}

/** $1 api_client_id bigint, $2 key text */
const selectActiveKey = {
  name: 'active-api-key',
  text: `select id, channel_oa_id, organization_id from api_key
          where api_client_id = $1 and key = $2 and status = 'active'`,
}

/**
 * Returns null if the key is not active or belongs to another client. Each route answers that in its own way, before it
 * checks anything else of the request. Throws `caller_unknown` without the guard, and `internal` if the query fails.
 */
export async function findScope(database: Database, caller: Caller | null): Promise<Scope | null> {
  if (!caller?.apiKey) throw new AppError('caller_unknown')
  try {
    const [row] = await database.lookup<ScopeRow>('caller', selectActiveKey, [
      caller.apiClientId,
      caller.apiKey,
    ])
    return row ? { keyId: row.id, accountId: row.channel_oa_id, organizationId: row.organization_id } : null
  } catch (error) {
    throw new AppError('internal', { cause: error })
  }
}
