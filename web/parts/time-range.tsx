/** Two fields for the beginning and the end of a time range, in the time zone of the browser. */
import { useState } from 'preact/hooks'
import { queryOf } from '../api.ts'
import { serverNowMs } from '../clock.ts'
import { useLocalized } from '../texts.ts'
import { DialogButton } from './dialog.tsx'
import { FormDialog, TextField } from './form.tsx'

export interface TimeRange {
  /** as the fields have them, such as 2026-11-23T13:00; empty: none */
  from: string
  to: string
}

const MINUTE_MS = 60_000

/** The last `ms` before now. The end is rounded up to the next minute, so that it contains the present one. */
export function rangeBeforeNow(ms: number): TimeRange {
  const nowMs = serverNowMs()
  return { from: toField(nowMs - ms), to: toField(nowMs + MINUTE_MS) }
}

/** From a time until now. */
export const rangeSince = (iso: string): TimeRange => rangeBeforeNow(serverNowMs() - Date.parse(iso))

/** A time as `datetime-local` has it: the clock of the browser, without a zone. */
export function toField(ms: number): string {
  const local = new Date(ms - new Date(ms).getTimezoneOffset() * MINUTE_MS)
  return local.toISOString().slice(0, 'YYYY-MM-DDTHH:MM'.length)
}

/** Null unless the field has a complete time. */
export function toIso(field: string): string | null {
  const ms = Date.parse(field)
  return Number.isNaN(ms) ? null : new Date(ms).toISOString()
}

export function TimeRangeFields({
  value,
  onChange,
}: {
  value: TimeRange
  onChange: (value: TimeRange) => void
}) {
  const { t } = useLocalized()
  return (
    <div class="field-pair">
      {(['from', 'to'] as const).map((name) => (
        <TextField
          key={name}
          name={name}
          type="datetime-local"
          label={t.again[name]}
          required
          value={value[name]}
          onChange={(time) => onChange({ ...value, [name]: time })}
        />
      ))}
    </div>
  )
}

const DAY_MS = 86_400_000

export function ExportEvents({ id }: { id: string }) {
  const { t } = useLocalized()
  return (
    <DialogButton label={t.exports.events}>
      {(close) => <ExportDialog id={id} onClose={close} />}
    </DialogButton>
  )
}

function ExportDialog({ id, onClose }: { id: string; onClose: () => void }) {
  const { t } = useLocalized()
  const [range, setRange] = useState(() => rangeBeforeNow(DAY_MS))
  const [from, to] = [toIso(range.from), toIso(range.to)]
  const download = async () => location.assign(`/api/accounts/${id}/events/export${queryOf({ from, to })}`)
  return (
    <FormDialog
      title={t.exports.eventsTitle}
      submit={t.bulk.formats.ndjson}
      onSubmit={download}
      onClose={onClose}
      isComplete={from !== null && to !== null && from < to}
    >
      <TimeRangeFields value={range} onChange={setRange} />
      <p>{t.exports.eventsText}</p>
    </FormDialog>
  )
}
