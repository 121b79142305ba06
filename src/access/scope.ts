/** Service stage of the protected routes: what the caller may touch. */
import type { AccountId, OrganizationId } from '../accounts/account.ts'
import { AppError } from '../errors.ts'
import type { Database } from '../postgres/database.ts'
import type { Row } from '../postgres/statement.ts'
import type { Caller } from './api-client.ts'

/** One official account and one organization: the limits of everything that a request may see. */
export interface Scope {
  /** of the api key; null: the command line */
  keyId: bigint | null
  accountId: AccountId
  organizationId: OrganizationId
}

interface ScopeRow extends Row {
  id: bigint
  channel_oa_id: bigint
  organization_id: bigint
}

const selectActiveKey = {
  name: 'active-api-key',
  text: `select id, channel_oa_id, organization_id from api_key
          where api_client_id = $1 and key = $2 and status = 'active'`,
}

/**
 * The scope of the caller's key, or null where the key is not this client's or not active: each route has its
 * own answer to that. Asked on every request and before anything else of the request is judged.
 * Throws `caller_unknown` where the guard was bypassed, `internal` where the database fails.
 */
export async function findScope(database: Database, caller: Caller | null): Promise<Scope | null> {
  if (!caller?.apiClientId || !caller.apiKey) throw new AppError('caller_unknown')
  try {
    const [row] = await database.lookup<ScopeRow>(selectActiveKey, [caller.apiClientId, caller.apiKey])
    return row ? { keyId: row.id, accountId: row.channel_oa_id, organizationId: row.organization_id } : null
  } catch (error) {
    throw new AppError('internal', { cause: error })
  }
}
