/**
 * LINE invalidates a channel secret at once, and a person needs minutes to store the new one. Meanwhile, deliveries are refused, and LINE
 * sends them again only if redelivery is on. So each process keeps refused deliveries in memory (decision 70). When the credentials of the
 * account change, the intake receives those that the new secret signs. Anybody can send forgeries, so beyond a limit the account or
 * address that holds the most loses its oldest delivery.
 */
import { type Account, findAccount } from '../../accounts/account.ts'
import { every, type Stop } from '../../every.ts'
import type { AccountId } from '../../ids.ts'
import { hasValidLineSignature } from '../../line-api/line-signature.ts'
import { type Row, statement } from '../../postgres/statement.ts'
import type { Admission, IntakeEvent } from '../event.ts'
import type { SourceParts } from '../source.ts'
import { parseLineDelivery, withoutReplyToken } from './line-payload.ts'

const BODY_MAX_BYTES = 64 * 1024
/** A busy account gets as many in the minutes that a person needs. */
const ACCOUNT_MAX_DELIVERIES = 1_000
const TOTAL_MAX_BYTES = 16 * 1024 * 1024
/** Memory that a delivery takes beside its body. */
const OVERHEAD_BYTES = 512
const KEPT_MS = 60 * 60 * 1000
/** The promise is 60 s. */
const INTERVAL_MS = 1_000
/** Deliveries of an account that wait in the intake at the same time: 64 × 64 KiB = 4 MiB of its 64 MiB. */
const BATCH_MAX = 64

const SIGNATURE = /^[A-Za-z0-9+/]{43}=$/
/** Cheaper than parsing a body that anybody may have sent. */
const DESTINATION = /"destination"\s*:\s*"([^"\\]{1,128})"/

type VersionRow = Row & { id: AccountId; version: bigint }

/** $1 account ids bigint[] */
const selectVersions = statement('select-credentials-versions')`
    select id, credentials_version as version from official_account where id = any ($1)`

/** $1 account id bigint; $2 deliveries int */
const recordTaken = statement('record-taken-deliveries')`
    insert into activity (actor_kind, actor, action, organization_id, channel_oa_id, object_kind, object_id, changes)
    select 'service', 'service', 'account.deliveries_taken', organization_id, id, 'account', id::text,
           jsonb_build_object('deliveries', $2::int)
      from official_account where id = $1`

const NOTHING = { deliveries: 0, bytes: 0 }
type Usage = typeof NOTHING

/** What one address sent for one account. */
interface Share extends Usage {
  key: string
  accountId: AccountId
  address: string
  /** Shared by all shares of the account, or of the address. */
  ofAccount: Usage
  ofAddress: Usage
  /** The oldest first. */
  kept: Set<Kept>
}

interface Kept {
  share: Share
  /** Of the credentials that did not prove the delivery. */
  version: bigint
  signature: string
  body: Buffer
  /** By the monotonic clock, which never jumps. */
  keptAtMs: number
}

export class KeptDeliveries {
  readonly #parts: SourceParts
  readonly #shares = new Map<string, Share>()
  readonly #total: Usage = { ...NOTHING }
  readonly stop: Stop

  constructor(parts: SourceParts) {
    this.#parts = parts
    this.stop = every('kept deliveries', INTERVAL_MS, (signal) => this.#takeIn(signal)).stop
  }

  /** @param account as it is stored now */
  keep(account: Account, address: string, signature: unknown, received: Buffer): void {
    const { id, botUserId, credentialsVersion: version } = account
    if (typeof signature !== 'string' || !SIGNATURE.test(signature)) return
    if (received.length > BODY_MAX_BYTES || botUserId === null) return
    if (DESTINATION.exec(received.toString())?.[1] !== botUserId) return
    const share = this.#shareOf(id, address)
    // A copy, because the body may be a part of a larger buffer.
    const body = Buffer.alloc(received.length, received)
    this.#count({ share, version, signature, body, keptAtMs: performance.now() }, 1)
    while (share.ofAccount.deliveries > ACCOUNT_MAX_DELIVERIES)
      this.#drop(({ accountId, deliveries }) => (accountId === id ? deliveries : 0))
    while (this.#total.bytes > TOTAL_MAX_BYTES)
      // Of equal ones, the part that makes the account or address large.
      this.#drop(
        ({ ofAccount, ofAddress, bytes }) =>
          Math.max(ofAccount.bytes, ofAddress.bytes) + bytes / (2 * TOTAL_MAX_BYTES),
      )
  }

  #shareOf(accountId: AccountId, address: string): Share {
    const key = `${accountId} ${address}`
    const known = this.#shares.get(key)
    if (known !== undefined) return known
    const shares = [...this.#shares.values()]
    const ofAccount = shares.find((share) => share.accountId === accountId)?.ofAccount ?? { ...NOTHING }
    const ofAddress = shares.find((share) => share.address === address)?.ofAddress ?? { ...NOTHING }
    const share = { key, accountId, address, ofAccount, ofAddress, kept: new Set<Kept>(), ...NOTHING }
    this.#shares.set(key, share)
    return share
  }

  #count(kept: Kept, change: 1 | -1): void {
    const { share, body } = kept
    if (change === 1) share.kept.add(kept)
    else if (!share.kept.delete(kept)) return
    for (const usage of [this.#total, share.ofAccount, share.ofAddress, share]) {
      usage.deliveries += change
      usage.bytes += change * (body.length + OVERHEAD_BYTES)
    }
    if (share.deliveries === 0) this.#shares.delete(share.key)
  }

  /** Drops the oldest delivery of the largest share. */
  #drop(sizeOf: (share: Share) => number): void {
    let [largest, max] = [null as Share | null, 0]
    for (const share of this.#shares.values()) {
      const size = sizeOf(share)
      if (size > max) [largest, max] = [share, size]
    }
    const [oldest] = largest?.kept ?? []
    if (oldest !== undefined) this.#count(oldest, -1)
  }

  /** A secret may be unreadable, a row locked, or a queue full. Then its account is tried again in the next turn, and no other waits. */
  async #takeIn(signal: AbortSignal): Promise<void> {
    const expiredMs = performance.now() - KEPT_MS
    const shares = [...this.#shares.values()]
    for (const { kept } of shares)
      for (const each of kept) if (each.keptAtMs < expiredMs) this.#count(each, -1)
    if (this.#shares.size === 0) return
    const ids = new Set(shares.map(({ accountId }) => accountId))
    const rows = await this.#parts.database.query<VersionRow>(selectVersions, [[...ids]])
    const takeInOf = async ({ id, version }: VersionRow) => {
      const kept = shares.filter(({ accountId }) => accountId === id).flatMap((share) => [...share.kept])
      const waiting = kept.filter((each) => each.version !== version)
      if (waiting.length > 0) await this.#takeInOf(id, waiting, signal)
    }
    await Promise.allSettled(rows.map(takeInOf))
  }

  async #takeInOf(id: AccountId, waiting: Kept[], signal: AbortSignal): Promise<void> {
    const { database, source } = this.#parts
    const account = await findAccount(database.accounts, id)
    // What is kept for a removed account expires.
    if (account === null) return
    const { credentialsVersion, conditions } = account
    const admission: Admission = { accountId: id, credentialsVersion, source, conditions }
    let taken = 0
    while (waiting.length > 0 && !signal.aborted) {
      const tried = waiting.splice(0, BATCH_MAX).map((kept) => this.#try(kept, account, admission))
      const results = await Promise.allSettled(tried)
      taken += results.filter((result) => result.status === 'fulfilled' && result.value).length
      if (results.some(({ status }) => status === 'rejected')) break
    }
    if (taken > 0) await database.query(recordTaken, [id, taken])
  }

  /** Returns whether the events are stored. If the credentials have changed again (`stale`), the next turn reads them. */
  async #try(kept: Kept, account: Account, admission: Admission): Promise<boolean> {
    const events = provenEvents(kept, account, this.#parts.now())
    if (events === null) {
      kept.version = account.credentialsVersion
      return false
    }
    const reception = await this.#parts.intake.receive(admission, events, { destination: null })
    if (reception === 'stale') return false
    this.#count(kept, -1)
    return true
  }
}

/** Null: the account's secret does not prove the delivery, or the body is not one of LINE. */
function provenEvents({ body, signature }: Kept, account: Account, nowMs: number): IntakeEvent[] | null {
  if (!hasValidLineSignature(body, signature, account.channelSecret)) return null
  try {
    const { destination, events } = parseLineDelivery(body, nowMs)
    return destination === account.botUserId ? events.map(withoutReplyToken) : null
  } catch {
    return null
  }
}
