/** Filters of a page. The choices are stored in the query string. */
import { useRead } from '../operations.ts'
import { replaceQuery } from '../router.tsx'
import { useLocalized } from '../texts.ts'
import { AccountChooser } from './chooser.tsx'
import { Field, type FieldProps, SelectField, TextField } from './form.tsx'

interface FilterProps {
  /** the id of the chosen account; null for all */
  account: string | null
  /** query parameters to remove when another account is chosen */
  clears?: string[]
}

export function AccountFilter({ account, clears = [] }: FilterProps) {
  const { t } = useLocalized()
  const chosen = useRead('account.show', account, account === null ? null : {})
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

/** @param props.options the first one chooses all */
export function ChoiceFilter({
  name,
  value,
  onChoose = (chosen) => replaceQuery({ [name]: chosen }),
  ...field
}: FieldProps & {
  value: string | null
  options: ReadonlyArray<readonly [value: string, label: string]>
  onChoose?: (value: string) => void
}) {
  return <SelectField {...field} name={name} value={value ?? ''} onChange={onChoose} />
}

/** An id or a word that is typed. */
export function TextFilter({ name, label, value }: { name: string; label: string; value: string | null }) {
  return (
    <Field name={name} label={label}>
      {(control) => (
        <input
          {...control}
          type="text"
          autocomplete="off"
          spellcheck={false}
          maxLength={256}
          value={value ?? ''}
          onChange={(event) => replaceQuery({ [name]: event.currentTarget.value.trim() })}
        />
      )}
    </Field>
  )
}

/** The first and the last day, by the time zone of the browser. */
export function DaysFilter({ query }: { query: URLSearchParams }) {
  const { t } = useLocalized()
  return (
    <>
      {(['from', 'to'] as const).map((name) => (
        <TextField
          key={name}
          name={name}
          type="date"
          label={t.activity[name]}
          value={query.get(name) ?? ''}
          onChange={(day) => replaceQuery({ [name]: day })}
        />
      ))}
    </>
  )
}

/** The times at which the days of DaysFilter begin and end. */
export const daysOf = (query: URLSearchParams) => ({
  from: dayStart(query.get('from'), 0),
  to: dayStart(query.get('to'), 1),
})

/** The beginning of a day of the browser's time zone, or of a later one. */
function dayStart(day: string | null, later: number): string | null {
  const [year, month, date] =
    /^(\d{4})-(\d\d)-(\d\d)$/
      .exec(day ?? '')
      ?.slice(1)
      .map(Number) ?? []
  if (year === undefined || month === undefined || date === undefined) return null
  return new Date(year, month - 1, date + later).toISOString()
}

/** Buttons of which one is pressed. */
export function Chips({ label, children }: { label: string; children: preact.ComponentChildren }) {
  return (
    <fieldset class="chips">
      <legend class="visually-hidden">{label}</legend>
      {children}
    </fieldset>
  )
}
