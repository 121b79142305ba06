/** The operators of the service: add, change, disable and invite. */
import { useState } from 'preact/hooks'
import type { Invited } from '../../src/operations/operators.ts'
import type { OrganizationSummary } from '../../src/operator/accounts/organizations.ts'
import type { Role } from '../../src/operator/actor.ts'
import type { OperatorSummary } from '../../src/operator/people/operators.ts'
import { type Json, post } from '../api.ts'
import { useAction, useQuery } from '../hooks.ts'
import { useLocalized } from '../texts.ts'
import { Dialog } from './dialog.tsx'
import { Form, SelectField, TextField } from './form.tsx'
import { Panel } from './page.tsx'
import { SecretDialog } from './secret-once.tsx'
import { ActionFailure, Failure, Loading } from './states.tsx'
import { Table } from './table.tsx'
import { Time } from './values.tsx'

type Operator = Json<OperatorSummary>
type Organizations = Array<Json<OrganizationSummary>>

const ROLES: Role[] = ['viewer', 'manager', 'owner']

export function OperatorsPanel() {
  const { t } = useLocalized()
  const { data, error, reload } = useQuery<{ operators: Operator[] }>('/api/operators')
  const organizations =
    useQuery<{ organizations: Organizations }>('/api/organizations').data?.organizations ?? []
  const [edited, setEdited] = useState<Operator | 'new' | null>(null)
  const [link, setLink] = useState<string | null>(null)
  const invited = ({ invitation }: Json<Invited>) => {
    setEdited(null)
    // After #, so that no server or proxy sees it.
    setLink(`${location.origin}/invitation#${invitation}`)
    reload()
  }
  return (
    <Panel
      title={t.operators.title}
      actions={
        <button type="button" class="primary" onClick={() => setEdited('new')}>
          {t.operators.add}
        </button>
      }
    >
      {error && <Failure error={error} retry={reload} />}
      {data === undefined && !error && <Loading />}
      {data?.operators.length === 0 && <p class="muted">{t.operators.empty}</p>}
      {data !== undefined && data.operators.length > 0 && (
        <OperatorTable
          {...{ organizations, reload, invited }}
          operators={data.operators}
          onEdit={setEdited}
        />
      )}
      {edited !== null && (
        <OperatorDialog
          {...{ organizations, invited }}
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
    </Panel>
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
  invited: (invited: Json<Invited>) => void
}) {
  const { t } = useLocalized()
  const { isRunning, error, run } = useAction()
  const nameOf = (id: string) => organizations.find((organization) => organization.id === id)?.name ?? id
  const setStatus = (id: string, status: 'active' | 'disabled') =>
    run(async () => {
      await post(`/api/operators/${id}/${status === 'active' ? 'enable' : 'disable'}`)
      reload()
    })
  return (
    <>
      <ActionFailure error={error} />
      <Table
        columns={[
          t.operators.email,
          { label: t.operators.role, class: 'medium-only' },
          { label: t.operators.organizations, class: 'medium-only' },
          { label: t.operators.signedIn, class: 'medium-only' },
          { label: t.common.actions, isHidden: true },
        ]}
      >
        {operators.map((operator) => (
          <tr key={operator.id}>
            <th scope="row" class="operator">
              {operator.email}
              <div class="sub narrow-only">{t.operators.roles[operator.role]}</div>
              <div class="sub">
                {operator.status === 'disabled'
                  ? t.operators.disabled
                  : operator.hasPassword
                    ? operator.name
                    : operator.invitedUntil !== null
                      ? t.operators.open
                      : t.operators.noPassword}
              </div>
            </th>
            <td class="medium-only">{t.operators.roles[operator.role]}</td>
            <td class="medium-only">{operator.organizationIds?.map(nameOf).join(', ') ?? t.common.all}</td>
            <td class="medium-only">
              <Time at={operator.signedInAt} />
            </td>
            <td>
              <div class="actions">
                <button type="button" class="small" onClick={() => onEdit(operator)}>
                  {t.operators.edit}
                </button>
                {operator.status === 'active' ? (
                  <>
                    <button
                      type="button"
                      class="small"
                      disabled={isRunning}
                      onClick={() =>
                        run(async () => invited(await post(`/api/operators/${operator.id}/invite`)))
                      }
                    >
                      {t.operators.invite}
                    </button>
                    <button
                      type="button"
                      class="small quiet-danger"
                      disabled={isRunning}
                      onClick={() => setStatus(operator.id, 'disabled')}
                    >
                      {t.operators.disable}
                    </button>
                  </>
                ) : (
                  <button
                    type="button"
                    class="small"
                    disabled={isRunning}
                    onClick={() => setStatus(operator.id, 'active')}
                  >
                    {t.operators.enable}
                  </button>
                )}
              </div>
            </td>
          </tr>
        ))}
      </Table>
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
  invited: (invited: Json<Invited>) => void
  onClose: () => void
}) {
  const { t } = useLocalized()
  const [email, setEmail] = useState('')
  const [name, setName] = useState(operator?.name ?? '')
  const [role, setRole] = useState<Role>(operator?.role ?? 'viewer')
  const [ids, setIds] = useState<string[] | null>(operator?.organizationIds ?? null)
  const submit = async () => {
    const fields = { name: name.trim() || null, role, organizationIds: ids }
    if (operator === null) return invited(await post('/api/operators', { email, ...fields }))
    await post(`/api/operators/${operator.id}/update`, fields)
    onClose()
  }
  return (
    <Dialog title={operator?.email ?? t.operators.add} onClose={onClose}>
      <Form
        submit={operator === null ? t.operators.addSubmit : t.operators.save}
        onSubmit={submit}
        onCancel={onClose}
      >
        {operator === null && (
          <TextField
            name="email"
            label={t.operators.email}
            type="email"
            autocomplete="off"
            required
            value={email}
            onChange={setEmail}
          />
        )}
        <TextField name="name" label={t.operators.name} maxLength={256} value={name} onChange={setName} />
        <SelectField
          name="role"
          label={t.operators.role}
          hint={t.operators.roleHelp[role]}
          value={role}
          options={ROLES.map((value) => [value, t.operators.roles[value]] as const)}
          onChange={setRole}
        />
        <OrganizationsField {...{ organizations, ids, setIds }} />
      </Form>
    </Dialog>
  )
}

function OrganizationsField({
  organizations,
  ids,
  setIds,
}: {
  organizations: Organizations
  ids: string[] | null
  setIds: (ids: string[] | null) => void
}) {
  const { t } = useLocalized()
  return (
    <>
      <SelectField
        name="organizationIds"
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
