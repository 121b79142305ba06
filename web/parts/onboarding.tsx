/** What the onboarding of accounts has done so far, and the accounts with a problem. */
import type { OnboardingTally } from '../../src/operator/jobs/onboard-accounts.ts'
import { Link } from '../router.tsx'
import { fill } from '../texts/languages.ts'
import { useLocalized } from '../texts.ts'
import type { FileAccount } from './fleet-preview.tsx'
import type { Task } from './task.tsx'

export function OnboardingOutcomes({ task, accounts }: { task: Task; accounts: FileAccount[] }) {
  const { t, number } = useLocalized()
  const {
    verified = 0,
    followersAdded = 0,
    problemCount = 0,
    problems = [],
  } = task.tally as Partial<OnboardingTally>
  const names = new Map(accounts.map(({ id, name }) => [id, name]))
  return (
    <div role="status">
      <p>{fill(t.file.onboarded, { verified: number(verified), followers: number(followersAdded) })}</p>
      {problemCount > 0 && (
        <>
          <h3>{fill(t.file.problems, { count: number(problemCount) })}</h3>
          <ul class="problem-list">
            {problems.map(({ accountId, problem }) => (
              <li key={accountId}>
                <Link href={`/accounts/${accountId}`}>{names.get(accountId) ?? accountId}</Link> {problem}
              </li>
            ))}
          </ul>
        </>
      )}
    </div>
  )
}
