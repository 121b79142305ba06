/** Texts about the checks of a verification. */
import type { Check, FailureReason } from '../../src/accounts/verification.ts'

export interface CheckTexts {
  names: Record<Check['name'], string>
  passed: Record<Check['name'], string>
  failed: Record<FailureReason, string>
}

/** Returns the service's English message if there is no table, or if a verification of an older version has no reason. */
export function describeCheck(texts: CheckTexts | null, check: Check): string {
  if (texts === null) return check.message
  return (check.ok ? texts.passed[check.name] : failureText(texts.failed, check)) ?? check.message
}

/** Returns the reason with LINE's status and message, or null if the check has no reason. */
export function failureText(failed: CheckTexts['failed'], check: Check | null): string | null {
  if (check?.reason === undefined || !Object.hasOwn(failed, check.reason)) return null
  const details = [check.status, check.platformMessage].filter((detail) => detail != null)
  const text = failed[check.reason]
  return details.length === 0 ? text : `${text} (${details.join(': ')})`
}
