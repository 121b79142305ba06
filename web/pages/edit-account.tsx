/** Changes an account. Secrets are write-only: a field that stays empty keeps the stored value. */
import { useEffect, useState } from 'preact/hooks'
import { type Input, perform, useRead } from '../operations.ts'
import { VerifyAccount } from '../parts/account-actions.tsx'
import { AccountFields, PUBLIC_FIELDS, SECRET_FIELDS, type Values } from '../parts/account-fields.tsx'
import type { AccountResponse } from '../parts/account-response.ts'
import { Form, useFields } from '../parts/form.tsx'
import { Page, Panel } from '../parts/page.tsx'
import { Loaded } from '../parts/states.tsx'
import { Link, navigate } from '../router.tsx'
import { fill, useLocalized } from '../texts.ts'

/** After a change of these, the account is verified. */
const CREDENTIALS = ['channelId', 'channelSecret', 'channelAccessToken', 'botUserId', 'basicId']

export function EditAccountPage({ id, field }: { id: string; field: string | null }) {
  const { t } = useLocalized()
  const query = useRead('account.show', id)
  const name = query.data?.account.name ?? id
  return (
    <Page
      title={fill(t.manage.editTitle, { name })}
      trail={
        <>
          <Link href="/">{t.nav.fleet}</Link> / <Link href={`/accounts/${id}`}>{name}</Link>
        </>
      }
      lead={t.manage.editLead}
    >
      <Loaded query={query}>
        {({ account }) => (
          <Panel title={t.manage.account}>
            <Editor account={account} field={field} />
          </Panel>
        )}
      </Loaded>
    </Page>
  )
}

function Editor({ account, field }: { account: AccountResponse['account']; field: string | null }) {
  const { t } = useLocalized()
  const { id } = account
  const { values, setValues, changesOf } = useFields<Values>(() => valuesOf(account))
  const [unproven, setUnproven] = useState(false)
  const [mustBeTested, setMustBeTested] = useState(false)
  useEffect(() => {
    if (field === null) return
    // After the page has focused its title.
    const timer = setTimeout(() => {
      const control = document.querySelector<HTMLElement>(`[name="${CSS.escape(field)}"]`)
      control?.closest('details')?.setAttribute('open', '')
      control?.focus()
    })
    return () => clearTimeout(timer)
  }, [field])
  const save = async () => {
    const changes = changesOf(requestOf)
    const saved = await perform('account.update', id, { ...changes, unproven })
    // The outcome is on the page of the account, also if LINE does not respond.
    if (CREDENTIALS.some((name) => name in changes))
      await perform('account.verify', id, { testWebhook: false, proveRedelivery: false }).catch(
        () => undefined,
      )
    if (saved.isUnproven) setMustBeTested(true)
    else navigate(`/accounts/${id}`)
  }
  if (mustBeTested) {
    return (
      <>
        <p class="notice warning" role="status">
          {t.manage.unproven}
        </p>
        <VerifyAccount id={id} testWebhook onDone={() => navigate(`/accounts/${id}`)} />
      </>
    )
  }
  return (
    <Form submit={t.manage.save} onSubmit={save} onCancel={() => navigate(`/accounts/${id}`)}>
      <AccountFields
        values={values}
        onChange={setValues}
        isStored={{
          channelSecret: account.hasChannelSecret,
          channelAccessToken: account.hasChannelAccessToken,
          chatSecret: account.hasChatSecret,
        }}
        isNew={false}
        unproven={{ value: unproven, onChange: setUnproven }}
      />
    </Form>
  )
}

const valuesOf = (account: AccountResponse['account']): Values =>
  Object.fromEntries(PUBLIC_FIELDS.map((name) => [name, String(account[name] ?? '')]))

/** An empty secret is kept, and null removes it. */
const requestOf = (values: Values): Omit<Input<'account.update'>[0], 'unproven'> =>
  Object.fromEntries(
    Object.entries(values)
      .map(([name, value]) => [name, value?.trim() ?? null] as const)
      .filter(([name, value]) => value !== '' || !SECRET_FIELDS.some((secret) => secret === name)),
  )
