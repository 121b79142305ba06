/** The status of an account, with a colour and a shape. */
import type { AccountStatus, Problem } from '../../src/watch/account-status.ts'
import { describeProblem } from '../../src/watch/problem-texts.ts'
import type { Json } from '../api.ts'
import { useLocalized } from '../texts.ts'

const SHAPES: Record<AccountStatus, string> = {
  ok: 'M6 1a5 5 0 1 1 0 10A5 5 0 0 1 6 1Z',
  quiet: 'M6 1a5 5 0 1 1 0 10A5 5 0 0 1 6 1Zm0 2.200a2.800 2.800 0 1 0 0 5.600 2.800 2.800 0 0 0 0-5.600Z',
  degraded: 'M6 1 11.500 11H.5Z',
  broken: 'M2.500 1h7L11 2.500v7L9.500 11h-7L1 9.500v-7Z',
}

export function StatusLabel({ status }: { status: AccountStatus }) {
  const { t } = useLocalized()
  return (
    <span class={`status ${status}`}>
      <svg viewBox="0 0 12 12" aria-hidden="true">
        <path d={SHAPES[status]} fill-rule="evenodd" />
      </svg>
      {t.statuses[status]}
    </span>
  )
}

interface Explained {
  label: string
  message: string
  fix: string
}

/** Returns the texts of a problem. After an upgrade, the service may send a reason that an open page does not have yet. */
export function useReason(): (problem: Json<Problem>) => Explained {
  const { t, number, relative, date } = useLocalized()
  return (problem) => {
    const { reason } = problem
    if (!Object.hasOwn(t.problems, reason)) return { label: reason, message: '', fix: '' }
    return { label: t.reasons[reason], ...describeProblem(t, problem, { number, relative, date }) }
  }
}
