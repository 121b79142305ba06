/**
 * Stores the statuses of all accounts, and makes messages of their changes. One process at a time makes a pass:
 *
 * 1. `claimPass` chooses the process. If it dies, the next pass reads the same facts.
 * 2. `storeStatuses` assesses all accounts page by page, outside of any transaction.
 * 3. `announce` stores messages about what changed and was not announced, in one transaction.
 *
 * All reads use the primary: a replica may be 30 s old, which would delay messages by as much.
 */
import type { FastifyBaseLogger } from 'fastify'
import { AppError } from '../../errors.ts'
import { every, type Stop } from '../../jobs/every.ts'
import type { Database } from '../../postgres/database.ts'
import { claimPass, PASS_INTERVAL_MS, storeStatuses } from '../store-statuses.ts'
import { announce } from './announce.ts'

/** Passes use at most a fifth of the time, because a pass of 30,000 accounts is seconds of work for PostgreSQL. */
const PASS_SHARE = 1 / 5
/** How often each process checks whether a pass is due: an index lookup. */
const CLAIM_INTERVAL_MS = 2_000
/** A pass may take seconds, which is longer than a shutdown may take. It is repeated, because it stores all or nothing. */
const STOP_MAX_MS = 3_000

/** Returns a function that waits for the pass in progress, if that ends soon. */
export function startWatch(database: Database, log: FastifyBaseLogger): Stop {
  const pass = accountWatch(database)
  const { stop } = every(CLAIM_INTERVAL_MS, async (signal) => {
    await pass().catch((error: Error) => {
      // While the database is down, there is nothing to do. Its messages may quote stored data.
      if (!(error instanceof AppError) && !signal.aborted)
        log.error({ fault: error.name }, 'a pass over the statuses of accounts failed')
    })
  })
  return () => stop(STOP_MAX_MS)
}

/**
 * Returns a function that makes a pass, unless one was made within the interval. It returns whether it stored what it saw, and throws
 * DatabaseUnavailable.
 */
export function accountWatch(database: Database): () => Promise<boolean> {
  let lastMs = 0
  return async () => {
    const claimed = await claimPass(database, nextInterval(PASS_INTERVAL_MS, lastMs), nextInterval(0, lastMs))
    if (claimed === null) return false
    const startedAt = performance.now()
    try {
      await storeStatuses(database, claimed.pass, claimed.now)
      return await announce(database, claimed.pass)
    } finally {
      lastMs = performance.now() - startedAt
    }
  }
}

/** @param lastMs how long the last pass took */
export const nextInterval = (minMs: number, lastMs: number): number => Math.max(minMs, lastMs / PASS_SHARE)
