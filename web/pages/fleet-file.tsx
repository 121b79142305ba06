/** Adds and updates accounts from a CSV file: the changes as a table first, then the work with its progress. */
import { useEffect, useRef, useState } from 'preact/hooks'
import type { Encoding } from '../../src/audience/import/encodings.ts'
import { ApiError, postText, queryOf } from '../api.ts'
import { useAction } from '../hooks.ts'
import { useRead } from '../operations.ts'
import { StoreUnproven } from '../parts/account-fields.tsx'
import { DropZone } from '../parts/drop-zone.tsx'
import { EncodingField, readText } from '../parts/encoding.tsx'
import { FileFaults, type FilePreview, OnboardingOutcomes, PreviewTable } from '../parts/fleet-preview.tsx'
import { CheckField, Form } from '../parts/form.tsx'
import { type Job, JobProgress } from '../parts/job.tsx'
import { Page, Panel } from '../parts/page.tsx'
import { ActionFailure, Loading } from '../parts/states.tsx'
import { Link } from '../router.tsx'
import { useOperator, useRole } from '../session.ts'
import { fill, useLocalized } from '../texts.ts'

/** The limit of the service. 1 MiB are 4,000 accounts with access tokens, or 10,000 without. */
const FILE_MAX_BYTES = 1024 * 1024
const TEMPLATE =
  'organization,name,channel_id,channel_secret,channel_access_token,basic_id,bot_user_id,chat_secret'

/** The content stays in this page until it is applied. The service keeps no file, because it has secrets. */
interface Chosen {
  content: string
  preview: FilePreview
}

interface Applied {
  accounts: FilePreview['accounts']
  job: Job
  unproven: number
}

export function FleetFilePage() {
  const { t } = useLocalized()
  const { isRunning, error, run } = useAction()
  const [file, setFile] = useState<File>()
  const [chosen, setChosen] = useState<Chosen>()
  const [applied, setApplied] = useState<Applied>()
  const { data } = useRead('organization.list', null)
  const names = new Map(data?.organizations.map(({ id, name }) => [id, name]))
  // Others would not see an organization that they add.
  const mayAdd = useRole('owner') && useOperator().organizationIds === null
  const [encoding, setEncoding] = useState<Encoding>('utf-8')
  const [addsOrganizations, setAddsOrganizations] = useState(false)
  const query = { organizations: addsOrganizations ? 'yes' : null }
  const result = useRef<HTMLDivElement>(null)
  useEffect(() => {
    // The result is below the choice of the file, so a long page would hide it.
    if (!chosen) return
    result.current?.focus({ preventScroll: true })
    result.current?.scrollIntoView({ block: 'start' })
  }, [chosen, applied])
  useEffect(() => {
    if (file) read(file)
  }, [addsOrganizations, encoding])
  const read = (file: File) =>
    run(async () => {
      setChosen(undefined)
      if (file.size > FILE_MAX_BYTES) throw new ApiError(t.file.tooLarge, { status: 413 })
      const content = await readText(file, encoding, t.file)
      const preview = await postText<FilePreview>(`/api/fleet-file/preview${queryOf(query)}`, content)
      setChosen({ content, preview })
    })
  const choose = (file: File) => {
    setFile(file)
    return read(file)
  }
  return (
    <Page title={t.file.title} lead={t.file.lead} trail={<Link href="/">{t.nav.fleet}</Link>}>
      {!applied && (
        <Panel title={t.file.choose}>
          <DropZone label={t.file.drop} accept=".csv,text/csv" onFile={choose} />
          <EncodingField value={encoding} onChange={setEncoding} />
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
      {isRunning && <Loading />}
      <div ref={result} tabIndex={-1} class="result">
        {chosen && !applied && <Preview {...chosen} names={names} query={query} onApplied={setApplied} />}
        {applied && (
          <Panel title={t.file.applied}>
            {applied.unproven > 0 && <p class="notice warning">{t.manage.unproven}</p>}
            <JobProgress
              started={applied.job}
              outcomes={(job) => <OnboardingOutcomes job={job} accounts={applied.accounts} />}
            />
            <PreviewTable accounts={applied.accounts} names={names} />
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
}: Chosen & {
  names: Map<string, string>
  query: { organizations: string | null }
  onApplied: (applied: Applied) => void
}) {
  const { t, number } = useLocalized()
  const [setsWebhook, setSetsWebhook] = useState(true)
  const [unproven, setUnproven] = useState(false)
  if (preview.faultCount > 0) return <FileFaults preview={preview} />
  const count = (change: string) => preview.accounts.filter((account) => account.change === change).length
  const apply = async () => {
    const wanted = { webhook: setsWebhook ? 'yes' : 'no', unproven: unproven ? 'yes' : 'no', ...query }
    onApplied(await postText<Applied>(`/api/fleet-file/apply${queryOf(wanted)}`, content))
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
        <StoreUnproven value={unproven} onChange={setUnproven} />
      </Form>
    </Panel>
  )
}
