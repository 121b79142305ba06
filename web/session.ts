/** Who is signed in. The browser's storage keeps it, so that a page can load its data immediately. Scripts cannot read the cookie. */
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

const STORAGE_KEY = 'oa-audience-session'

/** The remembered session. The service may have ended it since, or changed the role. */
export function rememberedSession(): Session | null {
  try {
    const session = JSON.parse(localStorage.getItem(STORAGE_KEY) ?? 'null') as Session | null
    return session !== null && Date.parse(session.endsAt ?? '') > Date.now() ? session : null
  } catch {
    return null
  }
}

/** @param session null if nobody is signed in */
export function rememberSession(session: Session | null): void {
  if (session === null || session.endsAt === null) localStorage.removeItem(STORAGE_KEY)
  else localStorage.setItem(STORAGE_KEY, JSON.stringify(session))
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
