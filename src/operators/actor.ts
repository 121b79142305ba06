/** Who operates the service: what they may do, and which organizations they see. */
import { hostname, userInfo } from 'node:os'
import type { OrganizationId } from '../ids.ts'

/** Each role includes the ones before it. */
export const ROLES = ['viewer', 'manager', 'owner'] as const
/**
 * viewer: sees everything of the organizations. manager: also changes accounts, endpoints, clients, keys and members. owner: also
 * manages organizations and operators, and reads the whole activity log.
 */
export type Role = (typeof ROLES)[number]

/** null: all; required by every query of operators */
export type OrganizationIds = OrganizationId[] | null
export const ALL_ORGANIZATIONS: OrganizationIds = null

export const seesAll = (seen: OrganizationIds, ids: OrganizationIds): boolean =>
  seen === null || ids?.every((id) => seen.includes(id)) === true

export interface Actor {
  kind: 'operator' | 'token' | 'command' | 'service'
  operatorId: bigint | null
  /** in the activity log: an email address, `token`, `user@host` of a command, or `service` */
  name: string
  organizationIds: OrganizationIds
  requestId: string | null
}

export interface Operator extends Actor {
  kind: 'operator' | 'token'
  role: Role
}

export const includesRole = (held: Role, needed: Role): boolean =>
  ROLES.indexOf(held) >= ROLES.indexOf(needed)

export const SERVICE: Actor = {
  kind: 'service',
  operatorId: null,
  name: 'service',
  organizationIds: ALL_ORGANIZATIONS,
  requestId: null,
}

/** The person who runs a command. A container may have no name for its user. */
export function commandActor(): Actor {
  const name = `${userName()}@${hostname()}`
  return { kind: 'command', operatorId: null, name, organizationIds: ALL_ORGANIZATIONS, requestId: null }
}

function userName(): string {
  try {
    return userInfo().username
  } catch {
    return `user ${process.getuid?.() ?? ''}`.trim()
  }
}
