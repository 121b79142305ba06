/** Adds an endpoint, and changes its settings. */
import { useState } from 'preact/hooks'
import type { Condition } from '../../src/audience/condition.ts'
import type { EndpointSummary } from '../../src/endpoints/endpoints.ts'
import type { EndpointFormat } from '../../src/endpoints/event-types.ts'
import { get, type Json, queryOf } from '../api.ts'
import { useAction } from '../hooks.ts'
import { pathOf, perform, type Result } from '../operations.ts'
import { navigate } from '../router.tsx'
import { fill, useLocalized } from '../texts.ts'
import { AccountChooser } from './chooser.tsx'
import { ConditionEditor } from './condition-editor.tsx'
import { AddedDestination, isHidden, URL_MAX_LENGTH } from './destination.tsx'
import { EventKinds } from './event-kinds.tsx'
import { CheckField, FormDialog, listOf, SelectField, TextField, useFields } from './form.tsx'
import { readObject } from './member-form.tsx'
import { ActionFailure } from './states.tsx'

interface Settings {
  url: string
  name: string
  /** separated by commas; empty: all */
  events: string
  /** JSON; empty: all people */
  condition: string
  replies: boolean
  priority: string
  allowPrivateNetwork: boolean
}

export const EMPTY_ENDPOINT: Settings = {
  url: '',
  name: '',
  events: '',
  condition: '',
  replies: false,
  priority: '0',
  allowPrivateNetwork: false,
}

export function EndpointFields({
  field,
  format,
  account,
  isUrlKept = false,
}: {
  field: ReturnType<typeof useFields<Settings>>['field']
  format: EndpointFormat
  /** null: several */
  account: string | null
  isUrlKept?: boolean
}) {
  const { t } = useLocalized()
  return (
    <>
      <TextField
        {...field('url')}
        type="url"
        label={t.endpoints.url}
        hint={isUrlKept ? t.endpoints.urlKept : t.endpoints.urlHint}
        required={!isUrlKept}
        maxLength={URL_MAX_LENGTH}
        autocomplete="off"
      />
      <TextField {...field('name')} label={t.endpoints.name} maxLength={256} autocomplete="off" />
      <EventKinds {...field('events')} format={format} />
      {format === 'line' && (
        <>
          <CheckField {...field('replies')} label={t.endpoints.replies} hint={t.endpoints.repliesHint} />
          <TextField
            {...field('priority')}
            label={t.endpoints.priority}
            hint={t.endpoints.priorityHint}
            autocomplete="off"
          />
          <ConditionEditor
            {...field('condition')}
            label={t.endpoints.condition}
            hint={t.endpoints.conditionHint}
            account={account}
          />
        </>
      )}
      <CheckField
        {...field('allowPrivateNetwork')}
        label={t.endpoints.privateNetwork}
        hint={t.endpoints.privateHint}
      />
    </>
  )
}

export function FormatField(field: { value: EndpointFormat; onChange: (format: EndpointFormat) => void }) {
  const { t } = useLocalized()
  return (
    <SelectField
      {...field}
      name="format"
      label={t.endpoints.format}
      options={(['line', 'members'] as const).map((name) => [name, t.endpoints.formats[name] ?? name])}
    />
  )
}

/** What is sent of the fields that only `line` endpoints have. */
function repliesOf({ condition, replies, priority }: Settings, format: EndpointFormat, notAnObject: string) {
  if (format !== 'line') return { condition: null, replies: false, priority: 0 }
  const people =
    condition.trim() === '' ? null : (readObject('condition', condition, notAnObject) as Condition)
  return { condition: people, replies, priority: Number(priority) }
}

export const newEndpointOf = (settings: Settings, format: EndpointFormat, notAnObject: string) => {
  const { url, name, events, allowPrivateNetwork } = settings
  const given = { url, name, events: listOf(events), allowPrivateNetwork }
  return { ...given, format, ...repliesOf(settings, format, notAnObject) }
}

/** @param account null: the form asks for it */
export function AddEndpoint({ account, onClose }: { account: string | null; onClose: () => void }) {
  const { t } = useLocalized()
  const [chosen, setChosen] = useState<{ id: string; name: string } | null>(null)
  const [format, setFormat] = useState<EndpointFormat>('line')
  const { values, field } = useFields(EMPTY_ENDPOINT)
  const [added, setAdded] = useState<{ href: string; secret: string } | null>(null)
  const accountId = account ?? chosen?.id ?? null
  if (added !== null) return <AddedDestination texts={t.endpoints} {...added} />
  const add = async () => {
    if (accountId === null) return
    const given = newEndpointOf(values, format, t.member.notAnObject)
    const { id, secret } = await perform('endpoint.add', null, { ...given, account: accountId })
    const href = `/endpoints/${id}`
    if (secret === null) navigate(href)
    else setAdded({ href, secret })
  }
  const { add: title } = t.endpoints
  return (
    <FormDialog title={title} onClose={onClose} submit={title} onSubmit={add} isComplete={accountId !== null}>
      {account === null && <AccountChooser label={t.common.account} value={chosen} onChoose={setChosen} />}
      <FormatField value={format} onChange={setFormat} />
      <EndpointFields key={accountId} field={field} format={format} account={accountId} />
      {format === 'line' && accountId !== null && (
        <Rehearse
          path={pathOf('endpoint.rehearse-new', null)}
          queryFor={() => ({
            account: accountId,
            change: JSON.stringify(repliesOf(values, format, t.member.notAnObject)),
          })}
        />
      )}
    </FormDialog>
  )
}

export function EditEndpoint({
  endpoint,
  onClose,
  onSaved,
}: {
  endpoint: Json<EndpointSummary>
  onClose: () => void
  onSaved: () => void
}) {
  const { t } = useLocalized()
  const { id, format, name, condition, replies, priority, allowPrivateNetwork } = endpoint
  const isUrlKept = isHidden(endpoint.url)
  const { field, changesOf } = useFields<Settings>({
    name,
    replies,
    allowPrivateNetwork,
    condition: condition === null ? '' : JSON.stringify(condition),
    priority: String(priority),
    url: isUrlKept ? '' : endpoint.url,
    events: endpoint.events?.join(', ') ?? '',
  })
  const save = async () => {
    const { format: _, ...changes } = changesOf((values) =>
      newEndpointOf(values, format, t.member.notAnObject),
    )
    await perform('endpoint.update', id, changes)
    onSaved()
  }
  return (
    <FormDialog title={t.endpoints.editTitle} submit={t.endpoints.save} onSubmit={save} onClose={onClose}>
      <p class="muted">{t.endpoints.editText}</p>
      <EndpointFields field={field} format={format} account={endpoint.accountId} isUrlKept={isUrlKept} />
      {format === 'line' && (
        <Rehearse
          path={pathOf('endpoint.rehearse', id)}
          queryFor={() => ({
            change: JSON.stringify(changesOf((values) => repliesOf(values, format, t.member.notAnObject))),
          })}
        />
      )}
    </FormDialog>
  )
}

type Rehearsal = Result<'endpoint.rehearse'>

/** Shows whom the values of the form would give another endpoint to reply. @param path of the operation that counts */
function Rehearse({ path, queryFor }: { path: string; queryFor: () => Record<string, string> }) {
  const { t, number } = useLocalized()
  const { error, run } = useAction()
  const [shown, setShown] = useState<Rehearsal | null>(null)
  const count = () =>
    run(async () => {
      setShown(await get<Rehearsal>(path + queryOf(queryFor())))
    })
  const nameOf = (endpoint: string | null, name: string | null) =>
    endpoint === null
      ? t.endpoints.noReplier
      : name === null
        ? t.endpoints.thisEndpoint
        : `${name || t.endpoints.noName} (${endpoint})`
  return (
    <div aria-live="polite">
      <button type="button" onClick={count}>
        {t.endpoints.rehearse}
      </button>
      <ActionFailure error={error} />
      {shown && (
        <ul class="muted">
          {shown.moves.length === 0 && <li>{t.endpoints.nobodyMoves}</li>}
          {shown.moves.map(({ from, fromName, to, toName, people }) => (
            <li key={`${from} ${to}`}>
              {fill(t.endpoints.moves, {
                people: number(people),
                from: nameOf(from, fromName),
                to: nameOf(to, toName),
              })}
            </li>
          ))}
        </ul>
      )}
    </div>
  )
}
