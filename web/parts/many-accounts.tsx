/** Changes chosen accounts of the fleet, or all that match its filter: one job with a result for each account. */
import { useState } from 'preact/hooks'
import type { EndpointFormat } from '../../src/endpoints/event-types.ts'
import { useFurtherPages } from '../hooks.ts'
import { type Input, startJob, useItems } from '../operations.ts'
import { fill, useLocalized } from '../texts.ts'
import { DialogButton } from './dialog.tsx'
import { EMPTY_ENDPOINT, EndpointFields, FormatField, newEndpointOf } from './endpoint-form.tsx'
import { SelectField, TextField, useFields } from './form.tsx'
import { type Job, JobDialog } from './job.tsx'
import { MuteFields, type MuteValues, muteOf } from './mute.tsx'

/** Ids of accounts, or the filter of the fleet that all of them match. */
export type Selection = Input<'job.verify-accounts'>[0]

/** Changes by their routes. */
const CHANGES = [
  ...(['mute-accounts', 'unmute-accounts', 'verify-accounts'] as const),
  ...(['add-endpoints', 'change-endpoints', 'add-keys'] as const),
]
type Change = (typeof CHANGES)[number]
const ACTIONS = ['pause', 'resume', 'retry', 'move', 'remove'] as const

export function ManyAccounts({
  count,
  selection,
  onClear,
  onChanged,
}: {
  count: number
  selection: Selection
  onClear: () => void
  onChanged: () => void
}) {
  const { t, number } = useLocalized()
  return (
    <div class="actions all-matching">
      <span role="status">{fill(t.many.chosen, { count: number(count) })}</span>
      <DialogButton class="primary" label={t.many.change} onClosed={onChanged}>
        {(close) => <ChangeDialog {...{ count, selection }} onClose={close} />}
      </DialogButton>
      <button type="button" onClick={onClear}>
        {t.many.clear}
      </button>
    </div>
  )
}

function ChangeDialog({
  count,
  selection,
  onClose,
}: {
  count: number
  selection: Selection
  onClose: () => void
}) {
  const { t, number } = useLocalized()
  const [change, setChange] = useState<Change>('mute-accounts')
  const [format, setFormat] = useState<EndpointFormat>('line')
  const mute = useFields<MuteValues>({ until: '', reason: '' })
  const endpoint = useFields(EMPTY_ENDPOINT)
  const present = useFields({ endpoint: '', url: '', confirmation: '' })
  const [action, setAction] = useState<(typeof ACTIONS)[number]>('pause')
  const isRemoval = change === 'change-endpoints' && action === 'remove'
  const isConfirmed = !isRemoval || present.values.confirmation.trim() === String(count)
  const access = useFields({ client: '' })
  const start: Record<Change, () => Promise<Job | undefined>> = {
    'mute-accounts': () => startJob('job.mute-accounts', null, { ...selection, ...muteOf(mute.values) }),
    'unmute-accounts': () => startJob('job.unmute-accounts', null, selection),
    'verify-accounts': () => startJob('job.verify-accounts', null, selection),
    'add-endpoints': () => {
      const settings = newEndpointOf(endpoint.values, format, t.member.notAnObject)
      return startJob('job.add-endpoints', null, { ...selection, ...settings })
    },
    'change-endpoints': () => {
      const { endpoint: of, url } = present.values
      const settings = { endpoint: of, action, ...(action === 'move' && { url }) }
      return startJob('job.change-endpoints', null, { ...selection, ...settings })
    },
    'add-keys': () => startJob('job.add-keys', null, { ...selection, ...access.values }),
  }
  return (
    <JobDialog
      title={fill(t.many.title, { count: number(count) })}
      submit={t.many.submit}
      onSubmit={start[change]}
      onClose={onClose}
      isComplete={isConfirmed && (change !== 'add-keys' || access.values.client !== '')}
    >
      <SelectField
        name="change"
        label={t.many.action}
        value={change}
        options={CHANGES.map((name) => [name, t.many.changes[name]])}
        onChange={setChange}
      />
      {change === 'mute-accounts' && <MuteFields field={mute.field} />}
      {change === 'unmute-accounts' && <p>{t.many.unmuteText}</p>}
      {change === 'verify-accounts' && <p>{t.many.verifyText}</p>}
      {change === 'add-endpoints' && (
        <>
          <FormatField value={format} onChange={setFormat} />
          <EndpointFields field={endpoint.field} format={format} account={null} />
        </>
      )}
      {change === 'change-endpoints' && (
        <>
          <TextField
            {...present.field('endpoint')}
            type="url"
            label={t.many.endpointUrl}
            hint={t.many.endpointHint}
            required
          />
          <SelectField
            name="action"
            label={t.many.endpointAction}
            value={action}
            options={ACTIONS.map((name) => [name, t.many.endpointActions[name]])}
            onChange={setAction}
          />
          {action === 'move' && (
            <TextField {...present.field('url')} type="url" label={t.many.newUrl} required />
          )}
          {isRemoval && (
            <>
              <p class="notice warning">{t.many.removeText}</p>
              <TextField
                {...present.field('confirmation')}
                label={fill(t.bulk.confirm, { count: String(count) })}
                autocomplete="off"
              />
            </>
          )}
        </>
      )}
      {change === 'add-keys' && (
        <>
          <p>{t.many.accessText}</p>
          <ClientField {...access.field('client')} />
        </>
      )}
    </JobDialog>
  )
}

function ClientField(field: { name: string; value: string; onChange: (client: string) => void }) {
  const { t } = useLocalized()
  const list = useItems('client.list')
  useFurtherPages(list)
  const active = list.items.filter(({ status }) => status === 'active')
  return (
    <SelectField
      {...field}
      label={t.clients.client}
      options={[
        ['', '–'],
        ...active.map(({ id, name, clientId }): [string, string] => [id, name ?? clientId]),
      ]}
    />
  )
}
