/** Sends the present state of members again to an endpoint of the format members. */
import { useState } from 'preact/hooks'
import type { EndpointSummary } from '../../src/operator/endpoints/endpoints.ts'
import { get, type Json, post, queryOf } from '../api.ts'
import { useLocalized } from '../texts.ts'
import { CountThenSend, RATE_DEFAULT, RateField } from './count-then-send.tsx'
import { SelectField, TextField } from './form.tsx'
import type { Task } from './task.tsx'

export type Endpoint = Json<EndpointSummary>

export interface SendAgainProps {
  endpoint: Endpoint
  onCancel: () => void
  onStart: (task: Task) => void
}

const FIELDS = ['q', 'userId', 'externalId', 'tag'] as const
type FieldName = (typeof FIELDS)[number]
const RELATIONSHIPS = ['following', 'blocked', 'unknown'] as const

export function ResendForm({ endpoint: { id, accountId }, onCancel, onStart }: SendAgainProps) {
  const { t } = useLocalized()
  const [field, setField] = useState<FieldName>('tag')
  const [text, setText] = useState('')
  const [relationship, setRelationship] = useState('')
  const [rate, setRate] = useState(RATE_DEFAULT)
  const wanted = text.trim()
  const filters = { ...(wanted === '' ? {} : { [field]: wanted }), ...(relationship && { relationship }) }
  const body = { filters, rate: Number(rate) }
  const count = async () => {
    const path = `/api/accounts/${accountId}/audience/count${queryOf(filters)}`
    const found = await get<{ count: number }>(path)
    return { count: found.count, isMore: false, seconds: Math.ceil(found.count / body.rate) }
  }
  return (
    <CountThenSend
      count={count}
      start={async () => onStart((await post<{ job: Task }>(`/api/endpoints/${id}/resend`, body)).job)}
      texts={t.again.members}
      onCancel={onCancel}
      version={JSON.stringify(body)}
    >
      <div class="field-pair">
        <SelectField
          name="by"
          label={t.audience.by}
          value={field}
          options={FIELDS.map((name) => [name, t.audience.fields[name]])}
          onChange={setField}
        />
        <TextField
          name="filters"
          label={t.audience.search}
          autocomplete="off"
          value={text}
          onChange={setText}
        />
      </div>
      <SelectField
        name="relationship"
        label={t.audience.relationship}
        value={relationship}
        options={[
          ['', t.common.all],
          ...RELATIONSHIPS.map((name) => [name, t.audience.relationships[name]] as const),
        ]}
        onChange={setRelationship}
      />
      <RateField label={t.again.members.rate} value={rate} onChange={setRate} />
    </CountThenSend>
  )
}
