/** Changes the fields of a member that clients set: external id, tags and attributes. */
import { useState } from 'preact/hooks'
import type { Member } from '../../src/audience/member.ts'
import { ApiError, post } from '../api.ts'
import { useLocalized } from '../texts.ts'
import { Dialog } from './dialog.tsx'
import { Field, Form, TextField } from './form.tsx'

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
  const [externalId, setExternalId] = useState(member.externalId ?? '')
  const [tags, setTags] = useState(member.tags.join('\n'))
  const [attributes, setAttributes] = useState(JSON.stringify(member.attributes, null, 2))
  const save = async () => {
    const update = {
      externalId: externalId.trim() || null,
      tags: [...new Set(tags.split('\n').map((tag) => tag.trim()))].filter((tag) => tag !== ''),
      attributes: readObject(attributes, t.member.notAnObject),
    }
    // The version that this form shows, so that nobody's edit in the meantime is overwritten.
    await post(`/api/accounts/${account}/members/${member.id}`, { version: String(member.version), update })
    onSaved()
  }
  return (
    <Dialog title={t.member.editFields} onClose={onClose} isWide>
      <Form submit={t.operators.save} onSubmit={save} onCancel={onClose}>
        <TextField
          name="externalId"
          label={t.member.externalId}
          value={externalId}
          onChange={setExternalId}
        />
        <Field name="tags" label={t.audience.tags} hint={t.member.tagsHint}>
          {(control) => (
            <textarea
              {...control}
              rows={4}
              value={tags}
              onInput={(event) => setTags(event.currentTarget.value)}
            />
          )}
        </Field>
        <Field name="attributes" label={t.member.attributes} hint={t.member.attributesHint}>
          {(control) => (
            <textarea
              {...control}
              class="mono"
              rows={8}
              spellcheck={false}
              value={attributes}
              onInput={(event) => setAttributes(event.currentTarget.value)}
            />
          )}
        </Field>
      </Form>
    </Dialog>
  )
}

function readObject(text: string, message: string): unknown {
  try {
    const value: unknown = text.trim() === '' ? {} : JSON.parse(text)
    if (typeof value === 'object' && value !== null && !Array.isArray(value)) return value
  } catch {
    // Refused below.
  }
  const details = [{ path: 'attributes', message }]
  throw new ApiError(message, { status: 400, retryAfter: null, details })
}
