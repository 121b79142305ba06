/** Settings that are neither a list nor a form of their own: the operator's role and password, and the public address. */
import { useState } from 'preact/hooks'
import type { Reachability } from '../../src/watch/reachability.ts'
import { post } from '../api.ts'
import { useAction } from '../hooks.ts'
import { read, useRead } from '../operations.ts'
import { Form, TextField, useFields } from '../parts/form.tsx'
import { Facts, Panel } from '../parts/page.tsx'
import { SettingsPage } from '../parts/settings-page.tsx'
import { ActionFailure } from '../parts/states.tsx'
import { useOperator } from '../session.ts'
import { fill, useLocalized } from '../texts.ts'

export function OwnPage() {
  const { t } = useLocalized()
  const operator = useOperator()
  const { organizationIds } = operator
  const { data } = useRead('organization.list', null)
  const nameOf = (id: string) =>
    data?.organizations.find((organization) => organization.id === id)?.name ?? id
  return (
    <SettingsPage section="own">
      <div class="panel">
        <Facts
          items={[
            [t.operators.email, operator.kind === 'token' ? t.operators.tokenHolder : operator.name],
            [t.operators.role, t.operators.roles[operator.role]],
            [t.operators.organizations, organizationIds?.map(nameOf).join(', ') ?? t.common.all],
          ]}
        />
        {operator.kind === 'operator' && <PasswordForm />}
      </div>
    </SettingsPage>
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
        {isDone && (
          <p role="status" class="notice good">
            {t.settings.passwordChanged}
          </p>
        )}
      </Form>
    </details>
  )
}

const CLASSES = { ok: 'good', warning: 'warning', error: 'bad' } as const

/** Whether LINE can reach this service, as far as the service itself can see. */
export function SystemPage() {
  const { t, relative } = useLocalized()
  const { isRunning, error, run } = useAction()
  const [result, setResult] = useState<Reachability | null>(null)
  const examine = async () => setResult(await read('fleet.reachability', null))
  const outcome = result && t.publicUrl[result.code]
  return (
    <SettingsPage section="system">
      <Panel
        title={t.reachability.title}
        actions={
          <button type="button" disabled={isRunning} onClick={() => run(examine)}>
            {isRunning ? t.reachability.checking : t.reachability.check}
          </button>
        }
      >
        <ActionFailure error={error} />
        {result && outcome && (
          <div role="status" class={`notice ${CLASSES[result.severity]}`}>
            <h3>{fill(outcome.message, { detail: result.detail })}</h3>
            <p>
              {outcome.fix} <span class="small-text">{relative(result.checkedAt)}</span>
            </p>
          </div>
        )}
        <p class="muted small-text">{t.reachability.limits}</p>
      </Panel>
    </SettingsPage>
  )
}
