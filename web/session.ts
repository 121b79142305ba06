/** Who is signed in. Scripts cannot read the cookie. */
import { createContext } from 'preact'
import { useContext } from 'preact/hooks'
import type { Role, Operator as SignedIn } from '../src/operators/actor.ts'
import type { Json } from './api.ts'

type Operator = Json<Pick<SignedIn, 'name' | 'kind' | 'role' | 'organizationIds'>>

export interface Session {
  /** null: a proxy signs the operator in with every request */
  endsAt: string | null
  operator: Operator
}

export const OperatorContext = createContext<Operator | null>(null)

export function useOperator(): Operator {
  const operator = useContext(OperatorContext)
  if (operator === null) throw new Error('nobody is signed in')
  return operator
}

const ROLES: Role[] = ['viewer', 'manager', 'owner']

/** Whether the operator has at least this role. The service checks it again. */
export function useRole(needed: Role): boolean {
  return ROLES.indexOf(useOperator().role) >= ROLES.indexOf(needed)
}
