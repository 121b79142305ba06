/** Operations of the console and the command line, as tests run them. */
import { CLIENTS } from '../../src/operations/clients.ts'
import { type Operation, type Outcome, perform, type Services } from '../../src/operations/operation.ts'
import { OPERATORS } from '../../src/operations/operators.ts'
import { type Actor, commandActor, type OrganizationIds, type Role } from '../../src/operators/actor.ts'
import type { Transactions } from '../../src/postgres/statement.ts'

interface Running {
  actor?: Actor
  id?: bigint
  input?: object
  services?: Partial<Services>
}

/** @param input as the console sends it. By default, the actor is the one of a command. */
export function runOperation<R>(
  database: Transactions,
  operation: Operation<R>,
  { actor = commandActor(), id, input = {}, services = {} }: Running = {},
): Promise<Outcome<R>> {
  const call = { database, actor, services: services as Services, input: operation.check(input) }
  return perform(operation, id === undefined ? call : { ...call, id })
}

async function resultOf<R>(outcome: Promise<Outcome<R>>): Promise<R> {
  return (await outcome).result as R
}

const textsOf = (ids: OrganizationIds) => ids?.map(String) ?? null

interface OperatorFields {
  name: string | null
  role: Role
  organizationIds: OrganizationIds
}

export const addOperator = (database: Transactions, actor: Actor, email: string, fields: OperatorFields) =>
  resultOf(
    runOperation(database, OPERATORS.add, {
      actor,
      input: { ...fields, email, organizationIds: textsOf(fields.organizationIds) },
    }),
  )

export function updateOperator(
  database: Transactions,
  actor: Actor,
  id: bigint,
  { status, ...changes }: Partial<OperatorFields & { status: 'active' | 'disabled' }>,
) {
  if (status !== undefined)
    return runOperation(database, OPERATORS[status === 'active' ? 'enable' : 'disable'], { actor, id })
  const { organizationIds: ids, ...input } = changes
  const given = ids === undefined ? input : { ...input, organizationIds: textsOf(ids) }
  return runOperation(database, OPERATORS.update, { actor, id, input: given })
}

export const inviteOperator = (database: Transactions, actor: Actor, id: bigint) =>
  resultOf(runOperation(database, OPERATORS.invite, { actor, id }))

/** @param account of which the client gets a key */
export const addClientNamed = (database: Transactions, name: string, account?: bigint) =>
  resultOf(
    runOperation(database, CLIENTS.add, {
      input: { name, ...(account !== undefined && { account: String(account) }) },
    }),
  )
