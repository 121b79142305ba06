/** Filters a page by account. The choice is stored in the query string. */
import { useQuery } from '../hooks.ts'
import { replaceQuery } from '../router.tsx'
import { useLocalized } from '../texts.ts'
import { AccountChooser } from './chooser.tsx'

interface FilterProps {
  /** the id of the chosen account; null for all */
  account: string | null
  /** query parameters to remove when another account is chosen */
  clears?: string[]
}

export function AccountFilter({ account, clears = [] }: FilterProps) {
  const { t } = useLocalized()
  const chosen = useQuery<{ account: { name: string } }>(account === null ? null : `/api/accounts/${account}`)
  const cleared = Object.fromEntries(clears.map((name) => [name, null]))
  return (
    <AccountChooser
      label={t.common.account}
      allLabel={t.common.allAccounts}
      value={account === null ? null : { id: account, name: chosen.data?.account.name ?? account }}
      onChoose={(account) => replaceQuery({ account: account?.id ?? null, ...cleared })}
    />
  )
}
