/** The uploaded file of an import, in pieces. */
import type { Account } from '../accounts/account.ts'
import type { MemberFileFormat } from '../audience/import/member-file.ts'
import { AppError, FatalError, refuseRequest } from '../errors.ts'
import { recordActivity } from '../operators/activity.ts'
import type { Actor } from '../operators/actor.ts'
import { type Queryable, type Row, statement, type Transactions } from '../postgres/statement.ts'
import { ENDED, type Job, startJob } from './job.ts'

/** The page sends a piece of 128 KiB at a time, so a connection needs 2.2 KiB/s. */
const UPLOAD_PAUSE_MAX_SECONDS = 60
/** A million lines of 250 bytes. */
export const FILE_MAX_BYTES = 256 * 1024 * 1024
/** Bytes per query. A batch of 100 entries has some 20 KiB. */
const SLICE_BYTES = 64 * 1024

/** $1 job id bigint, $2 bytes of the file before the slice bigint, $3 maximum length int */
const selectSlice = statement('select-slice-of-job-file')`
    select substr(bytes, ($2::bigint - position + 1)::int, $3) as bytes
      from job_file where job_id = $1 and position <= $2
     order by position desc limit 1`

export async function* readFileFrom(database: Queryable, id: bigint, from: number): AsyncGenerator<Buffer> {
  for (let byte = from; ; ) {
    const [slice] = await database.query<{ bytes: Buffer }>(selectSlice, [id, byte, SLICE_BYTES])
    if (slice === undefined || slice.bytes.length === 0) return
    yield slice.bytes
    byte += slice.bytes.length
  }
}

/**
 * $1 organization ids bigint[], null: all; $2 operator id bigint or null; $3 job id bigint; $4 actor text. Two requests about one job
 * take turns. The import runs and is recorded in the name of the operator who started it, so nobody else uploads its file.
 */
const lockUpload = statement('lock-upload')`
    select j.id, j.channel_oa_id as "accountId", j.organization_id as "organizationId", j.parameters, j.total, j.status,
           (select position + octet_length(bytes) from job_file where job_id = j.id order by position desc limit 1) as stored
      from job j
     where j.id = $3 and j.kind = 'members.import'
       and j.operator_id is not distinct from $2::bigint and j.actor = $4
       and visible(j.organization_id, $1)
       for no key update`

/** $1 job id bigint, $2 position bigint, $3 bytes bytea */
const insertPiece = statement('insert-piece-of-job-file')`
    insert into job_file (job_id, position, bytes) values ($1, $2, $3)`

/** $1 job id bigint, $2 status text, $3 bytes of the whole file bigint, null: as declared. An upload that goes on is not abandoned. */
const continueUpload = statement('continue-upload')`
    update job set status = $2, total = coalesce($3, total), stepped_at = clock_timestamp()
     where id = $1 and status = 'uploading'
    returning id`

/** $1 seconds int */
const endAbandoned = statement('end-abandoned-uploads')`
    with ended as (
      update job set status = 'failed', reason = 'upload_abandoned', ${ENDED}
       where status = 'uploading' and is_due(stepped_at + $1 * interval '1 second', $1 * interval '1 second')
      returning id)
    delete from job_file using ended where job_id = ended.id`

/** Until then, they count as jobs of their organization. */
export async function endAbandonedUploads(database: Queryable): Promise<void> {
  await database.query(endAbandoned, [UPLOAD_PAUSE_MAX_SECONDS])
}

type ImportJob = Pick<Job, 'accountId' | 'organizationId' | 'parameters'> & { total: bigint }
type LockedUpload = Row & ImportJob & { id: bigint; status: string; stored: bigint | null }

/**
 * Stores the next piece of a file. A piece at another position, such as one that is repeated after a lost response, is ignored: the
 * result says where to continue. The last piece starts the import, and records it. Throws `unknown_item`.
 */
export async function storePiece(
  transaction: Queryable,
  actor: Actor,
  { id, position, bytes }: { id: bigint; position: bigint; bytes: Buffer },
): Promise<{ stored: bigint; isComplete: boolean }> {
  const { organizationIds, operatorId, name } = actor
  const [job] = await transaction.query<LockedUpload>(lockUpload, [organizationIds, operatorId, id, name])
  if (job === undefined) throw new AppError('unknown_item')
  const { total, status } = job
  const stored = job.stored ?? 0n
  if (status !== 'uploading') return { stored: total, isComplete: true }
  const after = position + BigInt(bytes.length)
  if (position !== stored || bytes.length === 0) return { stored, isComplete: false }
  if (after > total) refuseRequest('The file is longer than its declared size')
  await transaction.query(insertPiece, [id, position, bytes])
  const isComplete = after === total
  await transaction.query(continueUpload, [id, isComplete ? 'running' : 'uploading', null])
  if (isComplete) await recordImport(transaction, actor, job)
  return { stored: after, isComplete }
}

export async function storeFile(
  database: Transactions,
  actor: Actor,
  { id: accountId, organizationId }: Pick<Account, 'id' | 'organizationId'>,
  format: MemberFileFormat,
  file: AsyncIterable<Buffer>,
): Promise<bigint> {
  const upload = { kind: 'members.import', accountId, organizationId, parameters: { format } } as const
  let job: bigint | null = null
  let total = 0n
  const advance = (status: 'uploading' | 'running', bytes: Buffer | null) =>
    database.transaction(async (transaction) => {
      const id =
        job ?? (await startJob(transaction, actor, { ...upload, total: null, status: 'uploading' }, null))
      const [isOurs] = await transaction.query(continueUpload, [id, status, bytes === null ? total : null])
      if (isOurs === undefined) throw new FatalError(ABANDONED)
      if (bytes === null) await recordImport(transaction, actor, { ...upload, total })
      else await transaction.query(insertPiece, [id, total, bytes])
      return id
    })
  for await (const bytes of file) {
    // Two empty pieces would have one position.
    if (bytes.length === 0) continue
    job = await advance('uploading', bytes)
    total += BigInt(bytes.length)
  }
  return advance('running', null)
}

const ABANDONED = `the input paused for more than ${UPLOAD_PAUSE_MAX_SECONDS} s. Run the command again.`

function recordImport(
  transaction: Queryable,
  actor: Actor,
  { accountId, organizationId, parameters, total }: ImportJob,
): Promise<void> {
  const { format } = parameters as { format: MemberFileFormat }
  return recordActivity(transaction, actor, {
    action: 'members.imported',
    object: { kind: 'account', id: accountId },
    organizationId,
    accountId,
    changes: { format, bytes: total },
  })
}
