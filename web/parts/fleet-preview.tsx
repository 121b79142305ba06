/** What a fleet file changes, or what is wrong with it. No cell of a secret column is ever shown. */
import { useState } from 'preact/hooks'
import type { FileFault } from '../../src/operator/accounts/apply-accounts.ts'
import { Link } from '../router.tsx'
import { fill } from '../texts/languages.ts'
import { describeFieldMessage } from '../texts/service.ts'
import { stateIn, useLocalized } from '../texts.ts'
import { Panel } from './page.tsx'
import { More } from './states.tsx'
import { Table } from './table.tsx'

export interface FileAccount {
  line: number
  /** null: it will be added */
  id: string | null
  organization: string
  /** null: it will be added */
  organizationId: string | null
  name: string
  channelId: string
  change: 'added' | 'updated' | 'unchanged'
  changes: Record<string, unknown>
  isUnusualSecret: boolean
}

export interface FilePreview {
  accounts: FileAccount[]
  faults: FileFault[]
  faultCount: number
}

export function FileFaults({ preview: { faults, faultCount } }: { preview: FilePreview }) {
  const { t, number } = useLocalized()
  return (
    <Panel title={t.file.faults}>
      <p class="notice bad" role="alert">
        {fill(t.file.faultsLead, { count: number(faultCount) })}
      </p>
      <Table columns={[{ label: t.file.line, class: 'numeric' }, t.file.column, t.file.fault]}>
        {faults.map(({ line, column, message }, index) => (
          <tr key={index}>
            <td class="numeric">{line === 0 ? '–' : line}</td>
            <td>{column ?? '–'}</td>
            <td>{describeFieldMessage(t, message)}</td>
          </tr>
        ))}
      </Table>
    </Panel>
  )
}

/** Rows of a large file that are shown at first, and each time more. */
const ROWS = 200

export function PreviewTable({ accounts, names }: { accounts: FileAccount[]; names: Map<string, string> }) {
  const { t } = useLocalized()
  const [shown, setShown] = useState(ROWS)
  return (
    <>
      <Table
        columns={[
          { label: t.file.line, class: 'numeric' },
          t.common.account,
          { label: t.manage.organization, class: 'medium-only' },
          t.file.change,
        ]}
      >
        {accounts.slice(0, shown).map((account) => (
          <Row key={account.line} account={account} names={names} />
        ))}
      </Table>
      <More
        list={{ hasMore: shown < accounts.length, isLoading: false, more: () => setShown(shown + ROWS) }}
      />
    </>
  )
}

function Row({
  account: { line, id, organization, organizationId, name, channelId, change, changes, isUnusualSecret },
  names,
}: {
  account: FileAccount
  names: Map<string, string>
}) {
  const { t } = useLocalized()
  return (
    <tr>
      <td class="numeric">{line}</td>
      <th scope="row" class="col-account">
        {id === null ? name : <Link href={`/accounts/${id}`}>{name}</Link>}
        <div class="sub mono">{channelId}</div>
      </th>
      <td class="medium-only">
        {organizationId === null ? organization : (names.get(organizationId) ?? organization)}
        {organizationId === null && <div class="sub">{t.file.newOrganization}</div>}
      </td>
      <td>
        <span class={`tag ${change === 'unchanged' ? '' : 'good'}`}>{t.file.changes[change]}</span>
        {change === 'updated' && <ChangeList changes={changes} />}
        {isUnusualSecret && <p class="warning-text small-text">{t.manage.unusualSecret}</p>}
      </td>
    </tr>
  )
}

function ChangeList({ changes }: { changes: Record<string, unknown> }) {
  const { t } = useLocalized()
  return (
    <ul class="plain-list small-text">
      {Object.entries(changes).map(([field, change]) => (
        <li key={field}>
          {stateIn(t.manage.fields, field)}:{' '}
          {Array.isArray(change)
            ? fill(t.file.fromTo, { before: String(change[0] ?? '–'), after: String(change[1] ?? '–') })
            : t.file.secretReplaced}
        </li>
      ))}
    </ul>
  )
}
