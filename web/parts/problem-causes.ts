/** Which problems are only consequences of another one: one card shows both. */
import type { Problem, Reason } from '../../src/watch/account-status.ts'
import type { Json } from '../api.ts'

const SILENCE: Reason[] = ['never_delivered', 'unusually_quiet', 'silent_for_days', 'deliveries_missing']

export const CONSEQUENCES: Partial<Record<Reason, Reason[]>> = {
  no_channel_secret: [...SILENCE, 'line_signature_refused', 'webhook_test_failed', 'not_verifiable'],
  suspended: [...SILENCE, 'token_refused', 'webhook_test_failed', 'webhook_inactive'],
  token_refused: ['token_expires'],
  webhook_elsewhere: [...SILENCE, 'webhook_test_failed', 'answered_elsewhere'],
  webhook_inactive: [...SILENCE, 'webhook_test_failed'],
  webhook_test_failed: [...SILENCE, 'line_signature_refused', 'line_signature_doubtful'],
  line_signature_refused: SILENCE,
  module_detached: SILENCE,
  answered_elsewhere: SILENCE,
  redelivery_off: ['deliveries_missing'],
  duplicate_bot: SILENCE,
  endpoint_failing: ['endpoint_failed'],
}

export interface Cause {
  problem: Json<Problem>
  consequences: Array<Json<Problem>>
}

/** @param problems worst first, which explains others: see `assessAccount` */
export function causesOf(problems: Array<Json<Problem>>): Cause[] {
  const causes: Cause[] = []
  for (const problem of problems) {
    const cause = causes.find((each) => CONSEQUENCES[each.problem.reason]?.includes(problem.reason))
    if (cause) cause.consequences.push(problem)
    else causes.push({ problem, consequences: [] })
  }
  return causes
}
