/** Segments of an account: one as a filter, and the filters of a page as a new one. */
import { useEffect, useState } from 'preact/hooks'
import type { Condition } from '../../src/audience/condition.ts'
import { useAction, useFurtherPages } from '../hooks.ts'
import { type Item, perform, useItems } from '../operations.ts'
import { replaceQuery } from '../router.tsx'
import { useRole } from '../session.ts'
import { describeCondition } from '../texts/service.ts'
import { fill, stateIn, useLocalized } from '../texts.ts'
import { ConditionEditor } from './condition-editor.tsx'
import { Dialog, DialogButton } from './dialog.tsx'
import { ChoiceFilter } from './filters.tsx'
import { FormDialog, TextField, useFields } from './form.tsx'
import { readObject } from './member-form.tsx'
import { ActionFailure } from './states.tsx'

type Segment = Item<'segment.list'>

/** Shown when the account has segments, or when the address has one. @param onChange after a change of the chosen segment */
export function SegmentFilter({
  account,
  value,
  onChange,
}: {
  account: string
  value: string
  onChange: () => void
}) {
  const { t } = useLocalized()
  const isManager = useRole('manager')
  const list = useItems('segment.list', null, { account })
  // An account has at most 100 segments: two pages.
  useFurtherPages(list)
  // A segment that was just added is not in the list yet.
  useEffect(list.reload, [value])
  const names = new Set([...list.items.map(({ name }) => name), ...(value === '' ? [] : [value])])
  if (names.size === 0) return null
  const chosen = list.items.find(({ name }) => name === value)
  const saved = () => {
    list.reload()
    onChange()
  }
  return (
    <>
      <ChoiceFilter
        name="segment"
        label={t.segments.label}
        value={value}
        options={[['', t.common.all], ...[...names].map((name) => [name, name] as const)]}
      />
      {chosen && (
        <DialogButton label={t.segments.sync} onClosed={saved}>
          {(close) => <SyncDialog segment={chosen} onClose={close} />}
        </DialogButton>
      )}
      {isManager && chosen && (
        <>
          <DialogButton label={t.segments.edit} onClosed={saved}>
            {(close) => <SegmentDialog {...{ account, segment: chosen }} onClose={close} />}
          </DialogButton>
          <DialogButton label={t.segments.remove} onClosed={saved}>
            {(close) => <RemovalDialog segment={chosen} onClose={close} />}
          </DialogButton>
        </>
      )}
    </>
  )
}

function RemovalDialog({ segment: { id, name }, onClose }: { segment: Segment; onClose: () => void }) {
  const { t } = useLocalized()
  const remove = async () => {
    await perform('segment.remove', id)
    replaceQuery({ segment: null })
    onClose()
  }
  return (
    <FormDialog
      title={fill(t.segments.removeTitle, { name })}
      submit={t.segments.remove}
      onSubmit={remove}
      onClose={onClose}
      isDangerous
    >
      <p>{t.segments.removeText}</p>
    </FormDialog>
  )
}

function SyncDialog({ segment, onClose }: { segment: Segment; onClose: () => void }) {
  const { t } = useLocalized()
  const { isRunning, error, run } = useAction()
  const { id, name, sync, syncState, syncReason, audienceName } = segment
  const [done, setDone] = useState<'on' | 'off' | 'now'>()
  const change = async (mode: 'on' | 'off' | 'now') => {
    await perform('segment.sync', id, { mode })
    setDone(mode)
  }
  const modes = !useRole('manager') ? [] : sync ? (['now', 'off'] as const) : (['on'] as const)
  return (
    <Dialog title={fill(t.segments.syncTitle, { name })} onClose={onClose}>
      <p role="status">{done ? t.segments.done[done] : stateIn(t.segments.states, syncState)}</p>
      {syncReason && (
        <p>
          {t.segments.reason}: {syncReason}
        </p>
      )}
      {audienceName && (
        <p>
          {t.segments.audience}: {audienceName}
        </p>
      )}
      <ActionFailure error={error} />
      <footer class="actions">
        {!done &&
          modes.map((mode) => (
            <button key={mode} type="button" disabled={isRunning} onClick={() => run(() => change(mode))}>
              {t.segments[mode]}
            </button>
          ))}
        <button type="button" onClick={onClose}>
          {t.common.close}
        </button>
      </footer>
    </Dialog>
  )
}

interface Props {
  account: string
  /** the filters of GET /api/accounts/:id/members */
  filters: Record<string, string>
}

/** The filters of the page are the condition that the dialog begins with. Names and ids of people are not part of a condition. */
export function SaveSegment({ account, filters }: Props) {
  const { t } = useLocalized()
  return (
    <DialogButton label={t.segments.save}>
      {(close) => (
        <SegmentDialog
          {...{ account, segment: { name: '', condition: conditionOf(filters) } }}
          onClose={close}
        />
      )}
    </DialogButton>
  )
}

function conditionOf({ tag, relationship, source, condition }: Props['filters']): Condition {
  return {
    ...(condition && JSON.parse(condition)),
    ...(source && { sourceAny: [source] }),
    ...(tag && { tagsAll: [tag] }),
    ...(relationship && { relationship: relationship as NonNullable<Condition['relationship']> }),
  }
}

/** A condition that no segment has, as a filter. */
export function ConditionFilter({ account, value }: { account: string; value: string }) {
  const { t } = useLocalized()
  const text = describeCondition(t, value).join(' · ')
  return (
    <>
      <DialogButton label={t.segments.filter}>
        {(close) => <FilterDialog {...{ account, value }} onClose={close} />}
      </DialogButton>
      {value !== '' && (
        <button
          type="button"
          aria-label={fill(t.condition.remove, { field: text })}
          onClick={() => replaceQuery({ condition: null })}
        >
          {text} ×
        </button>
      )}
    </>
  )
}

function FilterDialog({
  account,
  value,
  onClose,
}: Parameters<typeof ConditionFilter>[0] & { onClose: () => void }) {
  const { t } = useLocalized()
  const { values, field } = useFields({ condition: value })
  const filter = async () => {
    replaceQuery({ condition: values.condition || null, segment: null })
    onClose()
  }
  return (
    <FormDialog
      title={t.segments.filter}
      submit={t.segments.filterSubmit}
      onSubmit={filter}
      onClose={onClose}
    >
      <ConditionEditor {...field('condition')} label={t.segments.condition} account={account} />
    </FormDialog>
  )
}

/** What a new segment replaces. */
const OTHER_FILTERS = ['q', 'userId', 'externalId', 'tag', 'source', 'relationship', 'condition']

/** Without an id, the segment is added. */
function SegmentDialog({
  account,
  segment,
  onClose,
}: {
  account: string
  segment: Pick<Segment, 'name' | 'condition'> & { id?: string }
  onClose: () => void
}) {
  const { t } = useLocalized()
  const { values, field, changesOf } = useFields({
    name: segment.name,
    condition: JSON.stringify(segment.condition),
  })
  const save = async () => {
    const requestOf = ({ name, condition }: typeof values) => ({
      name: name.trim(),
      condition: readObject('condition', condition, t.member.notAnObject) as Condition,
    })
    if (segment.id === undefined) await perform('segment.add', null, { account, ...requestOf(values) })
    else await perform('segment.update', segment.id, changesOf(requestOf))
    const others = Object.fromEntries(OTHER_FILTERS.map((filter) => [filter, null]))
    replaceQuery({ ...(segment.id === undefined && others), segment: values.name.trim() })
    onClose()
  }
  return (
    <FormDialog
      title={t.segments.title}
      submit={t.segments.submit}
      onSubmit={save}
      onClose={onClose}
      isComplete={values.name.trim() !== ''}
    >
      <TextField {...field('name')} label={t.segments.name} maxLength={100} />
      <ConditionEditor
        {...field('condition')}
        label={t.segments.condition}
        hint={t.segments.hint}
        account={account}
      />
    </FormDialog>
  )
}
