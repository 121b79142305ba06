/** What a fleet file changes, or what is wrong with it. No cell of a secret column is ever shown. */
import type { FileFault } from '../../src/operator/apply-accounts.ts'
import { Link } from '../router.tsx'
import { stateIn, useLocalized } from '../texts.ts'
import { Panel } from './page.tsx'
import { Table } from './table.tsx'
import { useRowWindow } from './window.ts'

export interface FileAccount {
  line: number
  /** null: it will be added */
  id: string | null
  organizationId: string
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
        {t.file.faultsLead(number(faultCount))}
      </p>
      <Table columns={[{ label: t.file.line, class: 'numeric' }, t.file.column, t.file.fault]}>
        {faults.map(({ line, column, message }, index) => (
          <tr key={index}>
            <td class="numeric">{line === 0 ? '–' : line}</td>
            <td>{column ?? '–'}</td>
            <td>{message}</td>
          </tr>
        ))}
      </Table>
    </Panel>
  )
}

export function PreviewTable({ accounts, names }: { accounts: FileAccount[]; names: Map<string, string> }) {
  const { t } = useLocalized()
  const { body, first, last, above, below } = useRowWindow(accounts.length)
  return (
    <div class="table-frame">
      <table aria-rowcount={accounts.length + 1}>
        <thead>
          <tr>
            <th scope="col" class="numeric">
              {t.file.line}
            </th>
            <th scope="col">{t.common.account}</th>
            <th scope="col" class="medium-only">
              {t.manage.organization}
            </th>
            <th scope="col">{t.file.change}</th>
          </tr>
        </thead>
        <tbody ref={body}>
          {above > 0 && <Gap height={above} />}
          {accounts.slice(first, last).map((account, i) => (
            <Row key={account.line} account={account} names={names} index={first + i + 2} />
          ))}
          {below > 0 && <Gap height={below} />}
        </tbody>
      </table>
    </div>
  )
}

function Gap({ height }: { height: number }) {
  return (
    <tr class="gap">
      <td colSpan={4} style={{ height: `${height}px` }} />
    </tr>
  )
}

function Row({
  account: { line, id, organizationId, name, channelId, change, changes, isUnusualSecret },
  names,
  index,
}: {
  account: FileAccount
  names: Map<string, string>
  index: number
}) {
  const { t } = useLocalized()
  return (
    <tr aria-rowindex={index}>
      <td class="numeric">{line}</td>
      <th scope="row" class="col-account">
        {id === null ? name : <Link href={`/accounts/${id}`}>{name}</Link>}
        <div class="sub mono">{channelId}</div>
      </th>
      <td class="medium-only">{names.get(organizationId) ?? organizationId}</td>
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
            ? t.file.fromTo(String(change[0] ?? '–'), String(change[1] ?? '–'))
            : t.file.secretReplaced}
        </li>
      ))}
    </ul>
  )
}
