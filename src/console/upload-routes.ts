/**
 * Uploads, which no operation serves: the body is the file. A fleet file has secrets, so it is read from the body of the request and kept
 * nowhere: a dry run and its application are two uploads. A file of members comes in pieces.
 */
import type { FastifyInstance } from 'fastify'
import { secretWarning } from '../accounts/account-fields.ts'
import { AppError, FatalError, refuseRequest } from '../errors.ts'
import { bodyBytes } from '../http/body.ts'
import { Type } from '../http/typebox.ts'
import type { AccountId } from '../ids.ts'
import {
  type AppliedAccount,
  applyAccounts,
  type FileFault,
  type Plan,
  planAccounts,
  RefusedFile,
  RefusedLine,
} from '../jobs/apply-accounts.ts'
import { provePlans, readFleet } from '../jobs/fleet-file.ts'
import { findJob } from '../jobs/job.ts'
import { storePiece } from '../jobs/job-file.ts'
import { publicUrlFault } from '../jobs/onboard.ts'
import { startOnboarding } from '../jobs/onboard-accounts.ts'
import { toInputError } from '../operations/constraint-sentences.ts'
import { includesRole, type Operator } from '../operators/actor.ts'
import { violatedConstraint } from '../postgres/faults.ts'
import type { Queryable } from '../postgres/statement.ts'
import { type ConsoleParts, checkFields, Id, requireId } from './parts.ts'
import { MANAGER, operatorOf } from './session.ts'

/** Faults in a response, which a person reads from the first one on. */
const FAULTS_MAX = 200

const YesOrNo = Type.Union([Type.Literal('yes'), Type.Literal('no')])
/** adds organizations that do not exist yet */
const organizations = Type.Optional(YesOrNo)
const checkPreview = checkFields({ organizations })
const checkApply = checkFields({ webhook: YesOrNo, organizations, unproven: Type.Optional(YesOrNo) })
const checkPiece = checkFields({ position: Id })

export function uploadRoutes(
  api: FastifyInstance,
  { database, onJob, verifier: { lineApi }, config: { publicUrl } }: ConsoleParts,
): void {
  api.post<{ Params: { id: string } }>('/jobs/:id/file', MANAGER, async (request) => {
    const id = requireId(request.params.id)
    const position = BigInt(checkPiece(request.query).position)
    const bytes = bodyBytes(request)
    const upload = await database.transaction((transaction) =>
      storePiece(transaction, operatorOf(request), { id, position, bytes }),
    )
    if (upload.isComplete) onJob?.()
    return upload
  })

  api.post('/fleet-file/preview', MANAGER, async (request) => {
    const operator = operatorOf(request)
    const addsOrganizations = mayAddOrganizations(operator, checkPreview(request.query).organizations)
    const outcome = await withFaults(async () => {
      const faults: FileFault[] = []
      const wanted = await readFleet(sourceOf(bodyBytes(request)), faults)
      return planAccounts(database, operator, wanted, { faults, addsOrganizations })
    })
    if ('faults' in outcome) return { ...limited(outcome.faults), accounts: [] }
    return { faults: [], faultCount: 0, accounts: outcome.map((plan) => rowOf(plan, plan.storedId)) }
  })

  // The job brings the accounts into service. It is stored with them, so that a closed page loses nothing.
  api.post('/fleet-file/apply', MANAGER, async (request, reply) => {
    const operator = operatorOf(request)
    const query = checkApply(request.query)
    const setsWebhook = query.webhook === 'yes'
    const addsOrganizations = mayAddOrganizations(operator, query.organizations)
    const fault = setsWebhook ? publicUrlFault(publicUrl) : null
    if (fault !== null) refuseRequest(fault)
    const outcome = await withFaults(async () => {
      const faults: FileFault[] = []
      const wanted = await readFleet(sourceOf(bodyBytes(request)), faults)
      const options = { faults, addsOrganizations }
      const plans = await planAccounts(database, operator, wanted, options)
      const unproven = query.unproven === 'yes' ? 0 : await provePlans(lineApi, plans)
      const start = (transaction: Queryable, stored: AppliedAccount[]) =>
        startOnboarding(transaction, operator, stored, setsWebhook)
      const applied = await applyAccounts(database, operator, wanted, start, options)
      return { ...applied, unproven }
    })
    if (!('faults' in outcome)) {
      const { accounts, jobId, unproven } = outcome
      onJob?.()
      const job = await findJob(database, operator, jobId)
      return reply
        .code(202)
        .send({ job, unproven, accounts: accounts.map((account) => rowOf(account, account.id)) })
    }
    throw new AppError('invalid_input', {
      details: limited(outcome.faults).faults.map(({ line, column, message }) => ({
        path: column === null ? `line ${line}` : `line ${line}, column ${column}`,
        message,
      })),
    })
  })
}

/** Only owners manage organizations. applyAccounts also refuses owners of some of them. */
function mayAddOrganizations({ role }: Operator, organizations: 'yes' | 'no' = 'no'): boolean {
  if (organizations === 'yes' && !includesRole(role, 'owner')) throw new AppError('forbidden')
  return organizations === 'yes'
}

const sourceOf = (body: Buffer) => ({
  name: 'the file',
  open: async function* () {
    yield body
  },
})

/** Returns what is wrong with the file instead of throwing it. */
async function withFaults<T>(work: () => Promise<T>): Promise<T | { faults: FileFault[] }> {
  try {
    return await work()
  } catch (error) {
    if (error instanceof RefusedFile) return { faults: error.faults }
    if (error instanceof FatalError) return { faults: [{ line: 0, column: null, message: error.message }] }
    if (!(error instanceof RefusedLine)) throw error
    return { faults: [{ line: error.line, column: null, message: messageOf(error.cause) }] }
  }
}

function messageOf(cause: unknown): string {
  const error = toInputError(cause)
  if (violatedConstraint(cause) === null || !(error instanceof AppError)) throw cause
  return error.details?.[0]?.message ?? error.message
}

const limited = (faults: FileFault[]) => ({
  faults: faults.slice(0, FAULTS_MAX),
  faultCount: faults.length,
})

/** Without any secret: of those, `changes` only says that they are replaced. */
function rowOf(
  { line, storedId, organization, organizationId, name, channelId, columns, changes }: Plan,
  id: AccountId | null,
) {
  const isChanged = Object.keys(changes).length > 0
  const change = storedId === null ? 'added' : isChanged ? 'updated' : 'unchanged'
  const isUnusualSecret = secretWarning(columns.channel_secret) !== null
  return { line, id, organization, organizationId, name, channelId, change, changes, isUnusualSecret }
}
