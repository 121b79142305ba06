/**
 * Verifies every account with LINE and stores LINE's statistics, so that operators notice an expired token or a disabled webhook
 * before their customers do. Each account is due once an hour, in one instance.
 */
import { type Account, type AccountId, findAccount } from '../../accounts/account.ts'
import { type Verifier, verifyAccount } from '../../accounts/verify.ts'
import { UnreadableSecret } from '../../config/secret-keys.ts'
import { AppError } from '../../errors.ts'
import { every, type Repetition } from '../../every.ts'
import { CallBudget } from '../../line-api/call-budget.ts'
import type { Database } from '../../postgres/database.ts'
import { refreshDueFigures } from './account-figures.ts'
import {
  type CheckResult,
  findMissingDays,
  storeCheckResult,
  storeFollowerStatistics,
  takeDueAccounts,
} from './due-accounts.ts'

/** Time between two passes if nothing was due. */
const IDLE_MS = 5_000
/** Accounts checked at the same time. A check takes about seven calls to LINE, so 1,000 accounts take some minutes per hour. */
const CONCURRENCY = 4

export class AccountMonitor {
  readonly #verifier: Verifier
  readonly #database: Database
  #repetitions: Repetition[] = []

  constructor(database: Database, verifier: Omit<Verifier, 'database'>) {
    this.#database = database
    this.#verifier = { ...verifier, database }
  }

  start(): void {
    const pauseAfter = (count: number) => (count === 0 ? IDLE_MS : 0)
    this.#repetitions = [
      every(IDLE_MS, async (signal) => pauseAfter(await this.checkDue(signal))),
      every(IDLE_MS, async () => pauseAfter(await refreshDueFigures(this.#database))),
    ]
  }

  /** Resolves when no call to LINE is in flight. */
  async stop(): Promise<void> {
    await Promise.all(this.#repetitions.map(({ stop }) => stop()))
  }

  /** Checks some of the accounts that are due and returns their number. Throws DatabaseUnavailable. */
  async checkDue(signal = AbortSignal.any([])): Promise<number> {
    const due = await takeDueAccounts(this.#database, CONCURRENCY)
    const checked = due.filter(({ can_call_platform }) => can_call_platform)
    await Promise.all(checked.map(({ id }) => this.#check(id, signal)))
    return due.length
  }

  async #check(id: AccountId, signal: AbortSignal): Promise<void> {
    const account = await findAccount(this.#database, id).catch((error) => {
      if (!(error instanceof UnreadableSecret)) throw error
      return storeCheckResult(this.#database, id, { fault: error.message }).then(() => null)
    })
    if (account === null) return
    const fault = await this.#verify(account)
    const result: CheckResult = fault === null ? await this.#readFigures(account, signal) : { fault }
    await storeCheckResult(this.#database, id, result)
  }

  /** @returns why LINE did not respond, or null if the outcome is stored */
  async #verify(account: Account): Promise<string | null> {
    try {
      await verifyAccount(this.#verifier, account, {}, false)
      return null
    } catch (error) {
      if (!(error instanceof AppError) || error.code !== 'platform_unavailable') throw error
      return 'LINE is unreachable, slow or rate limiting'
    }
  }

  /** Figures that LINE does not return, for example for lack of permission, stay unchanged. */
  async #readFigures(account: Account, signal: AbortSignal): Promise<CheckResult> {
    const { lineApi } = this.#verifier
    const budget = new CallBudget(signal)
    const [token, quota] = await Promise.all([
      lineApi.tokenInfo(account, budget),
      lineApi.messageQuota(account, budget),
    ])
    for (const day of await findMissingDays(this.#database, account.id)) {
      const statistics = await lineApi.followerStatistics(account, day, budget)
      if (!statistics.ok) break
      if (statistics.value !== null) {
        await storeFollowerStatistics(this.#database, account.id, day, statistics.value)
      }
    }
    return {
      fault: null,
      ...(token.ok ? { tokenLifetimeSeconds: token.value?.expiresInSeconds ?? null } : {}),
      ...(quota.ok ? { quota: quota.value } : {}),
    }
  }
}
