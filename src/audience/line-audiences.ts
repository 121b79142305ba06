/**
 * Keeps audiences of segments at LINE (decision 72). Nothing is ever added to an audience, so the newest one is the segment:
 *
 * 1. A segment with sync is due once a day. If LINE has no audience of its new name, a row of line_audience is stored (`uploading`).
 * 2. Its followers are uploaded as one file. The response names the audience (`processing`). If it is lost, the audience is looked up
 *    by its name for an hour, and adopted.
 * 3. LINE says READY (`ready`): the newest of the older audiences stays, and all others are deleted (`deleting`).
 * 4. After 47 hours, or when the segment, its sync or the account ends, LINE is asked to delete it until it lists no such audience.
 *
 * Every row has the time of its next call, so instances share the work, and the next one continues what a killed one has begun.
 */
import { randomBytes } from 'node:crypto'
import { type Account, findAccount } from '../accounts/account.ts'
import { scopeOfAccount } from '../accounts/scope.ts'
import { UnreadableSecret } from '../config/secret-keys.ts'
import { every, type Repetition } from '../every.ts'
import { INT64_MIN } from '../http/path-id.ts'
import type { AccountId } from '../ids.ts'
import { AUDIENCE_MAX_IDS } from '../line-api/audience-groups.ts'
import type { PlatformFault } from '../line-api/call.ts'
import type { LineApi } from '../line-api/client.ts'
import type { Database } from '../postgres/database.ts'
import type { Statement } from '../postgres/statement.ts'
import {
  type AccountToSync,
  addAudience,
  dropAudience,
  endAudience,
  type LineAudience,
  postponeAudience,
  type SegmentToSync,
  selectAccountToSync,
  storeReady,
  storeSyncFault,
  storeUploaded,
  takeDueAudiences,
  takeSegmentToSync,
} from './line-audience-statements.ts'
import type { SyncFault } from './line-audience-texts.ts'
import { memberLines } from './list-route.ts'

const IDLE_MS = 5_000
/** Accounts at the same time. An upload is in memory: 2 × 2 × 51 MB, because it is copied once. LINE may be silent for one of them. */
const CONCURRENCY = 2
const READ_MAX_MS = 300_000
/** Audiences of one account per pass. The calls of an account are a second apart. */
const PASS_MAX_OF_ACCOUNT = 8

export class SegmentSync {
  readonly #database: Database
  readonly #lineApi: LineApi
  #lastAccountId: AccountId = INT64_MIN
  readonly #inProgress = new Set<AccountId>()

  constructor(database: Database, lineApi: LineApi) {
    this.#database = database
    this.#lineApi = lineApi
  }

  start(): Repetition[] {
    const work = async (signal: AbortSignal) => ((await this.pass(signal)) === 0 ? IDLE_MS : 0)
    return Array.from({ length: CONCURRENCY }, () => every('audiences', IDLE_MS, work))
  }

  /** Works for the next account with something due. Returns 0 if there is none, or it is in progress. Throws DatabaseUnavailable. */
  async pass(signal = AbortSignal.any([])): Promise<number> {
    const [account] = await this.#database.query<AccountToSync>(selectAccountToSync, [this.#lastAccountId])
    const isRoundOver = account === undefined && this.#lastAccountId !== INT64_MIN
    this.#lastAccountId = account?.id ?? INT64_MIN
    if (isRoundOver) return this.pass(signal)
    if (account === undefined || this.#inProgress.has(account.id)) return 0
    this.#inProgress.add(account.id)
    // What was begun is due again after its lease.
    await this.#workFor(account, signal).catch(() => undefined)
    this.#inProgress.delete(account.id)
    return 1
  }

  async #workFor({ id, isSuspended }: AccountToSync, signal: AbortSignal): Promise<void> {
    const account = await findAccount(this.#database.accounts, id).catch((error) => {
      if (error instanceof UnreadableSecret) return null
      throw error
    })
    const audiences = await this.#database.query<LineAudience>(takeDueAudiences, [id, PASS_MAX_OF_ACCOUNT])
    for (const audience of audiences) {
      // The others wait for the end of their lease.
      if (account === null || !(await this.#continue(account, audience, signal))) break
    }
    const [segment] = await this.#database.query<SegmentToSync>(takeSegmentToSync, [id])
    if (segment === undefined || signal.aborted) return
    const fault = account === null ? NO_CREDENTIALS : await this.#upload(account, segment, signal)
    if (fault === null) return
    const reason = typeof fault !== 'string' && 'reason' in fault ? fault.reason : null
    await this.#store(storeSyncFault, segment.id, faultOf(fault, isSuspended), reason)
  }

  async #store(statement: Statement, ...values: unknown[]): Promise<void> {
    await this.#database.query(statement, values)
  }

  /** The next call about an audience. Returns false if LINE does not respond, or refuses every call of the account. */
  async #continue(account: Account, audience: LineAudience, signal: AbortSignal): Promise<boolean> {
    const { id, groupId, status } = audience
    const { audienceGroups } = this.#lineApi
    if (groupId === null) return this.#lookUp(account, audience, signal)
    const call = status === 'deleting' ? 'remove' : 'status'
    const result = await audienceGroups[call](account, groupId, signal)
    if (!result.ok) {
      const { fault } = result
      if (fault.type === 'refused' && [400, 404].includes(fault.status))
        return this.#lookUp(account, audience, signal)
      await this.#store(postponeAudience, id)
      return false
    }
    const { value: found } = result
    if (status === 'deleting') await this.#store(dropAudience, id)
    else if (found === 'READY') await this.#store(storeReady, id)
    else if (found !== 'FAILED' && found !== 'EXPIRED') await this.#store(postponeAudience, id)
    else {
      await this.#store(endAudience, id)
      await this.#store(storeSyncFault, audience.segmentId, found === 'FAILED' ? 'failed' : 'expired', null)
    }
    return true
  }

  /**
   * LINE has refused the audience, or the response of its upload is missing: LINE has made it, makes it later, or never. A proxy may
   * refuse, too, so only LINE's list shows that an audience is gone.
   */
  async #lookUp(account: Account, audience: LineAudience, signal: AbortSignal): Promise<boolean> {
    const { id, name, groupId, isOld } = audience
    const found = await this.#lineApi.audienceGroups.find(account, name, signal)
    const group = found.ok && found.value.find((each) => groupId === null || each === groupId)
    if (found.ok && group === undefined && isOld) await this.#store(dropAudience, id)
    else if (group && groupId === null) await this.#store(storeUploaded, id, group)
    else await this.#store(postponeAudience, id)
    return found.ok
  }

  /** Returns why there is no audience. Null: it was uploaded, or it is not known whether it was. */
  async #upload(
    account: Account,
    segment: SegmentToSync,
    signal: AbortSignal,
  ): Promise<PlatformFault | SyncFault | null> {
    const { audienceGroups } = this.#lineApi
    for (const name of namesOf(segment)) {
      const taken = await audienceGroups.find(account, name, signal)
      if (!taken.ok) return taken.fault
      if (taken.value.length > 0) continue
      const [added] = await this.#database.query<{ id: bigint }>(addAudience, [segment.id, name])
      if (added === undefined) continue
      const { id } = added
      const ids = await this.#readIds(account, segment)
      if (typeof ids === 'string') {
        await this.#store(dropAudience, id)
        return ids
      }
      const result = await audienceGroups.upload(account, name, ids, signal)
      if (result.ok) await this.#store(storeUploaded, id, result.value)
      else if (result.fault.type === 'unavailable') await this.#store(postponeAudience, id)
      else {
        await this.#store(dropAudience, id)
        return result.fault
      }
      return null
    }
    return null
  }

  /** One id of LINE's form per line. The primary has every erasure. */
  async #readIds(account: Account, { name, condition }: SegmentToSync) {
    const scope = scopeOfAccount(account)
    const filters = { segment: { name, condition }, relationship: 'following' } as const
    const parts: string[] = []
    let count = 0
    const deadline = performance.now() + READ_MAX_MS
    const members = this.#database.forTenant(scope)
    for await (const part of memberLines(members, scope, filters, 'line-ids')) {
      if (performance.now() > deadline) throw new Error('reading a segment takes too long')
      parts.push(part.text)
      count += part.count
      if (count > AUDIENCE_MAX_IDS) return 'too_large'
    }
    return count === 0 ? 'empty' : new Blob(parts, { type: 'text/plain' })
  }
}

const NO_CREDENTIALS: PlatformFault = { type: 'no_credentials' }

/** Of the day, and a second one if the first is taken: up to 100 + 13 + 5 of 120 characters. LINE refuses control characters. */
function namesOf({ name, day }: SegmentToSync): string[] {
  const dated = `${name.replace(/[\p{Cc}\p{Z}]+/gu, ' ').trim()} (${day})`
  return [dated, `${dated} ${randomBytes(2).toString('hex')}`]
}

function faultOf(fault: PlatformFault | SyncFault, isSuspended: boolean): SyncFault {
  if (typeof fault === 'string') return fault
  if (fault.type === 'unavailable') return 'unavailable'
  if (isSuspended) return 'suspended'
  if (fault.type !== 'refused' || fault.status === 401) return 'credentials'
  return fault.status === 403 ? 'not_available' : 'rejected'
}
