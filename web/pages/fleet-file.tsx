/** Adds and updates accounts from a CSV file: the changes as a table first, then the work with its progress. */
import { useEffect, useRef, useState } from 'preact/hooks'
import { ApiError, postText, queryOf } from '../api.ts'
import { useRead } from '../operations.ts'
import { DropZone } from '../parts/drop-zone.tsx'
import { FileFaults, type FilePreview, OnboardingOutcomes, PreviewTable } from '../parts/fleet-preview.tsx'
import { CheckField, Form } from '../parts/form.tsx'
import { Page, Panel } from '../parts/page.tsx'
import { ActionFailure, Loading } from '../parts/states.tsx'
import { type Task, TaskProgress } from '../parts/task.tsx'
import { Link } from '../router.tsx'
import { useOperator, useRole } from '../session.ts'
import { fill, useLocalized } from '../texts.ts'

/** The limit of the service. 1 MiB are 4,000 accounts with access tokens, or 10,000 without. */
const FILE_MAX_BYTES = 1024 * 1024
const TEMPLATE =
  'organization,name,channel_id,channel_secret,channel_access_token,basic_id,bot_user_id,chat_secret'

/** The content stays in this page until it is applied. The service keeps no file, because it has secrets. */
type State =
  | { step: 'choose' }
  | { step: 'reading' }
  | { step: 'preview'; file: File; content: string; preview: FilePreview }
  | { step: 'applied'; preview: FilePreview; job: Task; unproven: number }

export function FleetFilePage() {
  const { t } = useLocalized()
  const [state, setState] = useState<State>({ step: 'choose' })
  const [error, setError] = useState<ApiError>()
  const { data } = useRead('organization.list', null)
  const names = new Map(data?.organizations.map(({ id, name }) => [id, name]))
  // Others would not see an organization that they add.
  const mayAdd = useRole('owner') && useOperator().organizationIds === null
  const [addsOrganizations, setAddsOrganizations] = useState(false)
  const query = { organizations: addsOrganizations ? 'yes' : null }
  const result = useRef<HTMLDivElement>(null)
  useEffect(() => {
    // The result is below the choice of the file, so a long page would hide it.
    if (state.step !== 'preview' && state.step !== 'applied') return
    result.current?.focus({ preventScroll: true })
    result.current?.scrollIntoView({ block: 'start' })
  }, [state])
  useEffect(() => {
    if (state.step === 'preview') void read(state.file)
  }, [addsOrganizations])
  const read = async (file: File) => {
    setError(undefined)
    if (file.size > FILE_MAX_BYTES) {
      setState({ step: 'choose' })
      setError(new ApiError(t.file.tooLarge, { status: 413 }))
      return
    }
    setState({ step: 'reading' })
    try {
      const content = await file.text()
      const preview = await postText<FilePreview>(`/api/fleet-file/preview${queryOf(query)}`, content)
      setState({ step: 'preview', file, content, preview })
    } catch (failure) {
      setState({ step: 'choose' })
      setError(failure instanceof ApiError ? failure : new ApiError(t.file.unreadable, { status: 400 }))
    }
  }
  return (
    <Page title={t.file.title} lead={t.file.lead} trail={<Link href="/">{t.nav.fleet}</Link>}>
      {state.step !== 'applied' && (
        <Panel title={t.file.choose}>
          <DropZone label={t.file.drop} accept=".csv,text/csv" onFile={read} />
          {mayAdd && (
            <CheckField
              name="addsOrganizations"
              label={t.file.addsOrganizations}
              hint={t.file.addsOrganizationsHint}
              value={addsOrganizations}
              onChange={setAddsOrganizations}
            />
          )}
          <details>
            <summary>{t.file.format}</summary>
            <p>{t.file.columns}</p>
            <pre class="payload short">{TEMPLATE}</pre>
            <p>{t.file.emptyCells}</p>
          </details>
        </Panel>
      )}
      <ActionFailure error={error} />
      {state.step === 'reading' && <Loading />}
      <div ref={result} tabIndex={-1} class="result">
        {state.step === 'preview' && (
          <Preview
            {...state}
            names={names}
            query={query}
            onApplied={(preview, job, unproven) => setState({ step: 'applied', preview, job, unproven })}
          />
        )}
        {state.step === 'applied' && (
          <Panel title={t.file.applied}>
            {state.unproven > 0 && <p class="notice warning">{t.manage.unproven}</p>}
            <TaskProgress
              started={state.job}
              outcomes={(task) => <OnboardingOutcomes task={task} accounts={state.preview.accounts} />}
            />
            <PreviewTable accounts={state.preview.accounts} names={names} />
          </Panel>
        )}
      </div>
    </Page>
  )
}

function Preview({
  content,
  preview,
  names,
  query,
  onApplied,
}: {
  content: string
  preview: FilePreview
  names: Map<string, string>
  query: { organizations: string | null }
  onApplied: (preview: FilePreview, job: Task, unproven: number) => void
}) {
  const { t, number } = useLocalized()
  const [setsWebhook, setSetsWebhook] = useState(true)
  if (preview.faultCount > 0) return <FileFaults preview={preview} />
  const count = (change: string) => preview.accounts.filter((account) => account.change === change).length
  const apply = async () => {
    const path = `/api/fleet-file/apply${queryOf({ webhook: setsWebhook ? 'yes' : 'no', ...query })}`
    type Applied = Pick<FilePreview, 'accounts'> & { job: Task; unproven: number }
    const { accounts, job, unproven } = await postText<Applied>(path, content)
    onApplied({ accounts, faults: [], faultCount: 0 }, job, unproven)
  }
  return (
    <Panel title={t.file.preview}>
      <p role="status">
        {fill(t.file.summary, {
          added: number(count('added')),
          updated: number(count('updated')),
          unchanged: number(count('unchanged')),
        })}
      </p>
      <PreviewTable accounts={preview.accounts} names={names} />
      <Form submit={t.file.apply} onSubmit={apply}>
        <CheckField
          name="setsWebhook"
          label={t.file.setsWebhook}
          hint={t.file.setsWebhookHint}
          value={setsWebhook}
          onChange={setSetsWebhook}
        />
      </Form>
    </Panel>
  )
}
