/**
 * Reads the contents of deliveries once their connection is open. Erasures of the account wait from the read of a content until its
 * body is in the kernel's buffers (decision 46):
 *
 * 1. A batch takes a shared lock of the account for each delivery in one statement and reads in the next one. So it either reads after
 *    an erasure, or the erasure waits for it.
 * 2. If an erasure has the lock or waits for it, the account's deliveries try again LOCK_RETRY_MS later. Others are not delayed.
 * 3. The writer of the body calls `release`, and the next batch releases the lock. If the session is lost, and the locks with it, `stop`
 *    ends the writing.
 *
 * Planner idioms: docs/planner.md.
 */
import { memberJson, withTrackedActivity } from '../audience/member.ts'
import type { LeasedDelivery } from '../intake/flush.ts'
import { int8Array } from '../postgres/binary-array.ts'
import type { PinnedConnection } from '../postgres/pool/pinned-connection.ts'
import { statement } from '../postgres/statement.ts'
import type { Content } from './messages.ts'

const LOCK_RETRY_MS = 10
/** Releases share a batch. */
const RELEASE_MS = 10
/** One in the pipeline, one in the database, and one whose rows this process handles. */
const BATCHES_IN_FLIGHT_MAX = 3
/** The size of contents is unknown until they are read: 3 batches × 16 × 1 MiB at worst, in addition to CONTENT_MAX_BYTES. */
const READS_PER_BATCH = 16
/** Memory of contents from their read until the kernel has their bodies. */
const CONTENT_MAX_BYTES = 64 * 1024 * 1024
/** Endpoints that do not respond quickly may hold a body for a second, so they leave the other half free. */
const UNPROVEN_MAX_BYTES = CONTENT_MAX_BYTES / 2
/** The text from the database, and the body that is built from it. */
const COPIES = 2

export interface ContentRow extends Content {
  id: bigint
  status: string
  url: string
  allow_private_network: boolean
  /** null for members */
  event_count: number | null
  change: bigint | null
}

/** A delivery that no longer exists is left out. */
export const loadContents = statement('load-delivery-contents')`
    select d.id, d.channel_oa_id, d.endpoint_id, p.status, p.url, p.allow_private_network, p.format,
           p.replies and d.replies is not false as replies, p.secret, p.previous_secret,
           a.channel_secret, coalesce(d.destination, a.bot_user_id) as destination, d.attempts, d.type, d.change,
           coalesce(cardinality(d.event_keys), cardinality(d.event_ids)) as event_count,
           -- With the time, because ids and change numbers are reused after a restore, and endpoints ignore ids that they have seen.
           concat('msg_', d.id, '_', coalesce(d.change, 0), '_', (extract(epoch from d.created_at) * 1000)::bigint) as message_id,
           case when d.event_ids is null then received.events
           -- Of a replay. An unsend and an erasure delete the payload.
           else (select string_agg(e.payload, ',' order by e.received_at, e.id)
                   from event e
                  where e.channel_oa_id = d.channel_oa_id and e.received_at > '-infinity'
                    and e.received_at between d.events_from and d.events_until
                    and e.id = any (d.event_ids))
           end as events,
           received."repliesTo",
           case d.type
             when 'member.erased' then (
               select concat('{"id":"', x.id, '","deletedAt":"',
                             to_char(x.deleted_at, 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'), '"}')
                 from erased_member x
                where x.channel_oa_id = d.channel_oa_id and x.id >= d.member_id and x.id <= d.member_id order by x.id limit 1)
             when 'account.verified' then a.verification::text
             -- An ordered range, which only the primary key supports. For an equality, a plan made while the table is empty may use
             -- another index, and later read the whole account.
             else (select ${memberJson} from audience_member m ${withTrackedActivity}
                    where m.channel_oa_id = d.channel_oa_id and m.id >= d.member_id and m.id <= d.member_id
                    order by m.id limit 1)
           end as data
      from unnest($1::bigint[], $2::bigint[]) as w (channel_oa_id, id)
      join lateral (select * from endpoint_delivery
                     where channel_oa_id = w.channel_oa_id and id = w.id offset 0) d on true
      join lateral (select * from endpoint where id = d.endpoint_id offset 0) p on true
      join lateral (select * from official_account where id = d.channel_oa_id offset 0) a on true
     cross join lateral (
       select string_agg(e.payload, ',' order by k.position) as events,
              case when d.reply_keys is not null
                   then array_agg(k.key = any (d.reply_keys) order by k.position) filter (where e.payload is not null)
              end as "repliesTo"
         from unnest(d.event_keys) with ordinality as k (key, position)
         join lateral (select payload from event e
                        where e.channel_oa_id = d.channel_oa_id and e.key = k.key and e.is_forwarded
                          and e.received_at >= d.created_at offset 0) e on true
        where d.event_ids is null) received`

/**
 * Send it before loadContents, because a statement sees what was committed before it began.
 *
 * $1 bigint[]: accounts of the contents that were written; $2 bigint[]: accounts of those that will be read.
 */
const moveLocks = statement('move-sending-locks')`select release_sending($1), begin_sending($2) as "isHeld"`

/** A content for which erasures wait. */
interface HeldContent {
  row: ContentRow
  /** Lets erasures continue. Call it when the body is written or will not be written. */
  release: () => void
}

interface Read {
  delivery: LeasedDelivery
  isProven: boolean
  stop: () => void
  deadlineMs: number
  resolve: (content: HeldContent | undefined) => void
  reject: (error: unknown) => void
}

export class Contents {
  readonly #connection: PinnedConnection
  #waiting: Read[] = []
  /** Has no reference to the content, which would otherwise stay in memory until the response. */
  readonly #writings = new Set<Pick<Read, 'stop'>>()
  #bytes = 0
  #unprovenBytes = 0
  #toRelease: bigint[] = []
  #session = 0
  #batchesInFlight = 0
  #isScheduled = false

  constructor(connection: PinnedConnection) {
    this.#connection = connection
    connection.whenLost(() => this.#loseLocks())
  }

  /**
   * Returns undefined if the delivery no longer exists. Rejects after the deadline.
   * @param isProven the endpoint responds quickly, so its contents do not wait for those of slow endpoints
   * @param deadlineMs of performance.now()
   * @param stop is called if erasures no longer wait
   */
  read(
    delivery: LeasedDelivery,
    isProven: boolean,
    deadlineMs: number,
    stop: () => void,
  ): Promise<HeldContent | undefined> {
    return new Promise((resolve, reject) => {
      this.#enqueue({ delivery, isProven, stop, deadlineMs, resolve, reject })
    })
  }

  #enqueue(read: Read): void {
    this.#waiting.push(read)
    this.#runSoon()
  }

  /** Reads of one turn of the event loop share a batch. */
  #runSoon(): void {
    if (this.#isScheduled || this.#batchesInFlight >= BATCHES_IN_FLIGHT_MAX) return
    this.#isScheduled = true
    setImmediate(() => {
      this.#isScheduled = false
      const reads = this.#takeReads()
      if (reads.length > 0 || this.#toRelease.length > 0) void this.#run(reads)
    })
  }

  #takeReads(): Read[] {
    const nowMs = performance.now()
    const reads: Read[] = []
    this.#waiting = this.#waiting.filter((read) => {
      if (read.deadlineMs < nowMs) read.reject(new Error('the content was not read in time'))
      else if (reads.length < READS_PER_BATCH && this.#hasMemory(read)) reads.push(read)
      else return true
      return false
    })
    return reads
  }

  #hasMemory({ isProven }: Read): boolean {
    return this.#bytes < CONTENT_MAX_BYTES && (isProven || this.#unprovenBytes < UNPROVEN_MAX_BYTES)
  }

  async #run(reads: Read[]): Promise<void> {
    const session = this.#session
    const accountIds = int8Array(reads.map(({ delivery }) => delivery.accountId))
    const ids = int8Array(reads.map(({ delivery }) => delivery.id))
    this.#batchesInFlight += 1
    try {
      const [locks, rows] = (await this.#connection.pipelineOnce([
        { statement: moveLocks, values: [int8Array(this.#toRelease.splice(0)), accountIds] },
        { statement: loadContents, values: [accountIds, ids] },
      ])) as [[{ isHeld: boolean[] }], ContentRow[]]
      if (session !== this.#session) throw new Error('the session that had the locks has ended')
      const contents = new Map(rows.map((row) => [row.id, row]))
      for (const [index, read] of reads.entries()) {
        if (locks[0].isHeld[index]) read.resolve(this.#hold(read, contents.get(read.delivery.id)))
        else setTimeout(() => this.#enqueue(read), LOCK_RETRY_MS)
      }
    } catch (error) {
      if (session === this.#session) {
        // It is unknown which locks the session holds.
        this.#loseLocks()
        this.#connection.reset()
      }
      for (const { reject } of reads) reject(error)
    } finally {
      this.#batchesInFlight -= 1
      if (this.#waiting.length > 0 || this.#toRelease.length > 0) this.#runSoon()
    }
  }

  #hold({ delivery, isProven, stop }: Read, row: ContentRow | undefined): HeldContent | undefined {
    const bytes = ((row?.events?.length ?? 0) + (row?.data?.length ?? 0)) * COPIES
    const writing = { stop }
    this.#writings.add(writing)
    this.#count(isProven, bytes)
    const release = () => {
      if (!this.#writings.delete(writing)) return
      this.#count(isProven, -bytes)
      this.#toRelease.push(delivery.accountId)
      if (this.#waiting.length > 0) this.#runSoon()
      else if (this.#toRelease.length === 1) setTimeout(() => this.#runSoon(), RELEASE_MS)
    }
    if (row !== undefined) return { row, release }
    release()
    return undefined
  }

  #count(isProven: boolean, bytes: number): void {
    this.#bytes += bytes
    if (!isProven) this.#unprovenBytes += bytes
  }

  #loseLocks(): void {
    this.#session += 1
    this.#toRelease = []
    this.#bytes = 0
    this.#unprovenBytes = 0
    const writings = [...this.#writings]
    this.#writings.clear()
    for (const { stop } of writings) stop()
    if (this.#waiting.length > 0) this.#runSoon()
  }
}
