/** Adds and changes official accounts. Only the responses that make a new address contain it, because it is like a secret. */
import { randomBytes } from 'node:crypto'
import type { FastifyInstance } from 'fastify'
import { type Account, findAccountOn } from '../accounts/account.ts'
import { columnsOf, type Fields, faultsOf, SECRET_MAX_LENGTH } from '../accounts/account-fields.ts'
import type { Proof } from '../accounts/channels.ts'
import { addAccount, updateAccount, verifyAccount } from '../accounts/manage-accounts.ts'
import { findWebhook, publicUrlFault, replaceWebhook } from '../accounts/point-webhook.ts'
import type { NewAccount } from '../accounts/provisioning.ts'
import { AppError, FatalError } from '../errors.ts'
import { bodyBytes, parseUtf8Json } from '../http/body.ts'
import { Type } from '../http/typebox.ts'
import { Nullable, refuseInput, StorableText } from '../http/validate.ts'
import { callbackPath } from '../intake/mbox/mbox-source.ts'
import { ACCOUNT } from '../operations/organizations.ts'
import type { Operator } from '../operators/actor.ts'
import type { Transactions } from '../postgres/statement.ts'
import { type ConsoleParts, checkFields, found, Id, idOrNull, requireId } from './parts.ts'
import { MANAGER, operatorOf } from './session.ts'

const NAME_MAX_LENGTH = 256
/** As the database's own `random_token`. */
const OA_HASH_BYTES = 24

const Text = Type.Optional(Nullable(StorableText({ maxLength: NAME_MAX_LENGTH })))
const SecretText = Type.Optional(Nullable(StorableText({ maxLength: SECRET_MAX_LENGTH })))
const FIELDS = {
  channelId: Text,
  channelSecret: SecretText,
  channelAccessToken: SecretText,
  botUserId: Text,
  basicId: Text,
  chatSecret: SecretText,
  chatInboxId: Text,
  trackingKey: Text,
  loginChannelIds: Text,
}
const Name = StorableText({ maxLength: NAME_MAX_LENGTH })
const checkNew = checkFields({ ...FIELDS, organization: Id, name: Name })
const checkChanges = checkFields({ ...FIELDS, name: Type.Optional(Name) })
const checkVerify = checkFields({
  testWebhook: Type.Optional(Type.Boolean()),
  proveRedelivery: Type.Optional(Type.Boolean()),
})
const checkReplaced = checkFields({ replaces: Nullable(Type.String({ maxLength: 2_000 })) })

type OfId = { Params: { id: string } }

export function manageAccountRoutes(api: FastifyInstance, parts: ConsoleParts): void {
  fieldRoutes(api, parts)
  workRoutes(api, parts)
  webhookRoutes(api, parts)
}

/** An account's fields and addresses. */
function fieldRoutes(
  api: FastifyInstance,
  { database, verifier, config: { publicUrl } }: ConsoleParts,
): void {
  const base = publicUrl ?? ''
  const accountParts = { database, lineApi: verifier.lineApi }

  api.post('/accounts', MANAGER, async (request) => {
    const { organization, ...given } = checkNew(parseUtf8Json(bodyBytes(request)))
    const columns = columnsOf(requireValid(given)) as NewAccount
    const organizationId = idOrNull(organization) ?? 0n
    const added = await addAccount(accountParts, operatorOf(request), organizationId, columns)
    if (added === null) return refuseInput('organization', `organization ${organization} does not exist.`)
    const { id, oaHash, trackingKey } = added
    const [webhookPath = ''] = verifier.webhookPaths(String(id))
    const addresses = {
      webhookUrl: base + webhookPath,
      callbackUrl: base + callbackPath(oaHash),
      trackingKey,
    }
    return { id, ...addresses, ...ifUnproven(added.proof) }
  })

  api.post<OfId>('/accounts/:id', MANAGER, async (request) => {
    const fields = requireValid(checkChanges(parseUtf8Json(bodyBytes(request))))
    const id = requireId(request.params.id)
    const { changes, proof } = await updateAccount(accountParts, operatorOf(request), id, columnsOf(fields))
    return { changes, ...ifUnproven(proof) }
  })

  // The old address stops working at once.
  api.post<OfId>('/accounts/:id/callback-address', MANAGER, async (request) => {
    const oaHash = randomBytes(OA_HASH_BYTES).toString('base64url')
    const id = requireId(request.params.id)
    await updateAccount(accountParts, operatorOf(request), id, { oa_hash: oaHash })
    return { callbackUrl: base + callbackPath(oaHash) }
  })
}

/** The page says that LINE did not respond. */
const ifUnproven = (proof: Proof) => (proof === 'unproven' ? { isUnproven: true } : {})

/** What the service does with LINE for an account. */
function workRoutes(api: FastifyInstance, parts: ConsoleParts): void {
  const { database, verifier } = parts

  api.post<OfId>('/accounts/:id/verify', MANAGER, async (request) => {
    const operator = operatorOf(request)
    const account = await findAccountOf(database, operator, request.params.id)
    const body = bodyBytes(request)
    const claims = body.length === 0 ? {} : checkVerify(parseUtf8Json(body))
    return verifyAccount({ ...verifier, database }, operator, account, claims)
  })
}

/** LINE's webhook URL of an account. */
function webhookRoutes(
  api: FastifyInstance,
  { database, verifier: { lineApi }, config: { publicUrl } }: ConsoleParts,
): void {
  api.get<OfId>('/accounts/:id/webhook', MANAGER, async (request) => {
    const account = await findAccountOf(database, operatorOf(request), request.params.id)
    const fault = publicUrlFault(publicUrl)
    if (fault !== null) throw refusal(fault)
    return asInput(findWebhook({ lineApi, publicUrl }, account))
  })

  api.post<OfId>('/accounts/:id/webhook', MANAGER, async (request, reply) => {
    const { replaces } = checkReplaced(parseUtf8Json(bodyBytes(request)))
    const operator = operatorOf(request)
    const account = await findAccountOf(database, operator, request.params.id)
    const fault = publicUrlFault(publicUrl)
    if (fault !== null) throw refusal(fault)
    const current = await asInput(findWebhook({ lineApi, publicUrl }, account))
    // The operator confirmed to replace one URL. Another one may be in use by now.
    if (current.url !== replaces)
      throw refusal('The webhook URL has changed meanwhile. Check it and confirm again.')
    if (!current.isHere)
      await asInput(replaceWebhook({ database, lineApi, publicUrl, actor: operator }, account, current))
    return reply.code(204).send()
  })
}

function requireValid<F extends Fields>(fields: F): F {
  const trimmed = Object.entries(fields).map(([name, value]) => [name, value?.trim() ?? value])
  const details = faultsOf(Object.fromEntries(trimmed))
  if (details.length > 0) throw new AppError('invalid_input', { details })
  return Object.fromEntries(trimmed) as F
}

/** Throws `unknown_item` for an account that the operator does not see. */
async function findAccountOf(database: Transactions, operator: Operator, id: string): Promise<Account> {
  const { id: visibleId } = await ACCOUNT.find(database, operator, requireId(id))
  return found(await findAccountOn(database, visibleId))
}

/** A refusal by LINE is a fault of the account's settings, not of the service. */
async function asInput<T>(work: Promise<T>): Promise<T> {
  return work.catch((error: unknown) => {
    throw error instanceof FatalError ? refusal(error.message) : error
  })
}

export const refusal = (message: string) => new AppError('invalid_input', { message })
