import type { FastifyInstance } from 'fastify'
import type { Account } from '../accounts/account.ts'
import type { TrackingBudgets } from '../config/limits.ts'
import type { BodyBudget } from '../http/body-budget.ts'
import type { SpareSigned } from '../http/rate-limit.ts'
import type { IdTokens } from '../line-api/id-tokens.ts'
import type { Database } from '../postgres/database.ts'
import type { DeliveryCounts } from './delivery-counts.ts'
import type { IntakeEvent, Source } from './event.ts'
import type { Intake, SourceShare } from './receive.ts'

export interface SourceParts {
  source: Source
  database: Database
  intake: Intake
  /** Memory for the request bodies of this source's routes. */
  bodies: BodyBudget
  /** For deliveries with a wrong signature. The intake counts the others. */
  counts: DeliveryCounts
  /** Call it for a request with a valid signature, so that the request does not count against its address. */
  spareSigned: SpareSigned
  trackingBudgets: TrackingBudgets
  idTokens: IdTokens
  now: () => number
}

export interface SourceModule extends Source {
  share: SourceShare
  addRoutes: (app: FastifyInstance, parts: SourceParts) => void
  /**
   * Reads the stored content of an event again with this version of the program. Throws InvalidEvent.
   * @param occurredAtMs the stored time, which the event keeps
   * @param key the deduplication key under which it was stored
   */
  reparse: (
    content: unknown,
    occurredAtMs: number,
    account: Pick<Account, 'chatInboxId'>,
    key: Buffer,
  ) => IntakeEvent
}
