/** Adds an endpoint, and changes its settings. */
import { useState } from 'preact/hooks'
import type { AddedEndpoint, EndpointFormat } from '../../src/endpoints/settings.ts'
import type { EndpointSummary } from '../../src/operator/endpoints/endpoints.ts'
import { type Json, post } from '../api.ts'
import { Link } from '../router.tsx'
import { useLocalized } from '../texts.ts'
import { AccountChooser } from './chooser.tsx'
import { Dialog } from './dialog.tsx'
import { CheckField, Form, SelectField, TextField } from './form.tsx'
import { listOf } from './lists.ts'
import { SecretDialog } from './secret-once.tsx'

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
  value,
  format,
  isUrlKept = false,
  onChange,
}: {
  value: Settings
  format: EndpointFormat
  /** An empty URL leaves the stored one, which the service shows in part only. */
  isUrlKept?: boolean
  onChange: (value: Settings) => void
}) {
  const { t } = useLocalized()
  const set = <Name extends keyof Settings>(name: Name) => ({
    name,
    value: value[name],
    onChange: (changed: Settings[Name]) => onChange({ ...value, [name]: changed }),
  })
  return (
    <>
      <TextField
        {...set('url')}
        type="url"
        label={t.endpoints.url}
        hint={isUrlKept ? t.endpoints.urlKept : t.endpoints.urlHint}
        required={!isUrlKept}
        maxLength={2048}
        autocomplete="off"
      />
      <TextField {...set('name')} label={t.endpoints.name} maxLength={256} autocomplete="off" />
      <TextField
        {...set('events')}
        label={t.endpoints.events}
        hint={t.endpoints.eventsHint}
        placeholder={format === 'line' ? 'message, follow' : 'member.created, member.erased'}
        autocomplete="off"
      />
      {format === 'line' && (
        <CheckField {...set('replies')} label={t.endpoints.replies} hint={t.endpoints.repliesHint} />
      )}
      <CheckField
        {...set('allowPrivateNetwork')}
        label={t.endpoints.privateNetwork}
        hint={t.endpoints.privateHint}
      />
    </>
  )
}

/** @param account null: the form asks for it */
export function AddEndpoint({ account, onClose }: { account: string | null; onClose: () => void }) {
  const { t } = useLocalized()
  const [chosen, setChosen] = useState<{ id: string; name: string } | null>(null)
  const [format, setFormat] = useState<EndpointFormat>('line')
  const [settings, setSettings] = useState(EMPTY)
  const [added, setAdded] = useState<Json<AddedEndpoint> | null>(null)
  const accountId = account ?? chosen?.id ?? null
  if (added !== null) return <Added endpoint={added} onClose={onClose} />
  const add = async () => {
    const { events, replies, ...given } = settings
    const endpoint = { ...given, account: accountId, format, events: listOf(events) }
    setAdded(await post('/api/endpoints', { ...endpoint, replies: format === 'line' && replies }))
  }
  return (
    <Dialog title={t.endpoints.add} onClose={onClose}>
      <Form submit={t.endpoints.add} onSubmit={add} onCancel={onClose} isComplete={accountId !== null}>
        {account === null && <AccountChooser label={t.common.account} value={chosen} onChoose={setChosen} />}
        <SelectField
          name="format"
          label={t.endpoints.format}
          value={format}
          options={(['line', 'members'] as const).map((name) => [name, t.endpoints.formats[name] ?? name])}
          onChange={setFormat}
        />
        <SettingsFields value={settings} format={format} onChange={setSettings} />
      </Form>
    </Dialog>
  )
}

function Added({ endpoint, onClose }: { endpoint: Json<AddedEndpoint>; onClose: () => void }) {
  const { t } = useLocalized()
  const { secret } = endpoint
  const next = (
    <Link class={secret === null ? 'button primary' : 'button'} href={`/endpoints/${endpoint.id}`}>
      {t.endpoints.open}
    </Link>
  )
  if (secret !== null)
    return (
      <SecretDialog
        title={t.endpoints.added}
        secrets={[{ label: t.endpoints.secret, secret }]}
        {...{ onClose, next }}
      >
        <p>{t.endpoints.addedText}</p>
      </SecretDialog>
    )
  return (
    <Dialog title={t.endpoints.added} onClose={onClose}>
      <p>{t.endpoints.addedText}</p>
      <footer class="actions">
        {next}
        <button type="button" onClick={onClose}>
          {t.common.close}
        </button>
      </footer>
    </Dialog>
  )
}

/** Stands for the part of a URL that the service does not show. */
const HIDDEN = '…'

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
  const isUrlKept = endpoint.url.includes(HIDDEN)
  const [settings, setSettings] = useState<Settings>({
    ...{ name, replies, allowPrivateNetwork },
    url: isUrlKept ? '' : endpoint.url,
    events: endpoint.events?.join(', ') ?? '',
  })
  const save = async () => {
    const { url, events, ...given } = settings
    const changes = { ...given, events: listOf(events), ...(url === '' ? {} : { url }) }
    await post(`/api/endpoints/${id}/update`, changes)
    onSaved()
  }
  return (
    <Dialog title={t.endpoints.editTitle} onClose={onClose}>
      <Form submit={t.endpoints.save} onSubmit={save} onCancel={onClose}>
        <p class="muted">{t.endpoints.editText}</p>
        <SettingsFields value={settings} onChange={setSettings} {...{ format, isUrlKept }} />
      </Form>
    </Dialog>
  )
}
