/** Imports an audience file: the first rows as a table, the upload, and then the job that applies it. */
import { useEffect, useState } from 'preact/hooks'
import type { Encoding } from '../../src/audience/import/encodings.ts'
import { type ColumnFault, findColumnFault } from '../../src/audience/import/member-columns.ts'
import { postBytes } from '../api.ts'
import { useAction } from '../hooks.ts'
import { startJob, useRead } from '../operations.ts'
import { DropZone } from '../parts/drop-zone.tsx'
import { EncodingField, readText } from '../parts/encoding.tsx'
import { type Job, JobProgress } from '../parts/job.tsx'
import { Page, Panel } from '../parts/page.tsx'
import { ActionFailure } from '../parts/states.tsx'
import { Payload } from '../parts/values.tsx'
import { Link } from '../router.tsx'
import { fill, useLocalized } from '../texts.ts'

/** An upload without a piece for a minute ends, so a slow connection must send each in time. */
const PIECE_BYTES = 128 * 1024
/** Bytes that are read for a look at the file before the import. */
const START_BYTES = 64 * 1024
const LINES_SHOWN = 6

interface Chosen {
  file: File
  format: 'csv' | 'ndjson'
  lines: string[]
  /** of the first line of a CSV file; null: it can be imported */
  fault: ColumnFault | null
}

export function ImportPage({ account }: { account: string }) {
  const { t } = useLocalized()
  const { data } = useRead('account.show', account)
  const { error, run } = useAction()
  const [encoding, setEncoding] = useState<Encoding>('utf-8')
  const [given, setGiven] = useState<File>()
  const [chosen, setChosen] = useState<Chosen>()
  const [isUploading, setUploading] = useState(false)
  const describe = ({ kind, columns }: ColumnFault) =>
    kind === 'repeated'
      ? fill(t.imports.repeatedColumns, { names: columns.join(', ') })
      : t.jobs.reasons.columns_missing
  const show = async (given: File) => {
    const format = given.name.toLowerCase().endsWith('.csv') ? 'csv' : 'ndjson'
    // The service reads UTF-8 alone.
    const file =
      encoding === 'utf-8'
        ? given
        : new File([await readText(given, encoding, t.file)], given.name, {
            lastModified: given.lastModified,
          })
    const start = await file.slice(0, START_BYTES).text()
    const lines = start.split('\n').slice(0, LINES_SHOWN)
    const columns = lines[0]?.replaceAll('"', '').split(',') ?? []
    const fault = format === 'csv' ? findColumnFault(columns.map((name) => name.trim())) : null
    setChosen({ file, format, lines, fault })
  }
  useEffect(() => {
    setChosen(undefined)
    if (given) run(() => show(given))
  }, [given, encoding])
  return (
    <Page
      title={t.imports.title}
      lead={t.imports.lead}
      trail={
        <Link href={`/accounts/${account}/audience`}>
          {fill(t.audience.of, { account: data?.account.name ?? account })}
        </Link>
      }
    >
      <Panel title={t.imports.file}>
        <DropZone
          label={t.imports.choose}
          accept=".csv,.ndjson,.jsonl,text/csv,application/x-ndjson"
          isDisabled={isUploading}
          onFile={setGiven}
        />
        {!isUploading && <EncodingField value={encoding} onChange={setEncoding} />}
        <p class="muted small-text">{t.imports.help}</p>
      </Panel>
      <ActionFailure error={error} />
      {chosen && <FirstLines {...chosen} />}
      {chosen?.fault && (
        <p class="notice bad" role="alert">
          {describe(chosen.fault)}
        </p>
      )}
      {chosen && chosen.fault === null && (
        <Upload
          key={`${chosen.file.name} ${chosen.file.lastModified} ${chosen.file.size}`}
          account={account}
          chosen={chosen}
          onUploading={setUploading}
        />
      )}
    </Page>
  )
}

function FirstLines({ file, lines }: Chosen) {
  const { t, number } = useLocalized()
  return (
    <Panel title={t.imports.firstRows}>
      <p class="muted">
        {fill(t.imports.size, { name: file.name, kilobytes: number(Math.ceil(file.size / 1024)) })}
      </p>
      <Payload text={lines.join('\n')} isShort />
    </Panel>
  )
}

/** The page of the job lists the lines with their reasons. */
function RefusedLines({ job }: { job: Job }) {
  const { t } = useLocalized()
  if (!job.tally.refused) return null
  return (
    <p>
      <Link href={`/settings/jobs/${job.id}`}>{t.imports.seeRefusals}</Link>
    </p>
  )
}

function Upload({
  account,
  chosen: { file, format },
  onUploading,
}: {
  account: string
  chosen: Chosen
  onUploading: (isUploading: boolean) => void
}) {
  const { t, percent } = useLocalized()
  const { isRunning, error, run } = useAction()
  const [job, setJob] = useState<Job>()
  const [sentBytes, setSentBytes] = useState(0)
  const [isComplete, setComplete] = useState(false)
  useEffect(() => onUploading(isRunning), [isRunning])
  // After a failure, the upload continues with the piece that is missing.
  const upload = () =>
    run(async () => {
      const { id } = job ?? (await start())
      for (let position = sentBytes; ; ) {
        const piece = file.slice(position, position + PIECE_BYTES)
        const path = `/api/jobs/${id}/file?position=${position}`
        const stored = await postBytes<{ stored: string; isComplete: boolean }>(path, piece)
        position = Number(stored.stored)
        setSentBytes(position)
        if (stored.isComplete) return setComplete(true)
      }
    })
  const start = async () => {
    const started = (await startJob('account.import-members', account, { format, size: file.size })) as Job
    setJob(started)
    return started
  }
  return (
    <Panel title={t.imports.title}>
      {job && isComplete ? (
        <JobProgress started={job} outcomes={(done) => <RefusedLines job={done} />} />
      ) : (
        <>
          {isRunning && (
            <>
              <progress aria-label={t.imports.uploading} value={sentBytes} max={file.size} />
              <p role="status">{`${t.imports.uploading} ${percent(sentBytes / file.size)}`}</p>
            </>
          )}
          <p class="notice warning">{t.imports.replaces}</p>
          <ActionFailure error={error} />
          <button type="button" class="primary" disabled={isRunning} onClick={upload}>
            {job ? t.imports.goOn : t.imports.start}
          </button>
        </>
      )}
    </Panel>
  )
}
