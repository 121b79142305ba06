/** The search box on every page. The key "/" focuses it. */
import { useEffect, useRef } from 'preact/hooks'
import { queryOf } from '../api.ts'
import { navigate, type Place } from '../router.tsx'
import { useLocalized } from '../texts.ts'

/** The service refuses longer texts. */
const TEXT_MAX_LENGTH = 256

export function SearchBox({ place }: { place: Place }) {
  const { t } = useLocalized()
  const field = useRef<HTMLInputElement>(null)
  const shown = place.path === '/search' ? (place.query.get('q') ?? '') : ''
  useEffect(() => {
    const focusField = (event: KeyboardEvent) => {
      if (event.key !== '/' || event.ctrlKey || event.metaKey || event.altKey || isTyping(event)) return
      event.preventDefault()
      field.current?.select()
    }
    addEventListener('keydown', focusField)
    return () => removeEventListener('keydown', focusField)
  }, [])
  return (
    <search class="search-box">
      <form
        onSubmit={(event) => {
          event.preventDefault()
          navigate(`/search${queryOf({ q: field.current?.value.trim() })}`)
        }}
      >
        <input
          // Another search, or another page, resets what is typed.
          key={shown}
          ref={field}
          type="search"
          autocomplete="off"
          spellcheck={false}
          maxLength={TEXT_MAX_LENGTH}
          aria-label={t.search.label}
          aria-keyshortcuts="/"
          placeholder={t.search.placeholder}
          defaultValue={shown}
        />
      </form>
    </search>
  )
}

/** A dialog has its own focus, and a field takes the character. */
function isTyping({ target }: KeyboardEvent): boolean {
  if (document.querySelector('dialog[open]') !== null) return true
  return target instanceof Element && target.closest('input, select, textarea, [contenteditable]') !== null
}
