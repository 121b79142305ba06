/** Sends again what an endpoint has missed: the events of a time range, or the present state of members. */
import { useMemo, useState } from 'preact/hooks'
import type { EndpointSummary } from '../../src/endpoints/endpoints.ts'
import type { Json } from '../api.ts'
import { read, startJob, useRead } from '../operations.ts'
import { useRole } from '../session.ts'
import { useLocalized } from '../texts.ts'
import { CountThenSend, RATE_DEFAULT, RateField } from './count-then-send.tsx'
import { CloseFooter, Dialog } from './dialog.tsx'
import { Chips } from './filters.tsx'
import { listOf, SelectField, TextField, useFields } from './form.tsx'
import { isOver, type Job, JobProgress } from './job.tsx'
import { Panel } from './page.tsx'
import { rangeBeforeNow, rangeSince, type TimeRange, TimeRangeFields, toIso } from './time-range.tsx'

const KINDS = ['endpoint.replay', 'endpoint.resend']

/** The button, and the job of this endpoint that has not ended. */
export function SendAgain({ endpoint, onChange }: { endpoint: Endpoint; onChange: () => void }) {
  const { t } = useLocalized()
  const isManager = useRole('manager')
  const [isOpen, setOpen] = useState(false)
  const { data, reload } = useRead('job.list', null, { account: endpoint.accountId })
  const running = data?.jobs.find(
    (job) => !isOver(job) && KINDS.includes(job.kind) && String(job.parameters.endpointId) === endpoint.id,
  )
  const texts = endpoint.format === 'line' ? t.again.line : t.again.members
  const refresh = () => {
    reload()
    onChange()
  }
  return (
    <Panel
      title={t.again.title}
      actions={
        isManager &&
        running === undefined && (
          <button type="button" onClick={() => setOpen(true)}>
            {texts.open}
          </button>
        )
      }
    >
      <p class="muted">{texts.lead}</p>
      {running && !isOpen && <JobProgress key={running.id} started={running} onEnd={refresh} />}
      {isOpen && (
        <SendAgainDialog
          endpoint={endpoint}
          onClose={() => {
            setOpen(false)
            refresh()
          }}
        />
      )}
    </Panel>
  )
}

function SendAgainDialog({ endpoint, onClose }: { endpoint: Endpoint; onClose: () => void }) {
  const { t } = useLocalized()
  const [job, setJob] = useState<Job>()
  const isLine = endpoint.format === 'line'
  const SendForm = isLine ? ReplayForm : ResendForm
  return (
    <Dialog title={isLine ? t.again.line.heading : t.again.members.heading} onClose={onClose}>
      {job ? (
        <>
          <JobProgress started={job} />
          <CloseFooter onClose={onClose} />
        </>
      ) : (
        <SendForm endpoint={endpoint} onCancel={onClose} onStart={setJob} />
      )}
    </Dialog>
  )
}

type Endpoint = Json<EndpointSummary>

interface SendAgainProps {
  endpoint: Endpoint
  onCancel: () => void
  onStart: (job: Job | undefined) => void
}

const FIELDS = ['q', 'userId', 'externalId', 'tag'] as const
type FieldName = (typeof FIELDS)[number]
const RELATIONSHIPS = ['following', 'blocked', 'unknown'] as const

function ResendForm({ endpoint: { id, accountId }, onCancel, onStart }: SendAgainProps) {
  const { t } = useLocalized()
  const { values, field } = useFields({
    by: 'tag' as FieldName,
    filters: '',
    relationship: '' as (typeof RELATIONSHIPS)[number] | '',
    rate: RATE_DEFAULT,
  })
  const { by, relationship } = values
  const wanted = values.filters.trim()
  const filters = { ...(wanted && { [by]: wanted }), ...(relationship && { relationship }) }
  const body = { filters, rate: Number(values.rate) }
  const count = async () => {
    const found = await read('account.count-members', accountId, filters)
    return { count: found.count, isMore: false, seconds: Math.ceil(found.count / body.rate) }
  }
  return (
    <CountThenSend
      count={count}
      start={async () => onStart(await startJob('endpoint.resend', id, body))}
      texts={t.again.members}
      onCancel={onCancel}
      version={JSON.stringify(body)}
    >
      <div class="field-pair">
        <SelectField
          {...field('by')}
          label={t.audience.by}
          options={FIELDS.map((name) => [name, t.audience.fields[name]])}
        />
        <TextField {...field('filters')} label={t.audience.search} autocomplete="off" />
      </div>
      <SelectField
        {...field('relationship')}
        label={t.audience.relationship}
        options={[
          ['', t.common.all],
          ...RELATIONSHIPS.map((name) => [name, t.audience.relationships[name]] as const),
        ]}
      />
      <RateField {...field('rate')} label={t.again.members.rate} />
    </CountThenSend>
  )
}

const HOUR_MS = 3_600_000

function ReplayForm({ endpoint: { id, events: kinds }, onCancel, onStart }: SendAgainProps) {
  const { t } = useLocalized()
  const [range, setRange] = useState(() => rangeBeforeNow(HOUR_MS))
  const { values, field } = useFields({ events: '', rate: RATE_DEFAULT })
  const body = {
    from: toIso(range.from) ?? '',
    to: toIso(range.to) ?? '',
    events: listOf(values.events),
    rate: Number(values.rate),
  }
  const count = async () => {
    const range = { from: body.from, to: body.to, events: values.events.trim() || null }
    const { events: found, isMore } = await read('endpoint.count-replay', id, range)
    return { count: found, isMore, seconds: Math.ceil(found / body.rate) }
  }
  return (
    <CountThenSend
      count={count}
      start={async () => onStart(await startJob('endpoint.replay', id, body))}
      texts={t.again.line}
      onCancel={onCancel}
      version={JSON.stringify(body)}
      isComplete={body.from !== '' && body.to !== ''}
    >
      <Presets id={id} onChoose={setRange} />
      <TimeRangeFields value={range} onChange={setRange} />
      <TextField
        {...field('events')}
        label={t.endpoints.events}
        hint={t.again.eventsHint}
        placeholder={kinds?.join(', ') ?? 'message, follow'}
        autocomplete="off"
      />
      <RateField {...field('rate')} label={t.again.line.rate} />
    </CountThenSend>
  )
}

function Presets({ id, onChoose }: { id: string; onChoose: (range: TimeRange) => void }) {
  const { t } = useLocalized()
  const { data } = useRead('endpoint.history', id)
  const firstRefused = useMemo(() => data?.attempts.map(({ startedAt }) => startedAt).sort()[0], [data])
  return (
    <Chips label={t.again.presets}>
      <button type="button" onClick={() => onChoose(rangeBeforeNow(HOUR_MS))}>
        {t.again.lastHour}
      </button>
      <button type="button" onClick={() => onChoose(rangeBeforeNow(24 * HOUR_MS))}>
        {t.again.lastDay}
      </button>
      {firstRefused !== undefined && (
        <button type="button" onClick={() => onChoose(rangeSince(firstRefused))}>
          {t.again.sinceRefused}
        </button>
      )}
    </Chips>
  )
}
