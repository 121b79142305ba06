/** The button that fixes a problem. */
import type { Problem } from '../../src/operator/accounts/account-status.ts'
import { Link } from '../router.tsx'
import { fill } from '../texts/languages.ts'
import { useLocalized } from '../texts.ts'
import { ImportFollowers, PointWebhook, VerifyAccount } from './account-actions.tsx'
import { fixOf, fixPath } from './problem-fixes.ts'

/** @param onDone reloads the problems */
export function FixButton({ problem, id, onDone }: { problem: Problem; id: string; onDone: () => void }) {
  const { t } = useLocalized()
  const fix = fixOf(problem)
  switch (fix?.kind) {
    case undefined:
      return null
    case 'webhook':
      return <PointWebhook id={id} onDone={onDone} />
    case 'verify':
      return <VerifyAccount id={id} testWebhook={fix.testWebhook} onDone={onDone} />
    case 'followers':
      return <ImportFollowers id={id} />
    default:
      return (
        <Link class="button" href={fixPath(problem, id)}>
          {fix?.kind === 'edit'
            ? fill(t.manage.fixField, { field: t.manage.fields[fix.field] })
            : t.manage.fixPages[fix?.kind ?? 'events']}
        </Link>
      )
  }
}
