/**
 * LINE invalidates a channel secret at once, and a person needs minutes to store the new one. Meanwhile, deliveries are refused, and LINE
 * sends them again only if redelivery is on. So deliveries that the secret does not sign are kept (decision 70):
 *
 * 1. `keep` stores a delivery for the account's own bot before its 403. Several share a statement. Nobody reads it.
 * 2. `#takeIn` runs every few seconds: it tries the deliveries of accounts whose credentials have changed since, and hands those that the
 *    new secret signs to the intake.
 * 3. What is left is deleted after a day, or when newer ones need the space. An erasure deletes those that name the person.
 *
 * Anybody can send forgeries. They fill the share of the account that they name, and nothing else.
 */
import { type Account, findAccount } from '../../accounts/account.ts'
import { AppError } from '../../errors.ts'
import { every, type Repetition } from '../../jobs/every.ts'
import { hasValidLineSignature } from '../../line-api/line-signature.ts'
import type { Database } from '../../postgres/database.ts'
import { type Row, statement } from '../../postgres/statement.ts'
import { isStorableText } from '../../postgres/storable.ts'
import type { Admission, Source } from '../event.ts'
import type { Intake } from '../receive.ts'
import { parseLineDelivery, withoutReplyToken } from './line-payload.ts'

/** A busy account gets as many in the minutes that a person needs. */
const ACCOUNT_MAX_DELIVERIES = 1_000
const ACCOUNT_MAX_BYTES = 16 * 1024 * 1024
/** Of all accounts. An instance deletes the oldest ones before it has added SLACK. */
const TOTAL_MAX_BYTES = 256 * 1024 * 1024
const SLACK_BYTES = 16 * 1024 * 1024
/** A sender with one address cannot use up what all accounts share. */
const ADDRESS_MAX_BYTES = Math.floor(TOTAL_MAX_BYTES / 10)
const KEPT_HOURS = 24
/** Deliveries that wait in this process to be stored. Beyond them, a delivery is refused without being kept. */
const WAITING_MAX_BYTES = 8 * 1024 * 1024
const WAITING_OF_ACCOUNT_MAX = 200
/** LINE sends a few events per delivery. Each id costs a hash. */
const PEOPLE_MAX = 500
/** The promise is 60 s. */
const TAKE_IN_INTERVAL_MS = 5_000
/** It reads all kept deliveries. */
const TRIM_INTERVAL_MS = 60_000
/** Deliveries of one transaction: at most as many MiB. */
const TAKEN_PER_TURN = 64

const SIGNATURE = /^[A-Za-z0-9+/]{43}=$/

/** $1 json: the rows of Waiting */
const insertKept = statement('insert-kept-deliveries')`
    insert into kept_delivery (channel_oa_id, tried_version, address_hash, person_hashes, signature, body, bytes)
    select a.id, k.version, hashtextextended(k.address, 0),
           array(select person_hash(a.person_key, person) from unnest(k.people) as person), k.signature, k.body, k.bytes
      from json_to_recordset($1::json) as k (account_id bigint, version bigint, address text, people text[], signature text,
                                             body text, bytes int)
      join lateral (select id, person_key from official_account where id = k.account_id offset 0) a on true`

/** The newest of each account stay. $1 account ids bigint[]; $2 deliveries int; $3 bytes int */
const trimAccounts = statement('trim-kept-deliveries-of-accounts')`
    delete from kept_delivery
     where (channel_oa_id, id) in (
       select channel_oa_id, id from (
         select channel_oa_id, id, row_number() over newest as deliveries, sum(bytes) over newest as bytes
           from kept_delivery where channel_oa_id = any ($1)
         window newest as (partition by channel_oa_id order by id desc)) kept
        where deliveries > $2 or bytes > $3)`

/** The newest of all stay. $1 bytes int; $2 bytes of one address int; $3 hours int */
const trimAll = statement('trim-kept-deliveries')`
    delete from kept_delivery
     where (channel_oa_id, id) in (
       select channel_oa_id, id from (
         select channel_oa_id, id, received_at, sum(bytes) over (order by id desc) as bytes,
                sum(bytes) over (partition by address_hash order by id desc) as of_address
           from kept_delivery) kept
        where bytes > $1 or of_address > $2 or received_at < now() - $3 * interval '1 hour')`

interface Waiting {
  row: { account_id: string; bytes: number } & Record<string, unknown>
  stored: () => void
  failed: (error: unknown) => void
}

interface TriableRow extends Row {
  id: bigint
  channel_oa_id: bigint
  signature: string
  body: string
}

/** Deliveries of accounts whose credentials have changed. $1 maximum int. Other instances skip them. */
const selectTriable = statement('select-triable-deliveries')`
    with recursive account as (
      (select channel_oa_id as id from kept_delivery order by channel_oa_id limit 1)
       union all
      select next.channel_oa_id from account
       cross join lateral (select channel_oa_id from kept_delivery
                            where channel_oa_id > account.id order by channel_oa_id limit 1) next
    )
    select k.id, k.channel_oa_id, k.signature, k.body
      from account
      join lateral (select credentials_version as version from official_account where id = account.id offset 0) a on true
     cross join lateral (
       select * from kept_delivery
        where channel_oa_id = account.id and (tried_version < a.version or tried_version > a.version)
        order by id limit $1 for update skip locked) k
     limit $1`

/** $1 account ids bigint[]; $2 ids bigint[] */
const deleteKept = statement('delete-kept-deliveries')`
    delete from kept_delivery k using unnest($1::bigint[], $2::bigint[]) as t (account_id, id)
     where k.channel_oa_id = t.account_id and k.id = t.id`

/** One row of the activity log for each account. $1 accounts of the deliveries bigint[] */
const recordTaken = statement('record-taken-deliveries')`
    insert into activity (actor_kind, actor, action, organization_id, channel_oa_id, object_kind, object_id, changes)
    select 'service', 'service', 'account.deliveries_taken', a.organization_id, a.id, 'account', a.id::text,
           jsonb_build_object('deliveries', t.deliveries)
      from (select id, count(*) as deliveries from unnest($1::bigint[]) as id group by id order by id) t
      join official_account a on a.id = t.id`

type Outcome = 'taken' | 'refused' | 'stale'

const idsOf = (tried: Array<{ row: TriableRow }>) => [
  tried.map(({ row }) => row.channel_oa_id),
  tried.map(({ row }) => row.id),
]

/** $1 account ids bigint[]; $2 ids bigint[]; $3 versions bigint[] */
const noteTried = statement('note-tried-deliveries')`
    update kept_delivery k set tried_version = t.version
      from unnest($1::bigint[], $2::bigint[], $3::bigint[]) as t (account_id, id, version)
     where k.channel_oa_id = t.account_id and k.id = t.id`

export class KeptDeliveries {
  readonly #database: Database
  readonly #source: Source
  readonly #intake: Intake
  readonly #now: () => number
  readonly #taking: Repetition
  #waiting: Waiting[] = []
  #waitingBytes = 0
  #isStoring = false
  #untrimmedBytes = 0
  #trimmedAtMs = Number.NEGATIVE_INFINITY

  constructor(database: Database, source: Source, intake: Intake, now: () => number) {
    this.#database = database
    this.#source = source
    this.#intake = intake
    this.#now = now
    let isStarting = true
    this.#taking = every(TAKE_IN_INTERVAL_MS, async () => {
      // Not before the first requests, for which the database may not be ready.
      const hasMore = !isStarting && (await this.#takeIn())
      isStarting = false
      return hasMore ? 0 : TAKE_IN_INTERVAL_MS
    })
  }

  /** Resolves when the delivery is on disk, or need not be. Throws `unavailable`. @param account as it is stored now */
  async keep(account: Account, address: string, signature: unknown, body: Buffer): Promise<void> {
    if (account.botUserId === null || typeof signature !== 'string' || !SIGNATURE.test(signature)) return
    const text = body.toString('utf8')
    if (destinationOf(text) !== account.botUserId) return
    const accountId = String(account.id)
    const ofAccount = this.#waiting.filter(({ row }) => row.account_id === accountId).length
    const bytes = body.length
    if (ofAccount >= WAITING_OF_ACCOUNT_MAX || this.#waitingBytes + bytes > WAITING_MAX_BYTES) return
    const people = namedPeople(text)
    if (people.length > PEOPLE_MAX) return
    this.#waitingBytes += bytes
    const { secretKeys } = this.#database
    const stored = secretKeys.encrypt('kept_delivery.body', account.id, body.toString('base64'))
    const version = String(account.credentialsVersion)
    const row = { account_id: accountId, version, address, people, signature, body: stored, bytes }
    return new Promise((stored, failed) => {
      this.#waiting.push({ row, stored, failed })
      if (!this.#isStoring) void this.#store()
    })
  }

  async #store(): Promise<void> {
    this.#isStoring = true
    while (this.#waiting.length > 0) {
      const batch = this.#waiting
      const bytes = this.#waitingBytes
      this.#waiting = []
      this.#waitingBytes = 0
      try {
        await this.#insert(batch, bytes)
        for (const { stored } of batch) stored()
      } catch (cause) {
        for (const { failed } of batch) failed(new AppError('unavailable', { cause, retryAfterSeconds: 1 }))
      }
    }
    this.#isStoring = false
  }

  async #insert(batch: Waiting[], bytes: number): Promise<void> {
    const rows = batch.map(({ row }) => row)
    const accounts = [...new Set(rows.map(({ account_id }) => account_id))]
    this.#untrimmedBytes += bytes
    const mustTrim = this.#untrimmedBytes > SLACK_BYTES / 2
    await this.#database.pipeline([
      { statement: insertKept, values: [JSON.stringify(rows)] },
      { statement: trimAccounts, values: [accounts, ACCOUNT_MAX_DELIVERIES, ACCOUNT_MAX_BYTES] },
      ...(mustTrim ? [TRIM] : []),
    ])
    if (mustTrim) this.#untrimmedBytes = 0
  }

  /** Returns whether there may be more. */
  async #takeIn(): Promise<boolean> {
    const count = await this.#database.transaction(async (transaction) => {
      const rows = await transaction.query<TriableRow>(selectTriable, [TAKEN_PER_TURN])
      if (rows.length === 0) return 0
      const accounts = new Map<bigint, Account | null>()
      const tried: Array<{ row: TriableRow; version: bigint; outcome: Outcome }> = []
      for (const row of rows) {
        const accountId = row.channel_oa_id
        if (!accounts.has(accountId)) accounts.set(accountId, await findAccount(this.#database, accountId))
        const account = accounts.get(accountId) ?? null
        const outcome = account === null ? 'refused' : await this.#try(account, row)
        tried.push({ row, version: account?.credentialsVersion ?? 0n, outcome })
      }
      const taken = tried.filter(({ outcome }) => outcome === 'taken')
      const refused = tried.filter(({ outcome }) => outcome === 'refused')
      await transaction.query(deleteKept, idsOf(taken))
      await transaction.query(noteTried, [...idsOf(refused), refused.map(({ version }) => version)])
      await transaction.query(recordTaken, [taken.map(({ row }) => row.channel_oa_id)])
      return rows.length
    })
    if (performance.now() - this.#trimmedAtMs > TRIM_INTERVAL_MS) {
      this.#trimmedAtMs = performance.now()
      await this.#database.query(TRIM.statement, TRIM.values)
    }
    return count === TAKEN_PER_TURN
  }

  /** `stale`: the account has changed meanwhile, so the delivery is tried again. */
  async #try(account: Account, { body: stored, signature }: TriableRow): Promise<Outcome> {
    const { secretKeys } = this.#database
    const encoded = secretKeys.decryptOrNull('kept_delivery.body', account.id, stored)
    if (encoded === null) return 'refused'
    const body = Buffer.from(encoded, 'base64')
    if (!hasValidLineSignature(body, signature, account.channelSecret)) return 'refused'
    const parsed = parsedOrNull(body, this.#now())
    if (parsed === null || parsed.destination !== account.botUserId) return 'refused'
    const { id, credentialsVersion } = account
    const admission: Admission = { accountId: id, credentialsVersion, source: this.#source }
    const received = await this.#intake.receive(admission, parsed.events.map(withoutReplyToken), {
      destination: null,
    })
    return received === 'stale' ? 'stale' : 'taken'
  }

  stop(): Promise<void> {
    return this.#taking.stop(STOP_MAX_MS)
  }
}

function parsedOrNull(body: Buffer, receivedAtMs: number) {
  try {
    return parseLineDelivery(body, receivedAtMs)
  } catch (error) {
    if (error instanceof AppError) return null
    throw error
  }
}

const TRIM = {
  statement: trimAll,
  values: [TOTAL_MAX_BYTES - SLACK_BYTES, ADDRESS_MAX_BYTES, KEPT_HOURS],
}
/** A turn takes less, unless the database is down. */
const STOP_MAX_MS = 3_000

/** Cheaper than reading the whole body, which anybody may have sent. What is taken in later is read completely. */
const destinationOf = (text: string) => /"destination"\s*:\s*"([^"\\]{1,128})"/.exec(text)?.[1]

function namedPeople(text: string): string[] {
  const ids = [...text.matchAll(/"userId"\s*:\s*"([^"\\]{1,128})"/g)].map(([, id]) => id as string)
  return [...new Set(ids)].filter(isStorableText)
}
