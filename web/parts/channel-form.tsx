/** Adds a notification channel, and changes its settings. */
import { useState } from 'preact/hooks'
import type { Language } from '../../src/watch/languages.ts'
import type { ChannelFormat, ChannelSummary } from '../../src/watch/notifications/channels.ts'
import type { Json } from '../api.ts'
import { perform, useRead } from '../operations.ts'
import { navigate } from '../router.tsx'
import { useOperator } from '../session.ts'
import { LANGUAGE_NAMES } from '../texts/languages.ts'
import { useLocalized } from '../texts.ts'
import { AddedDestination, isHidden, URL_MAX_LENGTH } from './destination.tsx'
import { CheckField, FormDialog, SelectField, TextField, useFields } from './form.tsx'

const { 'zh-Hant-TW': zh, ...others } = LANGUAGE_NAMES
export const MESSAGE_LANGUAGES: Record<Language, string> = { ...others, zh }
const FORMATS: ChannelFormat[] = ['slack', 'webhook', 'email']

interface Settings {
  name: string
  target: string
  language: Language
  allowPrivateNetwork: boolean
}

const NEW: Settings = { name: '', target: '', language: 'en', allowPrivateNetwork: false }

interface FieldsProps {
  field: ReturnType<typeof useFields<Settings>>['field']
  format: ChannelFormat
  isTargetKept?: boolean
}

function SettingsFields({ field, format, isTargetKept = false }: FieldsProps) {
  const { t } = useLocalized()
  const seesAll = useOperator().organizationIds === null
  return (
    <>
      <TextField
        {...field('target')}
        type={format === 'email' ? 'email' : 'url'}
        label={t.notifications.targets[format]}
        hint={isTargetKept ? t.notifications.targetKept : t.notifications.targetHints[format]}
        required={!isTargetKept}
        maxLength={URL_MAX_LENGTH}
        autocomplete="off"
      />
      <TextField {...field('name')} label={t.endpoints.name} maxLength={256} autocomplete="off" />
      {format !== 'webhook' && (
        <SelectField
          {...field('language')}
          label={t.notifications.language}
          options={Object.entries(MESSAGE_LANGUAGES) as Array<[Language, string]>}
        />
      )}
      {seesAll && format !== 'email' && (
        <CheckField
          {...field('allowPrivateNetwork')}
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
  const { values, field } = useFields(NEW)
  const [added, setAdded] = useState<{ href: string; secret: string } | null>(null)
  const seesAll = useOperator().organizationIds === null
  const { data } = useRead('organization.list', null)
  if (added !== null) return <AddedDestination texts={t.notifications} {...added} />
  const add = async () => {
    const language = format === 'webhook' ? 'en' : values.language
    const given = { ...values, format, organization, language }
    const { id, secret } = await perform('channel.add', null, given)
    const href = `/settings/notifications/${id}`
    if (secret === null) navigate(href)
    else setAdded({ href, secret })
  }
  return (
    <FormDialog
      title={t.notifications.add}
      submit={t.notifications.add}
      onSubmit={add}
      onClose={onClose}
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
      <SelectField
        name="organization"
        label={t.notifications.about}
        value={organization ?? ''}
        // Only an operator of all organizations may choose all.
        options={[
          ['', seesAll ? t.operators.allOrganizations : '–'],
          ...(data?.organizations ?? []).map(({ id, name }) => [id, name] as const),
        ]}
        onChange={(id) => setOrganization(id || null)}
      />
      <SettingsFields field={field} format={format} />
    </FormDialog>
  )
}

export function EditChannel({ channel, onClose }: { channel: Json<ChannelSummary>; onClose: () => void }) {
  const { t } = useLocalized()
  const { id, format, name, language, allowPrivateNetwork } = channel
  const isTargetKept = isHidden(channel.target)
  const { field, changesOf } = useFields<Settings>({
    name,
    language,
    allowPrivateNetwork,
    target: isTargetKept ? '' : channel.target,
  })
  const save = async () => {
    await perform(
      'channel.update',
      id,
      changesOf((values) => values),
    )
    onClose()
  }
  return (
    <FormDialog title={t.notifications.editTitle} submit={t.endpoints.save} onSubmit={save} onClose={onClose}>
      <p class="muted">{t.notifications.editText}</p>
      <SettingsFields field={field} format={format} isTargetKept={isTargetKept} />
    </FormDialog>
  )
}
