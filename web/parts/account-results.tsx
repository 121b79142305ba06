/** What a job did with each of its accounts, and the keys and secrets that it has added. */
import { useState } from 'preact/hooks'
import type { AddedSecret } from '../../src/jobs/job-accounts.ts'
import type { Json } from '../api.ts'
import { useAction } from '../hooks.ts'
import { perform, useItems } from '../operations.ts'
import { Link } from '../router.tsx'
import { useRole } from '../session.ts'
import { useLocalized } from '../texts.ts'
import { Dialog, SecretDialog } from './dialog.tsx'
import { Chips } from './filters.tsx'
import { isOver, type Job } from './job.tsx'
import { Panel } from './page.tsx'
import { ActionFailure, ListView } from './states.tsx'
import { Table } from './table.tsx'

const OUTCOMES = [null, 'changed', 'unchanged', 'refused'] as const
const TONES: Record<string, string> = { changed: 'good', refused: 'bad' }

export function AccountResults({ job }: { job: Job }) {
  const { t } = useLocalized()
  const canManage = useRole('manager')
  const [outcome, setOutcome] = useState<(typeof OUTCOMES)[number]>(null)
  const list = useItems('job.results', job.id, { outcome })
  const hasSecrets = isOver(job) && Number(job.tally.secrets) > 0
  return (
    <Panel title={t.many.results} actions={canManage && hasSecrets && <Secrets id={job.id} />}>
      <Chips label={t.common.filter}>
        {OUTCOMES.map((name) => (
          <button key={name} type="button" aria-pressed={outcome === name} onClick={() => setOutcome(name)}>
            {name === null ? t.common.all : t.many.outcomes[name]}
          </button>
        ))}
      </Chips>
      <ListView list={list} empty={<p class="muted">{t.many.noResults}</p>}>
        {(results) => (
          <Table
            rows={results}
            columns={[
              [t.common.account, ({ id, name }) => <Link href={`/accounts/${id}`}>{name}</Link>],
              [
                t.common.status,
                (result) => (
                  <span class={`tag ${TONES[result.outcome ?? ''] ?? ''}`}>
                    {t.many.outcomes[result.outcome ?? 'waiting']}
                  </span>
                ),
              ],
              [t.events.reason, ({ message }) => message],
            ]}
          />
        )}
      </ListView>
    </Panel>
  )
}

/** They are shown once, as lines of a CSV file. */
function Secrets({ id }: { id: string }) {
  const { t } = useLocalized()
  const { isRunning, error, run } = useAction()
  const [secrets, setSecrets] = useState<Array<Json<AddedSecret>> | null>(null)
  const take = () => run(async () => setSecrets((await perform('job.secrets', id)).secrets))
  const close = () => setSecrets(null)
  const lines = secrets?.map(({ accountId, id: object, secret }) => [accountId, object, secret].join(','))
  return (
    <>
      <button type="button" disabled={isRunning} onClick={take}>
        {t.many.secrets}
      </button>
      <ActionFailure error={error} />
      {lines?.length === 0 && (
        <Dialog title={t.many.secretsTitle} onClose={close}>
          <p>{t.many.noSecrets}</p>
        </Dialog>
      )}
      {lines && lines.length > 0 && (
        <SecretDialog
          title={t.many.secretsTitle}
          secrets={[{ label: t.many.secretsLabel, secret: ['account,id,secret', ...lines].join('\n') }]}
          onClose={close}
        />
      )}
    </>
  )
}
