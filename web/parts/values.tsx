/** Formatted values. People's names and ids are always text, never markup. */
import { useState } from 'preact/hooks'
import { useLocalized } from '../texts.ts'
import { Icon } from './icons.tsx'

export function Time({ at }: { at: string | null }) {
  const { t, relative, dateTime } = useLocalized()
  if (at === null) return <span class="muted">{t.common.never}</span>
  return (
    <time dateTime={at} title={dateTime(at)}>
      {relative(at)}
    </time>
  )
}

export function Count({ value, max }: { value: number | null; max?: number }) {
  const { number } = useLocalized()
  if (value === null) return <span class="muted">–</span>
  return (
    <span
      class={value === 0 ? 'number zero' : 'number'}
    >{`${number(value)}${value === max ? '+' : ''}`}</span>
  )
}

export const Optional = ({ value }: { value: string | null }) => value ?? <span class="muted">–</span>

/** Hues of avatars, which distinguish people without loading their pictures from LINE. */
const HUES = 12

export function Avatar({ name, id }: { name: string | null; id: string }) {
  const letters = [...(name ?? '').trim()].slice(0, 1).join('').toUpperCase()
  let sum = 0
  for (const character of id) sum = (sum * 31 + (character.codePointAt(0) ?? 0)) % 9973
  return (
    <span class="avatar" style={{ '--hue': (sum % HUES) * (360 / HUES) }} aria-hidden="true">
      {letters || '·'}
    </span>
  )
}

export function CopyButton({ text, label }: { text: string; label: string }) {
  const { t } = useLocalized()
  const [isCopied, setCopied] = useState(false)
  // The clipboard works only over https or on localhost.
  if (navigator.clipboard === undefined) return null
  const copy = () => {
    void navigator.clipboard.writeText(text).then(() => {
      setCopied(true)
      setTimeout(() => setCopied(false), 2_000)
    })
  }
  return (
    <button type="button" class="small" onClick={copy} aria-label={`${t.common.copy}: ${label}`}>
      <Icon name={isCopied ? 'check' : 'copy'} />
      <span aria-live="polite">{isCopied ? t.common.copied : t.common.copy}</span>
    </button>
  )
}

export function Copyable({ text, label }: { text: string; label: string }) {
  return (
    <div class="copyable">
      <code>{text}</code>
      <CopyButton text={text} label={label} />
    </div>
  )
}

/** Unchanged text, which scrolls if it is long. The focus lets the keyboard scroll it. */
export function Payload({ text, isShort = false }: { text: string; isShort?: boolean }) {
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: the keyboard could not scroll it otherwise
    <pre class={`payload ${isShort ? 'short' : ''}`} tabIndex={0}>
      {text}
    </pre>
  )
}
