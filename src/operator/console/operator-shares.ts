/** Limits what one operator, and the operators of one organization, do at the same time. */
import { AppError } from '../../errors.ts'
import type { Share } from '../../http/shares.ts'
import type { Operator } from '../actor.ts'

const RETRY_AFTER_SECONDS = 2

export const refuseBusy = () => new AppError('busy', { retryAfterSeconds: RETRY_AFTER_SECONDS })

/**
 * The shares of an operator and of the organizations that this operator is limited to. A team shares CONSOLE_TOKEN, so its holders have
 * no limit here.
 */
export function sharesOf(
  { operatorId, organizationIds }: Operator,
  max: { operator: number; organization: number },
): Share[] {
  const ofOperator = operatorId === null ? [] : [{ key: `operator ${operatorId}`, max: max.operator }]
  const ofOrganizations = (organizationIds ?? []).map((id) => ({
    key: `organization ${id}`,
    max: max.organization,
  }))
  return [...ofOperator, ...ofOrganizations].map((share) => ({ ...share, refusal: refuseBusy }))
}
