/** The part of a job's work that its kind defines. */
import type { Verifier } from '../accounts/verify.ts'
import type { ErasureLedger } from '../audience/erasure/erasure-ledger.ts'
import type { OrganizationIds } from '../operators/actor.ts'
import type { Queryable, Transactions } from '../postgres/statement.ts'
import type { Job } from './job.ts'

/** What a transaction of a step has done. It is stored with the work. */
export interface Progress {
  /** where the next transaction continues; null: the job is done */
  position: unknown
  done: bigint
  tally: unknown
  failure?: string
  /** the turn ends here, and the next one begins after this time at the earliest */
  resumeInMs?: number
}

/** Adds counts to those of a tally. */
export function addCounts<Name extends string>(
  tally: unknown,
  counts: Record<Name, number>,
): Record<Name, number> {
  const sums = { ...counts }
  for (const name in counts) sums[name] += (tally as Partial<Record<Name, number>>)[name] ?? 0
  return sums
}

/** What jobs need that call LINE. */
export type Platform = Omit<Verifier, 'database'>

export interface Step {
  /** for work that cannot be part of `commit`; such work must be safe to repeat */
  database: Transactions
  platform: Platform | null
  /** null: erasures are recorded in the database only */
  erasureLedger: ErasureLedger | null
  /** The organizations that the operator sees now. Null: all. */
  organizationIds: OrganizationIds
  /** Runs `work` in the transaction that stores its result. A fault rolls back both. */
  commit: (work: (transaction: Queryable) => Promise<Progress>) => Promise<void>
  /** Whether the last commit has ended the turn. */
  isOver: () => boolean
  /** Call it after a commit that has queued deliveries to this endpoint, so that the sender of this process begins at once. */
  onQueued: (endpointId: bigint) => void
}

/** Makes the next part of the work, in at least one call of `commit`. */
export type RunStep = (job: Job, step: Step) => Promise<void>

export function platformOf({ platform }: Pick<Step, 'platform'>): Platform {
  if (platform === null) throw new Error('the runner of jobs has no platform')
  return platform
}
