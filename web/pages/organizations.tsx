/** Organizations: add, rename and remove. */
import { useState } from 'preact/hooks'
import type { OrganizationContents, OrganizationSummary } from '../../src/operator/accounts/organizations.ts'
import { type Json, post } from '../api.ts'
import { useQuery } from '../hooks.ts'
import { Dialog } from '../parts/dialog.tsx'
import { Form, TextField } from '../parts/form.tsx'
import { Page } from '../parts/page.tsx'
import { Removal } from '../parts/removal.tsx'
import { Empty, Failure, Loading } from '../parts/states.tsx'
import { Table } from '../parts/table.tsx'
import { Count } from '../parts/values.tsx'
import { useOperator, useRole } from '../session.ts'
import { fill } from '../texts/languages.ts'
import { useLocalized } from '../texts.ts'

type Organization = Json<OrganizationSummary>

const NAME_MAX_LENGTH = 256

export function OrganizationsPage() {
  const { t } = useLocalized()
  const { data, error, isLoading, reload } = useQuery<{ organizations: Organization[] }>('/api/organizations')
  const [edited, setEdited] = useState<Organization | 'new' | null>(null)
  const [removed, setRemoved] = useState<Organization | null>(null)
  const isOwner = useRole('owner')
  const seesAll = useOperator().organizationIds === null
  const close = () => {
    setEdited(null)
    setRemoved(null)
    reload()
  }
  return (
    <Page
      title={t.organizations.title}
      lead={t.organizations.lead}
      actions={
        isOwner &&
        seesAll && (
          <button type="button" class="primary" onClick={() => setEdited('new')}>
            {t.organizations.add}
          </button>
        )
      }
    >
      {error && <Failure error={error} retry={reload} />}
      {isLoading && <Loading />}
      {data?.organizations.length === 0 && (
        <Empty title={t.organizations.empty}>{t.organizations.emptyHelp}</Empty>
      )}
      {data !== undefined && data.organizations.length > 0 && (
        <OrganizationTable
          organizations={data.organizations}
          isOwner={isOwner}
          onEdit={setEdited}
          onRemove={setRemoved}
        />
      )}
      {edited !== null && <Editor organization={edited === 'new' ? null : edited} onClose={close} />}
      {removed !== null && <RemoveOrganization organization={removed} onClose={close} />}
    </Page>
  )
}

function OrganizationTable({
  organizations,
  isOwner,
  onEdit,
  onRemove,
}: {
  organizations: Organization[]
  isOwner: boolean
  onEdit: (organization: Organization) => void
  onRemove: (organization: Organization) => void
}) {
  const { t } = useLocalized()
  return (
    <Table
      columns={[
        t.manage.organization,
        { label: t.organizations.accounts, class: 'numeric' },
        { label: t.common.actions, isHidden: true },
      ]}
    >
      {organizations.map((organization) => (
        <tr key={organization.id}>
          <th scope="row" class="col-account">
            {organization.name}
            <div class="sub mono">{organization.id}</div>
          </th>
          <td class="numeric">
            <Count value={organization.accounts} />
          </td>
          <td>
            {isOwner && (
              <div class="actions">
                <button type="button" class="small" onClick={() => onEdit(organization)}>
                  {t.organizations.rename}
                  <span class="visually-hidden"> {organization.name}</span>
                </button>
                <button type="button" class="small quiet-danger" onClick={() => onRemove(organization)}>
                  {t.manage.remove}
                  <span class="visually-hidden"> {organization.name}</span>
                </button>
              </div>
            )}
          </td>
        </tr>
      ))}
    </Table>
  )
}

function Editor({ organization, onClose }: { organization: Organization | null; onClose: () => void }) {
  const { t } = useLocalized()
  const [name, setName] = useState(organization?.name ?? '')
  const save = async () => {
    await post(`/api/organizations${organization === null ? '' : `/${organization.id}`}`, { name })
    onClose()
  }
  return (
    <Dialog
      title={
        organization === null
          ? t.organizations.add
          : fill(t.organizations.renameTitle, { name: organization.name })
      }
      onClose={onClose}
    >
      <Form submit={t.manage.save} onSubmit={save} onCancel={onClose} isComplete={name.trim() !== ''}>
        <TextField
          name="name"
          label={t.manage.name}
          value={name}
          onChange={setName}
          maxLength={NAME_MAX_LENGTH}
        />
      </Form>
    </Dialog>
  )
}

function RemoveOrganization({ organization, onClose }: { organization: Organization; onClose: () => void }) {
  const { t } = useLocalized()
  const path = `/api/organizations/${organization.id}`
  const contents = useQuery<OrganizationContents>(`${path}/contents`)
  const remove = async (name: string) => {
    await post(`${path}/remove`, { name })
    onClose()
  }
  return (
    <Removal
      title={fill(t.organizations.removeTitle, { name: organization.name })}
      text={
        contents.data && contents.data.accounts > 0 ? t.organizations.notEmpty : t.organizations.removeText
      }
      name={organization.name}
      contents={
        contents.data && [
          [t.organizations.accounts, contents.data.accounts],
          [t.manage.apiKeys, contents.data.apiKeys],
        ]
      }
      error={contents.error}
      onRemove={remove}
      onClose={onClose}
    />
  )
}
