/** Adds an endpoint, and changes its settings. */
import { useState } from 'preact/hooks'
import type { EndpointSummary } from '../../src/endpoints/endpoints.ts'
import type { EndpointFormat } from '../../src/endpoints/settings.ts'
import type { Json } from '../api.ts'
import { perform, type Result } from '../operations.ts'
import { useLocalized } from '../texts.ts'
import { AccountChooser } from './chooser.tsx'
import { AddedDestination, DestinationFields, isHidden } from './destination.tsx'
import { CheckField, FormDialog, listOf, SelectField, TextField, useFields } from './form.tsx'

interface Settings {
  url: string
  name: string
  /** separated by commas; empty: all */
  events: string
  replies: boolean
  allowPrivateNetwork: boolean
}

const EMPTY: Settings = { url: '', name: '', events: '', replies: false, allowPrivateNetwork: false }

function SettingsFields({
  field,
  format,
  isUrlKept = false,
}: {
  field: ReturnType<typeof useFields<Settings>>['field']
  format: EndpointFormat
  isUrlKept?: boolean
}) {
  const { t } = useLocalized()
  const hint = isUrlKept ? t.endpoints.urlKept : t.endpoints.urlHint
  return (
    <DestinationFields
      address={{ ...field('url'), label: t.endpoints.url, hint, required: !isUrlKept }}
      name={field('name')}
      privateNetwork={field('allowPrivateNetwork')}
    >
      <TextField
        {...field('events')}
        label={t.endpoints.events}
        hint={t.endpoints.eventsHint}
        placeholder={format === 'line' ? 'message, follow' : 'member.created, member.erased'}
        autocomplete="off"
      />
      {format === 'line' && (
        <CheckField {...field('replies')} label={t.endpoints.replies} hint={t.endpoints.repliesHint} />
      )}
    </DestinationFields>
  )
}

/** @param account null: the form asks for it */
export function AddEndpoint({ account, onClose }: { account: string | null; onClose: () => void }) {
  const { t } = useLocalized()
  const [chosen, setChosen] = useState<{ id: string; name: string } | null>(null)
  const [format, setFormat] = useState<EndpointFormat>('line')
  const { values, field } = useFields(EMPTY)
  const [added, setAdded] = useState<Result<'endpoint.add'> | null>(null)
  const accountId = account ?? chosen?.id ?? null
  if (added !== null)
    return (
      <AddedDestination
        texts={t.endpoints}
        secret={added.secret}
        href={`/endpoints/${added.id}`}
        onClose={onClose}
      />
    )
  const add = async () => {
    if (accountId === null) return
    const { events, replies, ...given } = values
    const endpoint = { ...given, account: accountId, format, events: listOf(events) }
    setAdded(await perform('endpoint.add', null, { ...endpoint, replies: format === 'line' && replies }))
  }
  const { add: title } = t.endpoints
  return (
    <FormDialog title={title} onClose={onClose} submit={title} onSubmit={add} isComplete={accountId !== null}>
      {account === null && <AccountChooser label={t.common.account} value={chosen} onChoose={setChosen} />}
      <SelectField
        name="format"
        label={t.endpoints.format}
        value={format}
        options={(['line', 'members'] as const).map((name) => [name, t.endpoints.formats[name] ?? name])}
        onChange={setFormat}
      />
      <SettingsFields field={field} format={format} />
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
  const { id, format, name, replies, allowPrivateNetwork } = endpoint
  const isUrlKept = isHidden(endpoint.url)
  const { values, field } = useFields<Settings>({
    name,
    replies,
    allowPrivateNetwork,
    url: isUrlKept ? '' : endpoint.url,
    events: endpoint.events?.join(', ') ?? '',
  })
  const save = async () => {
    const { url, events, ...given } = values
    const changes = { ...given, events: listOf(events), ...(url === '' ? {} : { url }) }
    await perform('endpoint.update', id, changes)
    onSaved()
  }
  return (
    <FormDialog title={t.endpoints.editTitle} submit={t.endpoints.save} onSubmit={save} onClose={onClose}>
      <p class="muted">{t.endpoints.editText}</p>
      <SettingsFields field={field} format={format} isUrlKept={isUrlKept} />
    </FormDialog>
  )
}
