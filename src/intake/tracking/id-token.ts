/** Proves the person of tracking events by an ID token of LINE. */
import { TRACKING_REQUEST_MAX_EVENTS } from '../../config/limits.ts'
import { AppError } from '../../errors.ts'
import { isObject } from '../../http/body.ts'
import type { IdTokens, TokenVerdict } from '../../line-api/id-tokens.ts'
import { RETRY_AFTER_SECONDS } from '../../line-api/login-keys.ts'
import { idTokenVerified } from '../../observability/facts.ts'
import { InvalidEvent } from '../event.ts'

export interface Proof {
  userId: string
  /** Null: the event was read from storage, which does not contain the token. */
  token: string | null
}

export interface Proofs {
  /** Null: the event has no token, so anybody may have sent it. Throws InvalidEvent for an invalid token. */
  of: (event: unknown) => Proof | null
  /** The account may be outdated: a token that is invalid for its login channel may be valid for the current one. */
  dependOnAccount: boolean
}

const NO_CHANNEL: TokenVerdict = {
  isValid: false,
  fault: 'cannot be verified: the account has no login channel',
  isAboutChannel: true,
}

/**
 * Returns a function that verifies the tokens of a request, once for each list of login channels.
 * @param headerToken the header X-Line-Id-Token, which applies to events without a token of their own
 */
export function createProver(
  idTokens: IdTokens,
  events: unknown[],
  headerToken: string | null,
): (loginChannelIds: string[]) => Promise<Proofs> {
  const proofsOf = new Map<string, Proofs>()
  return async (loginChannelIds) => {
    const key = loginChannelIds.join(' ')
    const proofs = proofsOf.get(key) ?? (await prove(idTokens, events, headerToken, loginChannelIds))
    proofsOf.set(key, proofs)
    return proofs
  }
}

/**
 * Throws `platform_unavailable` if a token needs a key that LINE does not return now, and `unavailable` if too many tokens wait. The
 * events are not rejected, because their sender would drop them.
 */
async function prove(
  idTokens: IdTokens,
  events: unknown[],
  headerToken: string | null,
  loginChannelIds: string[],
): Promise<Proofs> {
  const tokens = new Set<string>()
  for (const event of events.slice(0, TRACKING_REQUEST_MAX_EVENTS)) {
    const token = tokenOf(event, headerToken)
    if (typeof token === 'string') tokens.add(token)
  }
  const verdicts =
    loginChannelIds.length === 0
      ? new Map([...tokens].map((token) => [token, NO_CHANNEL]))
      : await idTokens.verify(tokens, loginChannelIds)
  if (verdicts === 'overloaded') throw new AppError('unavailable', { retryAfterSeconds: 1 })
  if (verdicts === 'unavailable') {
    idTokenVerified.publish({ outcome: 'unavailable' })
    throw new AppError('platform_unavailable', { retryAfterSeconds: RETRY_AFTER_SECONDS })
  }
  const results = [...verdicts.values()]
  for (const { isValid } of results) idTokenVerified.publish({ outcome: isValid ? 'valid' : 'invalid' })
  return {
    of: (event) => proofOf(tokenOf(event, headerToken), verdicts),
    dependOnAccount: results.some((verdict) => !verdict.isValid && verdict.isAboutChannel),
  }
}

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

/** `liff.getIDToken()` returns null if the visitor is not logged in. */
function tokenOf(event: unknown, headerToken: string | null): unknown {
  const own = isObject(event) && isObject(event.context) ? event.context.idToken : null
  return own === undefined || own === null || own === '' ? headerToken : own
}
