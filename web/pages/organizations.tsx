/** Organizations: add, rename and remove. */
import { type Item, perform, useRead } from '../operations.ts'
import { DialogButton } from '../parts/dialog.tsx'
import { FormDialog, TextField, useFields } from '../parts/form.tsx'
import { Removal } from '../parts/removal.tsx'
import { SettingsPage } from '../parts/settings-page.tsx'
import { Empty, Loaded } from '../parts/states.tsx'
import { Table } from '../parts/table.tsx'
import { Count } from '../parts/values.tsx'
import { useOperator, useRole } from '../session.ts'
import { fill, useLocalized } from '../texts.ts'

type Organization = Item<'organization.list'>

const NAME_MAX_LENGTH = 256

export function OrganizationsPage() {
  const { t } = useLocalized()
  const query = useRead('organization.list', null)
  const isOwner = useRole('owner')
  const seesAll = useOperator().organizationIds === null
  const add = (
    <DialogButton class="primary" label={t.organizations.add} onClosed={query.reload}>
      {(close) => <Editor organization={null} onClose={close} />}
    </DialogButton>
  )
  const actions = (organization: Organization) => (
    <div class="actions">
      <DialogButton
        class="small"
        label={t.organizations.rename}
        describedBy={`${t.organizations.rename} ${organization.name}`}
        onClosed={query.reload}
      >
        {(close) => <Editor organization={organization} onClose={close} />}
      </DialogButton>
      <DialogButton
        class="small quiet-danger"
        label={t.manage.remove}
        describedBy={`${t.manage.remove} ${organization.name}`}
        onClosed={query.reload}
      >
        {(close) => <RemoveOrganization organization={organization} onClose={close} />}
      </DialogButton>
    </div>
  )
  return (
    <SettingsPage section="organizations" lead={t.organizations.lead} actions={isOwner && seesAll && add}>
      <Loaded query={query}>
        {({ organizations }) =>
          organizations.length === 0 ? (
            <Empty title={t.organizations.empty}>{t.organizations.emptyHelp}</Empty>
          ) : (
            <Table
              rows={organizations}
              columns={[
                [
                  t.manage.organization,
                  ({ id, name }) => (
                    <>
                      {name}
                      <div class="sub mono">{id}</div>
                    </>
                  ),
                ],
                [t.organizations.accounts, ({ accounts }) => <Count value={accounts} />, 'numeric'],
                [null, (organization) => isOwner && actions(organization)],
              ]}
            />
          )
        }
      </Loaded>
    </SettingsPage>
  )
}

function Editor({ organization, onClose }: { organization: Organization | null; onClose: () => void }) {
  const { t } = useLocalized()
  const { values, field, changesOf } = useFields({ name: organization?.name ?? '' })
  const save = async () => {
    const { name } = changesOf((given) => given)
    if (organization === null) await perform('organization.add', null, values)
    else if (name !== undefined) await perform('organization.rename', organization.id, { name })
    onClose()
  }
  const title =
    organization === null
      ? t.organizations.add
      : fill(t.organizations.renameTitle, { name: organization.name })
  return (
    <FormDialog
      title={title}
      onClose={onClose}
      submit={t.manage.save}
      onSubmit={save}
      isComplete={values.name.trim() !== ''}
    >
      <TextField {...field('name')} label={t.manage.name} maxLength={NAME_MAX_LENGTH} />
    </FormDialog>
  )
}

function RemoveOrganization({ organization, onClose }: { organization: Organization; onClose: () => void }) {
  const { t } = useLocalized()
  const contents = useRead('organization.contents', organization.id)
  const remove = async (name: string): Promise<undefined> => {
    await perform('organization.remove', organization.id, { name })
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
