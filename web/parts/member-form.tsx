/** Changes the fields of a member that clients set: external id, tags and attributes. */
import type { Member } from '../../src/audience/member.ts'
import { perform } from '../operations.ts'
import { useLocalized } from '../texts.ts'
import { Field, type FieldProps, FormDialog, refuse, TextField, useFields } from './form.tsx'

export function MemberDialog({
  account,
  member,
  onClose,
  onSaved,
}: {
  account: string
  member: Member
  onClose: () => void
  onSaved: () => void
}) {
  const { t } = useLocalized()
  const { field, changesOf } = useFields({
    externalId: member.externalId ?? '',
    tags: member.tags.join('\n'),
    attributes: JSON.stringify(member.attributes, null, 2),
  })
  const save = async () => {
    const update = changesOf(({ externalId, tags, attributes }) => ({
      externalId: externalId.trim() || null,
      tags: [...new Set(tags.split('\n').map((tag) => tag.trim()))].filter((tag) => tag !== ''),
      attributes: readObject('attributes', attributes, t.member.notAnObject),
    }))
    // The version that this form shows, so that nobody's edit in the meantime is overwritten.
    const edited = { member: String(member.id), version: String(member.version), update }
    await perform('account.update-member', account, edited)
    onSaved()
  }
  return (
    <FormDialog
      title={t.member.editFields}
      submit={t.operators.save}
      onSubmit={save}
      onClose={onClose}
      isWide
    >
      <TextField {...field('externalId')} label={t.member.externalId} />
      <TextArea {...field('tags')} label={t.audience.tags} hint={t.member.tagsHint} rows={4} />
      <TextArea
        {...field('attributes')}
        label={t.member.attributes}
        hint={t.member.attributesHint}
        class="mono"
        rows={8}
        spellcheck={false}
      />
    </FormDialog>
  )
}

export function TextArea({
  name,
  label,
  hint,
  onChange,
  ...area
}: FieldProps & {
  value: string
  onChange: (value: string) => void
  rows: number
  class?: string
  spellcheck?: boolean
}) {
  return (
    <Field name={name} label={label} hint={hint}>
      {(control) => (
        <textarea {...control} {...area} onInput={(event) => onChange(event.currentTarget.value)} />
      )}
    </Field>
  )
}

/** @param path the field of the request */
export function readObject(path: string, text: string, message: string): object {
  try {
    const value: unknown = text.trim() === '' ? {} : JSON.parse(text)
    if (typeof value === 'object' && value !== null && !Array.isArray(value)) return value
  } catch {
    // Refused below.
  }
  return refuse(path, message)
}
