/** The person who is proven by the ID token of LINE that a page sends with its events. */

import { TRACKING_REQUEST_MAX_EVENTS } from '../../config/limits.ts'
import { AppError } from '../../errors.ts'
import { isObject } from '../../http/body.ts'
import type { IdTokens, TokenVerdict } from '../../line-api/id-tokens.ts'
import { RETRY_AFTER_SECONDS } from '../../line-api/login-keys.ts'
import { idTokenJudged } from '../../observability/facts.ts'
import { InvalidEvent } from '../event.ts'

export interface Proof {
  userId: string
  /** Null: the event was proven before it was stored, and the token is not. */
  token: string | null
}

export interface Proofs {
  /** Null: the event has no token, so anybody may have sent it. Throws InvalidEvent for a token that is not valid. */
  of: (event: unknown) => Proof | null
  /** An invalid token may be valid for the account as it is stored now. */
  dependOnAccount: boolean
}

const NO_CHANNEL: TokenVerdict = {
  isValid: false,
  fault: 'cannot be verified: the account has no login channel',
  isAboutChannel: true,
}

/**
 * Returns a function that judges the tokens of a request, once for each login channel.
 * @param headerToken of the header X-Line-Id-Token: counts for events without a token of their own
 */
export function createProver(
  idTokens: IdTokens,
  events: unknown[],
  headerToken: string | null,
): (loginChannelId: string | null) => Promise<Proofs> {
  const judged = new Map<string | null, Proofs>()
  return async (loginChannelId) => {
    const proofs = judged.get(loginChannelId) ?? (await prove(idTokens, events, headerToken, loginChannelId))
    judged.set(loginChannelId, proofs)
    return proofs
  }
}

/**
 * Throws `platform_unavailable` if a token needs a key that LINE does not deliver now, and `unavailable` if too many tokens wait. To
 * reject the event would lose it.
 */
async function prove(
  idTokens: IdTokens,
  events: unknown[],
  headerToken: string | null,
  loginChannelId: string | null,
): Promise<Proofs> {
  const tokens = new Set<string>()
  for (const event of events.slice(0, TRACKING_REQUEST_MAX_EVENTS)) {
    const token = tokenOf(event, headerToken)
    if (typeof token === 'string') tokens.add(token)
  }
  const verdicts =
    loginChannelId === null
      ? new Map([...tokens].map((token) => [token, NO_CHANNEL]))
      : await idTokens.verify(tokens, loginChannelId)
  if (verdicts === 'overloaded') throw new AppError('unavailable', { retryAfterSeconds: 1 })
  if (verdicts === 'unavailable') {
    idTokenJudged.publish({ outcome: 'unavailable' })
    throw new AppError('platform_unavailable', { retryAfterSeconds: RETRY_AFTER_SECONDS })
  }
  const judged = [...verdicts.values()]
  for (const { isValid } of judged) idTokenJudged.publish({ outcome: isValid ? 'valid' : 'invalid' })
  return {
    of: (event) => proofOf(tokenOf(event, headerToken), verdicts),
    dependOnAccount: judged.some((verdict) => !verdict.isValid && verdict.isAboutChannel),
  }
}

/** Whether any event has a token, valid or not. */
export function haveTokens(events: unknown[], headerToken: string | null): boolean {
  return events.some((event) => tokenOf(event, headerToken) !== null)
}

function proofOf(token: unknown, verdicts: ReadonlyMap<string, TokenVerdict>): Proof | null {
  if (token === null) return null
  const verdict = typeof token === 'string' ? verdicts.get(token) : undefined
  if (verdict === undefined) throw new InvalidEvent('the ID token is not a text')
  if (!verdict.isValid) throw new InvalidEvent(`the ID token ${verdict.fault}`)
  return { userId: verdict.userId, token: token as string }
}

/** `liff.getIDToken()` returns null to a page whose visitor is not logged in. */
function tokenOf(event: unknown, headerToken: string | null): unknown {
  const own = isObject(event) && isObject(event.context) ? event.context.idToken : null
  return own === undefined || own === null || own === '' ? headerToken : own
}
