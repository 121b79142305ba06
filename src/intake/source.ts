/** What each source of events brings: one folder, and one line in sources.ts. */
import type { FastifyInstance } from 'fastify'
import type { Account } from '../accounts/account.ts'
import type { Config } from '../config/config.ts'
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
  /** What the bodies of this source's routes may hold. */
  bodies: BodyBudget
  /** Counts deliveries with a wrong signature, for operators. The intake counts the others. */
  counts: DeliveryCounts
  /** Call it for a request whose signature proves its sender: the request need not count against its address. */
  spareSigned: SpareSigned
  trackingBudgets: Config['trackingBudgets']
  /** Verifies the tokens by which pages prove their visitors. */
  idTokens: IdTokens
  now: () => number
}

/** A source with its code: where its deliveries arrive, and how its events are read. */
export interface SourceModule extends Source {
  /** What it may take of an instance, whatever its senders do. */
  share: SourceShare
  /** Adds the public routes that its deliveries arrive on. */
  addRoutes: (app: FastifyInstance, parts: SourceParts) => void
  /** Whether an event whose content was erased cannot be attributed to the account any more. Default: it can. */
  needsContent?: (account: Pick<Account, 'chatInboxId'>) => boolean
  /** Whether an event of this kind counts for the person whom it names although its content was erased. */
  isOwnActWithoutContent: (kind: string) => boolean
  /**
   * Reads the stored content of an event again, as this version of the program understands it. Throws InvalidEvent.
   * @param occurredAtMs when it happened, or was received if it does not say: the event keeps its place among others
   * @param key the deduplication key under which it was stored
   */
  reparse: (
    content: unknown,
    occurredAtMs: number,
    account: Pick<Account, 'chatInboxId'>,
    key: Buffer,
  ) => IntakeEvent
}
