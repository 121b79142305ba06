/** Log lines about facts that no request reports. */
import type { FastifyBaseLogger } from 'fastify'
import { eventUnapplied, profilesBackedOff } from './facts.ts'

/** @returns ends the subscription */
export function logFacts(log: FastifyBaseLogger): () => void {
  const unsubscribe = [
    eventUnapplied.subscribe(({ error }) =>
      // Not the error's message: the database's words quote the event.
      log.error({ fault: error.name }, 'an event was stored without effect'),
    ),
    profilesBackedOff.subscribe(({ accountId, fault, status }) =>
      // Not the platform's reason: it may name a person.
      log.warn({ accountId: String(accountId), fault, status }, 'requests for profiles back off'),
    ),
  ]
  return () => {
    for (const end of unsubscribe) end()
  }
}
