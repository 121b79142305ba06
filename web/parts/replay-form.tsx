/** Sends the stored events of a time range again to an endpoint of the format line. */
import { useMemo, useState } from 'preact/hooks'
import type { DeliveryAttempt } from '../../src/operator/endpoints/endpoint-history.ts'
import { type Json, post } from '../api.ts'
import { useQuery } from '../hooks.ts'
import { useLocalized } from '../texts.ts'
import { CountThenSend, RATE_DEFAULT, RateField } from './count-then-send.tsx'
import { TextField } from './form.tsx'
import { listOf } from './lists.ts'
import type { SendAgainProps } from './resend-form.tsx'
import type { Task } from './task.tsx'
import { rangeBeforeNow, rangeSince, type TimeRange, TimeRangeFields, toIso } from './time-range.tsx'

const HOUR_MS = 3_600_000

export function ReplayForm({ endpoint: { id, events: kinds }, onCancel, onStart }: SendAgainProps) {
  const { t } = useLocalized()
  const [range, setRange] = useState(() => rangeBeforeNow(HOUR_MS))
  const [events, setEvents] = useState('')
  const [rate, setRate] = useState(RATE_DEFAULT)
  const path = `/api/endpoints/${id}/replay`
  const body = { from: toIso(range.from), to: toIso(range.to), events: listOf(events), rate: Number(rate) }
  const count = async () => {
    const { events: found, ...rest } = await post<{ events: number; isMore: boolean; seconds: number }>(
      `${path}/count`,
      body,
    )
    return { count: found, ...rest }
  }
  return (
    <CountThenSend
      count={count}
      start={async () => onStart((await post<{ job: Task }>(path, body)).job)}
      texts={t.again.line}
      onCancel={onCancel}
      version={JSON.stringify(body)}
      isComplete={body.from !== null && body.to !== null}
    >
      <Presets id={id} onChoose={setRange} />
      <TimeRangeFields value={range} onChange={setRange} />
      <TextField
        name="events"
        label={t.endpoints.events}
        hint={t.again.eventsHint}
        placeholder={kinds?.join(', ') ?? 'message, follow'}
        autocomplete="off"
        value={events}
        onChange={setEvents}
      />
      <RateField label={t.again.line.rate} value={rate} onChange={setRate} />
    </CountThenSend>
  )
}

function Presets({ id, onChoose }: { id: string; onChoose: (range: TimeRange) => void }) {
  const { t } = useLocalized()
  const { data } = useQuery<{ attempts: Array<Json<DeliveryAttempt>> }>(`/api/endpoints/${id}/history`)
  const firstRefused = useMemo(() => data?.attempts.map(({ startedAt }) => startedAt).sort()[0], [data])
  return (
    <fieldset class="chips">
      <legend class="visually-hidden">{t.again.presets}</legend>
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
    </fieldset>
  )
}
