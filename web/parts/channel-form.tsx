/** Adds a notification channel, and changes its settings. */
import { useState } from 'preact/hooks'
import type { AddedChannel } from '../../src/operations/channels.ts'
import type { OrganizationSummary } from '../../src/operator/accounts/organizations.ts'
import type { ChannelFormat } from '../../src/operator/notifications/channels.ts'
import { type Json, post } from '../api.ts'
import { useQuery } from '../hooks.ts'
import { Link } from '../router.tsx'
import { useOperator } from '../session.ts'
import { useLocalized } from '../texts.ts'
import type { Channel } from './channel-state.tsx'
import { Dialog } from './dialog.tsx'
import { CheckField, Form, SelectField, TextField } from './form.tsx'
import { SecretDialog } from './secret-once.tsx'

const FORMATS: ChannelFormat[] = ['slack', 'webhook', 'email']

interface Settings {
  name: string
  target: string
  allowPrivateNetwork: boolean
}

const NEW: Settings = { name: '', target: '', allowPrivateNetwork: false }

interface FieldsProps {
  value: Settings
  format: ChannelFormat
  /** An empty target leaves the stored one, which the service shows in part only. */
  isTargetKept?: boolean
  onChange: (value: Settings) => void
}

function SettingsFields({ value, format, isTargetKept = false, onChange }: FieldsProps) {
  const { t } = useLocalized()
  const seesAll = useOperator().organizationIds === null
  const set = <Name extends keyof Settings>(name: Name) => ({
    name,
    value: value[name],
    onChange: (changed: Settings[Name]) => onChange({ ...value, [name]: changed }),
  })
  return (
    <>
      <TextField
        {...set('target')}
        type={format === 'email' ? 'email' : 'url'}
        label={t.notifications.targets[format]}
        hint={isTargetKept ? t.notifications.targetKept : t.notifications.targetHints[format]}
        required={!isTargetKept}
        maxLength={2048}
        autocomplete="off"
      />
      <TextField {...set('name')} label={t.endpoints.name} maxLength={256} autocomplete="off" />
      {seesAll && format !== 'email' && (
        <CheckField
          {...set('allowPrivateNetwork')}
          label={t.endpoints.privateNetwork}
          hint={t.endpoints.privateHint}
        />
      )}
    </>
  )
}

export function AddChannel({ canEmail, onClose }: { canEmail: boolean; onClose: () => void }) {
  const { t } = useLocalized()
  const [format, setFormat] = useState<ChannelFormat>('slack')
  const [organization, setOrganization] = useState<string | null>(null)
  const [settings, setSettings] = useState(NEW)
  const [added, setAdded] = useState<Json<AddedChannel> | null>(null)
  const seesAll = useOperator().organizationIds === null
  if (added !== null) return <Added channel={added} onClose={onClose} />
  const add = async () => setAdded(await post('/api/notifications', { ...settings, format, organization }))
  return (
    <Dialog title={t.notifications.add} onClose={onClose}>
      <Form
        submit={t.notifications.add}
        onSubmit={add}
        onCancel={onClose}
        isComplete={(seesAll || organization !== null) && (format !== 'email' || canEmail)}
      >
        <SelectField
          name="format"
          label={t.endpoints.format}
          hint={format === 'email' && !canEmail ? t.notifications.noMail : t.notifications.formatHelp[format]}
          value={format}
          options={FORMATS.map((name) => [name, t.notifications.formats[name]])}
          onChange={setFormat}
        />
        <OrganizationField value={organization} onChange={setOrganization} />
        <SettingsFields value={settings} format={format} onChange={setSettings} />
      </Form>
    </Dialog>
  )
}

/** Null stands for all organizations, which only an operator of all organizations may choose. */
function OrganizationField({
  value,
  onChange,
}: {
  value: string | null
  onChange: (id: string | null) => void
}) {
  const { t } = useLocalized()
  const seesAll = useOperator().organizationIds === null
  const { data } = useQuery<{ organizations: Array<Json<OrganizationSummary>> }>('/api/organizations')
  const organizations = (data?.organizations ?? []).map(({ id, name }) => [id, name] as const)
  return (
    <SelectField
      name="organization"
      label={t.notifications.about}
      value={value ?? ''}
      options={[['', seesAll ? t.operators.allOrganizations : '–'], ...organizations]}
      onChange={(id) => onChange(id === '' ? null : id)}
    />
  )
}

function Added({ channel, onClose }: { channel: Json<AddedChannel>; onClose: () => void }) {
  const { t } = useLocalized()
  const { secret } = channel
  const next = (
    <Link
      class={secret === null ? 'button primary' : 'button'}
      href={`/settings/notifications/${channel.id}`}
    >
      {t.notifications.open}
    </Link>
  )
  if (secret !== null)
    return (
      <SecretDialog
        title={t.notifications.added}
        secrets={[{ label: t.endpoints.secret, secret }]}
        {...{ onClose, next }}
      >
        <p>{t.notifications.addedText}</p>
      </SecretDialog>
    )
  return (
    <Dialog title={t.notifications.added} onClose={onClose}>
      <p>{t.notifications.addedText}</p>
      <footer class="actions">
        {next}
        <button type="button" onClick={onClose}>
          {t.common.close}
        </button>
      </footer>
    </Dialog>
  )
}

/** Stands for the part of a target that the service does not show. */
const HIDDEN = '…'

export function EditChannel({
  channel,
  onClose,
  onSaved,
}: {
  channel: Channel
  onClose: () => void
  onSaved: () => void
}) {
  const { t } = useLocalized()
  const { id, format, name, allowPrivateNetwork } = channel
  const isTargetKept = channel.target.includes(HIDDEN)
  const [settings, setSettings] = useState<Settings>({
    ...{ name, allowPrivateNetwork },
    target: isTargetKept ? '' : channel.target,
  })
  const save = async () => {
    const { target, ...changes } = settings
    await post(`/api/notifications/${id}/update`, { ...changes, ...(target === '' ? {} : { target }) })
    onSaved()
  }
  return (
    <Dialog title={t.notifications.editTitle} onClose={onClose}>
      <Form submit={t.endpoints.save} onSubmit={save} onCancel={onClose}>
        <p class="muted">{t.notifications.editText}</p>
        <SettingsFields value={settings} onChange={setSettings} {...{ format, isTargetKept }} />
      </Form>
    </Dialog>
  )
}
