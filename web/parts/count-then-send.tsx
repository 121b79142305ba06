/** A form that says how much it would send, and how long that takes, before it sends anything. */
import type { ComponentChildren } from 'preact'
import { useState } from 'preact/hooks'
import { fill, useLocalized } from '../texts.ts'
import { Form, TextField } from './form.tsx'

export const RATE_DEFAULT = '50'
const RATE_MAX = 1_000

/** What a count found, before anything is sent. */
interface Counted {
  count: number
  /** there are more */
  isMore: boolean
  seconds: number
}

/** Asks for the number first. A change of any field makes it count again. */
export function CountThenSend({
  count,
  start,
  texts,
  onCancel,
  version,
  isComplete = true,
  children,
}: {
  count: () => Promise<Counted>
  start: () => Promise<void>
  texts: {
    /** label of the button that sends */
    submit: string
    found: string
  }
  onCancel: () => void
  /** changes with each field */
  version: string
  isComplete?: boolean
  children: ComponentChildren
}) {
  const { t, number, duration } = useLocalized()
  const [found, setFound] = useState<(Counted & { version: string }) | null>(null)
  const counted = found?.version === version ? found : null
  const shown = counted && `${number(counted.count)}${counted.isMore ? '+' : ''}`
  const countFirst = async () => setFound({ ...(await count()), version })
  return (
    <Form
      submit={counted === null || shown === null ? t.again.count : fill(texts.submit, { count: shown })}
      onSubmit={counted === null ? countFirst : start}
      onCancel={onCancel}
      isComplete={isComplete && counted?.count !== 0}
    >
      {children}
      <p role="status" class={counted === null ? 'visually-hidden' : 'notice hint'}>
        {counted !== null &&
          (counted.count === 0
            ? t.again.none
            : fill(texts.found, { count: shown ?? '', duration: duration(counted.seconds) }))}
      </p>
    </Form>
  )
}

export function RateField(field: {
  name: string
  label: string
  value: string
  onChange: (value: string) => void
}) {
  const { t } = useLocalized()
  return <TextField {...field} type="number" min={1} max={RATE_MAX} required hint={t.again.rateHint} />
}
