/** A search box that chooses an account: a combobox with a list of matches. */
import { useEffect, useId, useState } from 'preact/hooks'
import type { AccountMatch } from '../../src/accounts/accounts.ts'
import type { Json } from '../api.ts'
import { useSettled } from '../hooks.ts'
import { useRead } from '../operations.ts'
import { useLocalized } from '../texts.ts'

const TYPING_MS = 150

interface ChooserProps {
  label: string
  /** the chosen account; null for none */
  value: { id: string; name: string } | null
  onChoose: (account: Json<AccountMatch> | null) => void
  /** an entry that chooses nothing */
  allLabel?: string
}

export function AccountChooser({ label, value, onChoose, allLabel }: ChooserProps) {
  const { t } = useLocalized()
  const [text, setText] = useState<string | null>(null)
  const [active, setActive] = useState(0)
  const [isEntered, setEntered] = useState(false)
  const id = useId()
  const isOpen = text !== null
  const q = useSettled(text ?? '', TYPING_MS)
  const { data } = useRead('account.list', null, isOpen ? { q } : null)
  // Until the list belongs to the current text, Enter must not choose from it.
  const isCurrent = q === text && data !== undefined
  const matches = data?.accounts ?? []
  const options = allLabel !== undefined && q === '' ? [null, ...matches] : matches
  const choose = (account: Json<AccountMatch> | null | undefined) => {
    if (account !== undefined) onChoose(account)
    setText(null)
    setEntered(false)
  }
  useEffect(() => {
    if (isEntered && isCurrent) choose(options[active])
  }, [isEntered, isCurrent])
  const onKeyDown = (event: KeyboardEvent) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key]
    if (step !== undefined) {
      event.preventDefault()
      if (isOpen) setActive((index) => Math.min(options.length - 1, Math.max(0, index + step)))
      else setText('')
    } else if (event.key === 'Enter' && isOpen) {
      event.preventDefault()
      setEntered(true)
    } else if (event.key === 'Escape' && isOpen) {
      event.preventDefault()
      choose(undefined)
    }
  }
  return (
    <div class="field chooser">
      <label for={id}>{label}</label>
      <input
        id={id}
        type="text"
        role="combobox"
        autocomplete="off"
        spellcheck={false}
        placeholder={t.common.findAccount}
        aria-expanded={isOpen}
        aria-controls={`${id}-list`}
        aria-autocomplete="list"
        aria-activedescendant={isOpen && options.length > 0 ? `${id}-${active}` : undefined}
        value={text ?? value?.name ?? allLabel ?? ''}
        onFocus={(event) => event.currentTarget.select()}
        onClick={() => setText((before) => before ?? '')}
        onInput={(event) => {
          setText(event.currentTarget.value)
          setActive(0)
          setEntered(false)
        }}
        onBlur={() => choose(undefined)}
        onKeyDown={onKeyDown}
      />
      {isOpen && (
        <Options
          id={id}
          label={label}
          options={options}
          active={active}
          allLabel={allLabel}
          isEmpty={options.length === 0 && data !== undefined}
          onChoose={choose}
        />
      )}
    </div>
  )
}

interface OptionsProps {
  id: string
  label: string
  options: Array<Json<AccountMatch> | null>
  active: number
  allLabel: string | undefined
  isEmpty: boolean
  onChoose: (account: Json<AccountMatch> | null) => void
}

/** The field keeps the focus and refers to the active option. */
function Options({ id, label, options, active, allLabel, isEmpty, onChoose }: OptionsProps) {
  const { t } = useLocalized()
  return (
    <div id={`${id}-list`} role="listbox" aria-label={label} class="options">
      {options.map((account, index) => (
        // biome-ignore lint/a11y/useFocusableInteractive: the combobox keeps the focus
        <div
          key={account?.id ?? ''}
          id={`${id}-${index}`}
          role="option"
          aria-selected={index === active}
          // mousedown comes before the field loses the focus, which closes the list.
          onMouseDown={(event) => {
            event.preventDefault()
            onChoose(account)
          }}
        >
          <span>{account?.name ?? allLabel}</span>
          {account && <span class="muted">{`${account.organizationName} · ${account.id}`}</span>}
        </div>
      ))}
      {isEmpty && <div class="muted">{t.common.noAccount}</div>}
    </div>
  )
}
