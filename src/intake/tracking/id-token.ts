/** Proves the person of tracking events by an ID token of LINE. */
import { TRACKING_REQUEST_MAX_EVENTS } from '../../config/limits.ts'
import { isObject } from '../../http/body.ts'
import type { IdTokens, TokenVerdict } from '../../line-api/id-tokens.ts'
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
  hasTokens: boolean
}

/**
 * Throws `platform_unavailable` or `unavailable`, because the sender would drop events that are rejected.
 * @param headerToken the header X-Line-Id-Token, which applies to events without a token of their own
 */
export async function prove(
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
  const verdicts = await idTokens.verify(tokens, loginChannelIds)
  return {
    of: (event) => proofOf(tokenOf(event, headerToken), verdicts),
    dependOnAccount: [...verdicts.values()].some((verdict) => !verdict.isValid && verdict.isAboutChannel),
    hasTokens: tokens.size > 0,
  }
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
