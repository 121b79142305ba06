/** The operators of the service: add, change, disable and invite. */
import { useState } from 'preact/hooks'
import type { Role } from '../../src/operators/actor.ts'
import { useAction } from '../hooks.ts'
import { type Item, perform, type Result, useRead } from '../operations.ts'
import { useLocalized } from '../texts.ts'
import { SecretDialog } from './dialog.tsx'
import { FormDialog, SelectField, TextField, useFields } from './form.tsx'
import { SettingsPage } from './settings-page.tsx'
import { ActionFailure, Loaded } from './states.tsx'
import { Table } from './table.tsx'
import { Time } from './values.tsx'

type Operator = Item<'operator.list'>
type Organizations = Array<Item<'organization.list'>>
type Invited = Result<'operator.add'>

const ROLES: Role[] = ['viewer', 'manager', 'owner']

export function OperatorsPage() {
  const { t } = useLocalized()
  const query = useRead('operator.list', null)
  const { reload } = query
  const organizations = useRead('organization.list', null).data?.organizations ?? []
  const [edited, setEdited] = useState<Operator | 'new' | null>(null)
  const [link, setLink] = useState<string | null>(null)
  const invited = ({ invitation }: Invited) => {
    setEdited(null)
    // After #, so that no server or proxy sees it.
    setLink(`${location.origin}/invitation#${invitation}`)
    reload()
  }
  return (
    <SettingsPage
      section="operators"
      actions={
        <button type="button" class="primary" onClick={() => setEdited('new')}>
          {t.operators.add}
        </button>
      }
    >
      <Loaded query={query}>
        {({ operators }) =>
          operators.length === 0 ? (
            <p class="muted">{t.operators.empty}</p>
          ) : (
            <OperatorTable
              operators={operators}
              organizations={organizations}
              reload={reload}
              invited={invited}
              onEdit={setEdited}
            />
          )
        }
      </Loaded>
      {edited !== null && (
        <OperatorDialog
          organizations={organizations}
          invited={invited}
          operator={edited === 'new' ? null : edited}
          onClose={() => {
            setEdited(null)
            reload()
          }}
        />
      )}
      {link !== null && (
        <SecretDialog
          title={t.operators.invited}
          secrets={[{ label: t.operators.link, secret: link }]}
          onClose={() => setLink(null)}
        >
          <p>{t.operators.invitedHelp}</p>
        </SecretDialog>
      )}
    </SettingsPage>
  )
}

function OperatorTable({
  operators,
  organizations,
  onEdit,
  reload,
  invited,
}: {
  operators: Operator[]
  organizations: Organizations
  onEdit: (operator: Operator) => void
  reload: () => void
  invited: (invited: Invited) => void
}) {
  const { t } = useLocalized()
  const { isRunning, error, run } = useAction()
  const nameOf = (id: string) => organizations.find((organization) => organization.id === id)?.name ?? id
  const button = (label: string, work: () => Promise<void>, name = 'small') => (
    <button type="button" class={name} disabled={isRunning} onClick={() => run(work)}>
      {label}
    </button>
  )
  const setStatus = (id: string, status: 'active' | 'disabled') => async () => {
    await perform(status === 'active' ? 'operator.enable' : 'operator.disable', id)
    reload()
  }
  const invite = (id: string) => async () => invited(await perform('operator.invite', id))
  const stateOf = ({ status, hasPassword, name, invitedUntil }: Operator) => {
    if (status === 'disabled') return t.operators.disabled
    if (hasPassword) return name
    return invitedUntil === null ? t.operators.noPassword : t.operators.open
  }
  return (
    <>
      <ActionFailure error={error} />
      <Table
        rows={operators}
        headerClass="operator"
        columns={[
          [
            t.operators.email,
            (operator) => (
              <>
                {operator.email}
                <div class="sub narrow-only">{t.operators.roles[operator.role]}</div>
                <div class="sub">{stateOf(operator)}</div>
              </>
            ),
          ],
          [t.operators.role, ({ role }) => t.operators.roles[role], 'medium-only'],
          [
            t.operators.organizations,
            ({ organizationIds }) => organizationIds?.map(nameOf).join(', ') ?? t.common.all,
            'medium-only',
          ],
          [t.operators.signedIn, ({ signedInAt }) => <Time at={signedInAt} />, 'medium-only'],
          [
            null,
            (operator) => (
              <div class="actions">
                <button type="button" class="small" onClick={() => onEdit(operator)}>
                  {t.operators.edit}
                </button>
                {operator.status === 'active' ? (
                  <>
                    {button(t.operators.invite, invite(operator.id))}
                    {button(t.operators.disable, setStatus(operator.id, 'disabled'), 'small quiet-danger')}
                  </>
                ) : (
                  button(t.operators.enable, setStatus(operator.id, 'active'))
                )}
              </div>
            ),
          ],
        ]}
      />
    </>
  )
}

function OperatorDialog({
  operator,
  organizations,
  invited,
  onClose,
}: {
  /** null: a new one */
  operator: Operator | null
  organizations: Organizations
  invited: (invited: Invited) => void
  onClose: () => void
}) {
  const { t } = useLocalized()
  const { values, field, changesOf } = useFields({
    email: '',
    name: operator?.name ?? '',
    role: operator?.role ?? ('viewer' as Role),
    organizationIds: operator?.organizationIds ?? null,
  })
  const requestOf = ({ name, ...given }: typeof values) => ({ ...given, name: name.trim() || null })
  const submit = async () => {
    if (operator === null) return invited(await perform('operator.add', null, requestOf(values)))
    const { email: _, ...changes } = changesOf(requestOf)
    const added: Invited | undefined = await perform('operator.update', operator.id, changes)
    if (added) invited(added)
    else onClose()
  }
  return (
    <FormDialog
      title={operator?.email ?? t.operators.add}
      submit={operator === null ? t.operators.addSubmit : t.operators.save}
      onSubmit={submit}
      onClose={onClose}
    >
      {operator === null && (
        <TextField {...field('email')} label={t.operators.email} type="email" autocomplete="off" required />
      )}
      <TextField {...field('name')} label={t.operators.name} maxLength={256} />
      <SelectField
        {...field('role')}
        label={t.operators.role}
        hint={t.operators.roleHelp[values.role]}
        options={ROLES.map((value) => [value, t.operators.roles[value]] as const)}
      />
      <OrganizationsField
        {...field('organizationIds')}
        organizations={organizations}
        hint={operator === null ? undefined : t.operators.organizationsHelp}
      />
    </FormDialog>
  )
}

function OrganizationsField({
  organizations,
  value: ids,
  onChange: setIds,
  ...field
}: {
  name: string
  hint: string | undefined
  organizations: Organizations
  value: string[] | null
  onChange: (ids: string[] | null) => void
}) {
  const { t } = useLocalized()
  return (
    <>
      <SelectField
        {...field}
        label={t.operators.organizations}
        value={ids === null ? 'all' : 'some'}
        options={[
          ['all', t.operators.allOrganizations],
          ['some', t.operators.someOrganizations],
        ]}
        onChange={(value) => setIds(value === 'all' ? null : [])}
      />
      {ids !== null && (
        <ul class="choices">
          {organizations.map(({ id, name }) => (
            <li key={id}>
              <label>
                <input
                  type="checkbox"
                  checked={ids.includes(id)}
                  onChange={(event) =>
                    setIds(event.currentTarget.checked ? [...ids, id] : ids.filter((other) => other !== id))
                  }
                />{' '}
                {name}
              </label>
            </li>
          ))}
        </ul>
      )}
    </>
  )
}
