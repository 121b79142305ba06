/** The operator's own password, the operators of the service, and links to further settings. */
import { useState } from 'preact/hooks'
import type { OrganizationSummary } from '../../src/accounts/organizations.ts'
import { type Json, post } from '../api.ts'
import { useQuery } from '../hooks.ts'
import { Form, TextField, useFields } from '../parts/form.tsx'
import { OperatorsPanel } from '../parts/operators.tsx'
import { Facts, Page, Panel } from '../parts/page.tsx'
import { Link } from '../router.tsx'
import { useOperator, useRole } from '../session.ts'
import { fill, useLocalized } from '../texts.ts'

export function SettingsPage() {
  const { t } = useLocalized()
  const operator = useOperator()
  const isOwner = useRole('owner')
  const { organizationIds } = operator
  const { data } = useQuery<{ organizations: Array<Json<OrganizationSummary>> }>(
    organizationIds === null ? null : '/api/organizations',
  )
  const nameOf = (id: string) =>
    data?.organizations.find((organization) => organization.id === id)?.name ?? id
  return (
    <Page
      title={t.nav.settings}
      actions={
        <>
          <Link class="button" href="/settings/notifications">
            {t.notifications.title}
          </Link>
          <Link class="button" href="/settings/organizations">
            {t.organizations.title}
          </Link>
        </>
      }
    >
      <Panel title={t.settings.you}>
        <Facts
          items={[
            [t.operators.email, operator.kind === 'token' ? t.operators.tokenHolder : operator.name],
            [t.operators.role, t.operators.roles[operator.role]],
            [t.operators.organizations, organizationIds?.map(nameOf).join(', ') ?? t.common.all],
          ]}
        />
        {operator.kind === 'operator' && <PasswordForm />}
      </Panel>
      {isOwner && <OperatorsPanel />}
    </Page>
  )
}

function PasswordForm() {
  const { t } = useLocalized()
  const { values, setValues, field } = useFields({ current: '', password: '' })
  const [isDone, setDone] = useState(false)
  const submit = async () => {
    await post('/password', values)
    setValues({ current: '', password: '' })
    setDone(true)
  }
  return (
    <details>
      <summary>{t.settings.changePassword}</summary>
      <Form submit={t.settings.changePassword} onSubmit={submit}>
        <TextField
          {...field('current')}
          label={t.settings.currentPassword}
          type="password"
          autocomplete="current-password"
          required
        />
        <TextField
          {...field('password')}
          label={t.invitation.password}
          hint={fill(t.invitation.hint, { characters: '12' })}
          type="password"
          autocomplete="new-password"
          required
        />
        {isDone && <p role="status">{t.settings.passwordChanged}</p>}
      </Form>
    </details>
  )
}
