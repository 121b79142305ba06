import { Counter, type Registry } from 'prom-client'
import { accountVerified, idTokenVerified, profileRequested } from './facts.ts'

const VERIFICATION_OUTCOMES = ['verified', 'refused', 'unavailable']
const PROFILE_OUTCOMES = ['found', 'unknown', 'fault']
const ID_TOKEN_OUTCOMES = ['valid', 'invalid', 'unavailable']

/** Counts the outcomes of requests to LINE's API. Returns a function that stops the counting. */
export function countPlatformFacts(registry: Registry): () => void {
  const verifications = new Counter({
    name: 'oa_audience_verifications_total',
    help: 'Verifications of accounts by outcome: verified, refused, or unavailable',
    labelNames: ['outcome'] as const,
    registers: [registry],
  })
  const profiles = new Counter({
    name: 'oa_audience_profiles_total',
    help: 'Requested profiles by outcome: found, unknown, or fault (the account backs off)',
    labelNames: ['outcome'] as const,
    registers: [registry],
  })
  const idTokens = new Counter({
    name: 'oa_audience_id_tokens_total',
    help: 'ID tokens of tracking requests by outcome: valid, invalid, or unavailable (LINE did not deliver its keys)',
    labelNames: ['outcome'] as const,
    registers: [registry],
  })
  for (const outcome of VERIFICATION_OUTCOMES) verifications.inc({ outcome }, 0)
  for (const outcome of PROFILE_OUTCOMES) profiles.inc({ outcome }, 0)
  for (const outcome of ID_TOKEN_OUTCOMES) idTokens.inc({ outcome }, 0)
  const subscriptions = [
    idTokenVerified.subscribe((facts) => idTokens.inc(facts)),
    accountVerified.subscribe((facts) => verifications.inc(facts)),
    profileRequested.subscribe((facts) => profiles.inc(facts)),
  ]
  return () => {
    for (const end of subscriptions) end()
  }
}
