/** The fields of an account's form. A stored secret is never shown: it is kept, replaced or removed. */
import type { ComponentProps } from 'preact'
import { useState } from 'preact/hooks'
import { useLocalized } from '../texts.ts'
import { CheckField, Field, TextField } from './form.tsx'
import type { FormField } from './problem-fixes.ts'

/** Null: remove the stored value. */
export type Values = Partial<Record<FormField, string | null>>

export const PUBLIC_FIELDS = [
  'name',
  'channelId',
  'basicId',
  'botUserId',
  'chatInboxId',
  'trackingKey',
  'loginChannelIds',
] as const satisfies FormField[]
export const SECRET_FIELDS = [
  'channelSecret',
  'channelAccessToken',
  'chatSecret',
] as const satisfies FormField[]
type SecretName = (typeof SECRET_FIELDS)[number]

/** Form of LINE's channel secrets. */
const CHANNEL_SECRET = /^[0-9a-f]{32}$/

interface FieldsProps {
  values: Values
  onChange: (values: Values) => void
  isStored: Record<SecretName, boolean>
  isNew: boolean
  unproven: ComponentProps<typeof StoreUnproven>
}

export function AccountFields({ values, onChange, isStored, isNew, unproven }: FieldsProps) {
  const { t } = useLocalized()
  const [usesMore] = useState(isStored.chatSecret || Boolean(values.chatInboxId || values.loginChannelIds))
  const set = (name: FormField) => (value: string | null) => onChange({ ...values, [name]: value })
  const text = (name: (typeof PUBLIC_FIELDS)[number]) => (
    <TextField
      name={name}
      label={t.manage.fields[name]}
      hint={t.manage.hints[name]}
      value={values[name] ?? ''}
      onChange={set(name)}
      autocomplete="off"
    />
  )
  const secret = (name: SecretName) => (
    <SecretField
      name={name}
      hint={hintOf(name)}
      value={values[name]}
      isStored={isStored[name]}
      onChange={set(name)}
    />
  )
  const hintOf = (name: SecretName) => {
    const { [name]: value } = values
    return name === 'channelSecret' && value && !CHANNEL_SECRET.test(value.trim())
      ? t.manage.unusualSecret
      : t.manage.hints[name]
  }
  return (
    <>
      {text('name')}
      {text('channelId')}
      {secret('channelSecret')}
      <details open={!isNew}>
        <summary>{t.manage.optional}</summary>
        <div class="form">
          {secret('channelAccessToken')}
          {text('basicId')}
          {text('botUserId')}
          <StoreUnproven {...unproven} />
        </div>
      </details>
      <details open={usesMore}>
        <summary>{t.manage.chatAndTracking}</summary>
        <div class="form">
          {secret('chatSecret')}
          {text('chatInboxId')}
          {text('loginChannelIds')}
          {text('trackingKey')}
        </div>
      </details>
    </>
  )
}

/** For a machine that does not reach LINE, or a proof that LINE refuses although both values are right. */
export function StoreUnproven(field: { value: boolean; onChange: (value: boolean) => void }) {
  const { t } = useLocalized()
  return (
    <CheckField {...field} name="unproven" label={t.manage.storeUnproven} hint={t.manage.storeUnprovenHint} />
  )
}

function SecretField({
  name,
  hint,
  value,
  isStored,
  onChange,
}: {
  name: SecretName
  hint: string
  value: string | null | undefined
  isStored: boolean
  onChange: (value: string | null) => void
}) {
  const { t } = useLocalized()
  return (
    <Field name={name} label={t.manage.fields[name]} hint={hint}>
      {(control) => (
        <div class="secret">
          <input
            type="password"
            autocomplete="new-password"
            {...control}
            placeholder={isStored ? (value === null ? t.manage.willBeRemoved : t.manage.isKept) : ''}
            value={value ?? ''}
            onInput={(event) => onChange(event.currentTarget.value)}
          />
          {isStored && (
            <button
              type="button"
              class="small"
              aria-pressed={value === null}
              onClick={() => onChange(value === null ? '' : null)}
            >
              {t.manage.remove}
              <span class="visually-hidden"> {t.manage.fields[name]}</span>
            </button>
          )}
        </div>
      )}
    </Field>
  )
}
