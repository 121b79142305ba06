/** Adds an account. */
import { useState } from 'preact/hooks'
import type { ApiError } from '../api.ts'
import { type Item, perform, useRead } from '../operations.ts'
import { AccountFields, type Values } from '../parts/account-fields.tsx'
import { Form, refuse, SelectField, TextField } from '../parts/form.tsx'
import { Page, Panel } from '../parts/page.tsx'
import { Loaded } from '../parts/states.tsx'
import { Link, navigate } from '../router.tsx'
import { useOperator, useRole } from '../session.ts'
import { useLocalized } from '../texts.ts'

/** The choice of an organization that does not exist yet. */
const NEW = 'new'

type Organization = Item<'organization.list'>

export function NewAccountPage() {
  const { t } = useLocalized()
  const query = useRead('organization.list', null)
  return (
    <Page
      title={t.manage.addAccount}
      trail={<Link href="/">{t.nav.fleet}</Link>}
      lead={t.manage.addLead}
      actions={
        <Link class="button" href="/accounts/file">
          {t.manage.addFile}
        </Link>
      }
    >
      <Loaded query={query}>
        {({ organizations }) => (
          <Panel title={t.manage.account}>
            <NewAccount organizations={organizations} />
          </Panel>
        )}
      </Loaded>
    </Page>
  )
}

/** Leads to the page of the account, which has the steps of its setup. */
function NewAccount({ organizations }: { organizations: Organization[] }) {
  const { t } = useLocalized()
  const isOwner = useRole('owner')
  const seesAll = useOperator().organizationIds === null
  const [chosen, setChosen] = useState(organizations[0]?.id ?? NEW)
  const [newName, setNewName] = useState('')
  const [known, setKnown] = useState(organizations)
  const [values, setValues] = useState<Values>({})
  const [unproven, setUnproven] = useState(false)
  const add = async () => {
    let organization = chosen
    if (organization === NEW) {
      const { id } = await addOrganization(newName)
      // If the account is refused, the next attempt must not add the organization again.
      setKnown([...known, { id, name: newName.trim(), accounts: 0 }])
      setChosen(id)
      organization = id
    }
    const given = Object.entries(values).filter(([, value]) => (value ?? '').trim() !== '')
    const account = { name: '', ...Object.fromEntries(given), organization, unproven }
    const { id } = await perform('account.add', null, account)
    navigate(`/accounts/${id}`)
  }
  return (
    <Form submit={t.manage.addSubmit} onSubmit={add}>
      <SelectField
        name="organization"
        label={t.manage.organization}
        value={chosen}
        onChange={setChosen}
        options={[
          ...known.map(({ id, name }) => [id, name] as const),
          ...(isOwner && seesAll ? [[NEW, t.manage.newOrganization] as const] : []),
        ]}
      />
      {chosen === NEW && (
        <TextField
          name="organizationName"
          label={t.manage.organizationName}
          value={newName}
          onChange={setNewName}
        />
      )}
      <AccountFields
        values={values}
        onChange={setValues}
        isStored={{ channelSecret: false, channelAccessToken: false, chatSecret: false }}
        isNew
        unproven={{ value: unproven, onChange: setUnproven }}
      />
    </Form>
  )
}

/** The form has another field named `name`. */
function addOrganization(name: string): Promise<{ id: string }> {
  return perform('organization.add', null, { name }).catch((error: ApiError) => {
    const [detail] = error.details
    if (detail === undefined) throw error
    return refuse('organizationName', detail.message)
  })
}
