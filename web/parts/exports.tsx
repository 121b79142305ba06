/** Downloads the events of an account. */
import { useState } from 'preact/hooks'
import { queryOf } from '../api.ts'
import { useLocalized } from '../texts.ts'
import { Dialog } from './dialog.tsx'
import { rangeBeforeNow, TimeRangeFields, toIso } from './time-range.tsx'

const DAY_MS = 86_400_000

export function ExportEvents({ id }: { id: string }) {
  const { t } = useLocalized()
  const [isOpen, setOpen] = useState(false)
  return (
    <>
      <button type="button" onClick={() => setOpen(true)}>
        {t.exports.events}
      </button>
      {isOpen && <ExportDialog id={id} onClose={() => setOpen(false)} />}
    </>
  )
}

function ExportDialog({ id, onClose }: { id: string; onClose: () => void }) {
  const { t } = useLocalized()
  const [range, setRange] = useState(() => rangeBeforeNow(DAY_MS))
  const [from, to] = [toIso(range.from), toIso(range.to)]
  const isComplete = from !== null && to !== null && from < to
  return (
    <Dialog title={t.exports.eventsTitle} onClose={onClose}>
      <div class="form">
        <TimeRangeFields value={range} onChange={setRange} />
        <p>{t.exports.eventsText}</p>
      </div>
      <footer class="actions">
        {isComplete ? (
          <a class="button" href={`/api/accounts/${id}/events/export${queryOf({ from, to })}`} download>
            {t.bulk.formats.ndjson}
          </a>
        ) : (
          <button type="button" disabled>
            {t.bulk.formats.ndjson}
          </button>
        )}
      </footer>
    </Dialog>
  )
}
