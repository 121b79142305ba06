/** Mutes the worst problem of an account, and shows that it is muted. */
import type { Problem } from '../../src/watch/account-status.ts'
import type { Json } from '../api.ts'
import { serverNowMs } from '../clock.ts'
import { useAction } from '../hooks.ts'
import { perform } from '../operations.ts'
import { fill, useLocalized } from '../texts.ts'
import { DialogButton } from './dialog.tsx'
import { FormDialog, TextField, useFields } from './form.tsx'
import { ActionFailure } from './states.tsx'
import { toField, toIso } from './time-range.tsx'

const DAY_MS = 86_400_000

export interface MuteValues {
  /** as the field has it */
  until: string
  reason: string
}

export const muteOf = ({ until, reason }: MuteValues) => ({ until: toIso(until) ?? '', reason })

export function MuteFields({ field }: { field: ReturnType<typeof useFields<MuteValues>>['field'] }) {
  const { t } = useLocalized()
  return (
    <>
      <p>{t.mute.text}</p>
      <TextField
        {...field('until')}
        type="datetime-local"
        label={t.mute.until}
        hint={t.mute.untilHint}
        required
      />
      <div class="chips">
        {([1, 7] as const).map((days) => (
          <button
            key={days}
            type="button"
            onClick={() => field('until').onChange(toField(serverNowMs() + days * DAY_MS))}
          >
            {t.mute.suggested[days === 1 ? 'day' : 'week']}
          </button>
        ))}
      </div>
      <TextField {...field('reason')} label={t.mute.reason} hint={t.mute.reasonHint} required />
    </>
  )
}

export function Muted({ problem: { muted } }: { problem: Json<Problem> }) {
  const { t, dateTime } = useLocalized()
  if (muted === undefined) return null
  const { until, reason } = muted
  return (
    <span class="tag" title={fill(t.mute.mutedUntil, { time: dateTime(until), reason })}>
      {t.mute.muted}
    </span>
  )
}

export function MuteButton({
  id,
  problem: { muted },
  onDone,
}: {
  id: string
  problem: Problem
  onDone: () => void
}) {
  const { t } = useLocalized()
  const { isRunning, error, run } = useAction()
  const unmute = () => perform('account.unmute', id).then(onDone)
  if (muted === undefined)
    return (
      <DialogButton label={t.mute.button} onClosed={onDone}>
        {(close) => <MuteDialog id={id} onClose={close} />}
      </DialogButton>
    )
  return (
    <>
      <button type="button" disabled={isRunning} onClick={() => run(unmute)}>
        {t.mute.unmute}
      </button>
      <ActionFailure error={error} />
    </>
  )
}

function MuteDialog({ id, onClose }: { id: string; onClose: () => void }) {
  const { t } = useLocalized()
  const { values, field } = useFields<MuteValues>({ until: '', reason: '' })
  const mute = () => perform('account.mute', id, muteOf(values)).then(onClose)
  return (
    <FormDialog title={t.mute.title} submit={t.mute.submit} onSubmit={mute} onClose={onClose}>
      <MuteFields field={field} />
    </FormDialog>
  )
}
