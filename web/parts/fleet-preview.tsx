/** What a fleet file changes, or what is wrong with it. No cell of a secret column is ever shown. */
import { useState } from 'preact/hooks'
import type { FileFault } from '../../src/jobs/apply-accounts.ts'
import type { OnboardingTally } from '../../src/jobs/onboard-accounts.ts'
import { Link } from '../router.tsx'
import { describeFieldMessage } from '../texts/service.ts'
import { fill, useLocalized } from '../texts.ts'
import { ChangeList } from './activity.tsx'
import type { Job } from './job.tsx'
import { Panel } from './page.tsx'
import { More } from './states.tsx'
import { Table } from './table.tsx'

interface FileAccount {
  line: number
  /** null: it will be added */
  id: string | null
  organization: string
  /** null: it will be added */
  organizationId: string | null
  name: string
  channelId: string
  change: 'added' | 'updated' | 'unchanged'
  changes: Record<string, unknown>
  isUnusualSecret: boolean
}

export interface FilePreview {
  accounts: FileAccount[]
  faults: FileFault[]
  faultCount: number
}

export function FileFaults({ preview: { faults, faultCount } }: { preview: FilePreview }) {
  const { t, number } = useLocalized()
  return (
    <Panel title={t.file.faults}>
      <p class="notice bad" role="alert">
        {fill(t.file.faultsLead, { count: number(faultCount) })}
      </p>
      <Table
        rows={faults}
        keyOf={(_, index) => index}
        header={null}
        columns={[
          [t.file.line, ({ line }) => (line === 0 ? '–' : line), 'numeric'],
          [t.file.column, ({ column }) => column ?? '–'],
          [t.file.fault, ({ message }) => describeFieldMessage(t, message)],
        ]}
      />
    </Panel>
  )
}

/** Rows of a large file that are shown at first, and each time more. */
const ROWS = 200

export function PreviewTable({ accounts, names }: { accounts: FileAccount[]; names: Map<string, string> }) {
  const { t } = useLocalized()
  const [shown, setShown] = useState(ROWS)
  return (
    <>
      <Table
        rows={accounts.slice(0, shown)}
        keyOf={({ line }) => line}
        header={1}
        columns={[
          [t.file.line, ({ line }) => line, 'numeric'],
          [
            t.common.account,
            ({ id, name, channelId }) => (
              <>
                {id === null ? name : <Link href={`/accounts/${id}`}>{name}</Link>}
                <div class="sub mono">{channelId}</div>
              </>
            ),
          ],
          [
            t.manage.organization,
            ({ organization, organizationId: id }) => (
              <>
                {id === null ? organization : (names.get(id) ?? organization)}
                {id === null && <div class="sub">{t.file.newOrganization}</div>}
              </>
            ),
            'medium-only',
          ],
          [
            t.file.change,
            ({ change, changes, isUnusualSecret }) => (
              <>
                <span class={`tag ${change === 'unchanged' ? '' : 'good'}`}>{t.file.changes[change]}</span>
                {change === 'updated' && <ChangeList changes={changes} />}
                {isUnusualSecret && <p class="small-text">{t.manage.unusualSecret}</p>}
              </>
            ),
          ],
        ]}
      />
      <More
        list={{ hasMore: shown < accounts.length, isLoading: false, more: () => setShown(shown + ROWS) }}
      />
    </>
  )
}

export function OnboardingOutcomes({ job, accounts }: { job: Job; accounts: FileAccount[] }) {
  const { t, number } = useLocalized()
  const {
    verified = 0,
    followersAdded = 0,
    problemCount = 0,
    problems = [],
  } = job.tally as Partial<OnboardingTally>
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
