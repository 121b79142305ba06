/**
 * LINE invalidates a channel secret at once, and a person needs minutes to store the new one. Meanwhile, deliveries are refused, and LINE
 * sends them again only if redelivery is on. So each process keeps refused deliveries in memory (decision 70). When the credentials of the
 * account change, the intake receives those that the new secret signs. Anybody can send forgeries, so beyond a limit the account or
 * address that holds the most loses its oldest delivery.
 */
import { type Account, type AccountId, findAccount } from '../../accounts/account.ts'
import { every, type Stop } from '../../jobs/every.ts'
import { hasValidLineSignature } from '../../line-api/line-signature.ts'
import { type Row, statement } from '../../postgres/statement.ts'
import type { IntakeEvent } from '../event.ts'
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

interface Usage {
  key: AccountId | string
  deliveries: number
  bytes: number
}

interface Kept {
  accountId: AccountId
  /** Of the account, of the sender's address, and of this address for this account. */
  usages: [Usage, Usage, Usage]
  /** Of the credentials that did not prove the delivery. */
  version: bigint
  signature: string
  body: Buffer
  receivedAtMs: number
  /** By the monotonic clock, which never jumps. */
  keptAtMs: number
}

export class KeptDeliveries {
  readonly #parts: SourceParts
  /** The oldest first. */
  readonly #kept = new Set<Kept>()
  readonly #usages = new Map<AccountId | string, Usage>()
  #bytes = 0
  readonly stop: Stop

  constructor(parts: SourceParts) {
    this.#parts = parts
    this.stop = every('kept deliveries', INTERVAL_MS, (signal) => this.#takeIn(signal)).stop
  }

  /** @param account as it is stored now */
  keep(account: Account, address: string, signature: unknown, received: Buffer): void {
    const { id: accountId, botUserId, credentialsVersion: version } = account
    if (received.length > BODY_MAX_BYTES || typeof signature !== 'string' || !SIGNATURE.test(signature))
      return
    if (botUserId === null || DESTINATION.exec(received.toString())?.[1] !== botUserId) return
    const usages = [accountId, address, `${accountId} ${address}`].map(
      (key) => this.#usages.get(key) ?? { key, deliveries: 0, bytes: 0 },
    ) as Kept['usages']
    // A copy, because the body may be a part of a larger buffer.
    const body = Buffer.alloc(received.length, received)
    const times = { receivedAtMs: this.#parts.now(), keptAtMs: performance.now() }
    this.#count({ accountId, usages, version, signature, body, ...times }, 1)
    while (usages[0].deliveries > ACCOUNT_MAX_DELIVERIES)
      this.#drop((kept) => (kept.accountId === accountId ? kept.usages[2].deliveries : 0))
    while (this.#bytes > TOTAL_MAX_BYTES)
      this.#drop(
        ({ usages: [ofAccount, ofAddress, ofBoth] }) =>
          // Of equal ones, the part that makes it large.
          Math.max(ofAccount.bytes, ofAddress.bytes) + ofBoth.bytes / (2 * TOTAL_MAX_BYTES),
      )
  }

  #count(kept: Kept, change: 1 | -1): void {
    if (change === 1) this.#kept.add(kept)
    else if (!this.#kept.delete(kept)) return
    const bytes = change * (kept.body.length + OVERHEAD_BYTES)
    this.#bytes += bytes
    for (const usage of kept.usages) {
      usage.deliveries += change
      usage.bytes += bytes
      if (usage.deliveries === 0) this.#usages.delete(usage.key)
      else this.#usages.set(usage.key, usage)
    }
  }

  #drop(sizeOf: (kept: Kept) => number): void {
    let largest: Kept | undefined
    for (const kept of this.#kept) if (largest === undefined || sizeOf(kept) > sizeOf(largest)) largest = kept
    if (largest !== undefined) this.#count(largest, -1)
  }

  /** A secret may be unreadable, a row locked, or a queue full. Then its account is tried again in the next turn, and no other waits. */
  async #takeIn(signal: AbortSignal): Promise<void> {
    const expiredMs = performance.now() - KEPT_MS
    for (const kept of this.#kept) if (kept.keptAtMs < expiredMs) this.#count(kept, -1)
    if (this.#kept.size === 0) return
    const ids = new Set([...this.#kept].map(({ accountId }) => accountId))
    const rows = await this.#parts.database.query<VersionRow>(selectVersions, [[...ids]])
    const versions = new Map(rows.map(({ id, version }) => [id, version]))
    const changed = [...this.#kept].filter(({ accountId, version }) => version !== versions.get(accountId))
    const changedIds = [...new Set(changed.map(({ accountId }) => accountId))]
    const takeInOf = (id: AccountId) =>
      this.#takeInOf(
        id,
        changed.filter(({ accountId }) => accountId === id),
        signal,
      )
    await Promise.allSettled(changedIds.map(takeInOf))
  }

  async #takeInOf(id: AccountId, waiting: Kept[], signal: AbortSignal): Promise<void> {
    const { database } = this.#parts
    const account = await findAccount(database, id)
    // Removed: what is kept for it expires.
    if (account === null) return
    let taken = 0
    for (let hasFailed = false; waiting.length > 0 && !hasFailed && !signal.aborted; ) {
      const results = await Promise.allSettled(
        waiting.splice(0, BATCH_MAX).map((kept) => this.#try(kept, account)),
      )
      taken += results.filter((result) => result.status === 'fulfilled' && result.value).length
      hasFailed = results.some(({ status }) => status === 'rejected')
    }
    if (taken > 0) await database.query(recordTaken, [id, taken])
  }

  /** Returns whether the events are stored. If the credentials have changed again (`stale`), the next turn reads them. */
  async #try(kept: Kept, account: Account): Promise<boolean> {
    const { id: accountId, credentialsVersion } = account
    const { source, intake } = this.#parts
    const events = provenEvents(kept, account)
    if (events === null) kept.version = credentialsVersion
    else {
      const reception = await intake.receive({ accountId, credentialsVersion, source }, events, {
        destination: null,
      })
      if (reception !== 'stale') this.#count(kept, -1)
      return reception !== 'stale'
    }
    return false
  }
}

function provenEvents({ body, signature, receivedAtMs }: Kept, account: Account): IntakeEvent[] | null {
  if (!hasValidLineSignature(body, signature, account.channelSecret)) return null
  try {
    const { destination, events } = parseLineDelivery(body, receivedAtMs)
    return destination === account.botUserId ? events.map(withoutReplyToken) : null
  } catch {
    return null
  }
}
