/**
 * Forms: labelled fields with their errors beside them, and the state of the submission. The values belong to the caller, so a failed
 * submission loses none.
 */
import { type ComponentChildren, createContext } from 'preact'
import { useContext, useEffect, useId, useRef, useState } from 'preact/hooks'
import { itemsOf } from '../../src/http/csv.ts'
import { ApiError } from '../api.ts'
import { useAction } from '../hooks.ts'
import { unsent } from '../router.tsx'
import { describeFieldMessage } from '../texts/service.ts'
import { useLocalized } from '../texts.ts'
import { Dialog } from './dialog.tsx'
import { ActionFailure } from './states.tsx'

/** What a form knows of its fields: the error of the last submission, and the names of the fields that show their part of it. */
interface Fields {
  error: ApiError | undefined
  names: Set<string>
}

const FieldsContext = createContext<Fields>({ error: undefined, names: new Set() })

/** The field of an error, such as `events` for `events/3`. */
const fieldOf = (path: string): string => path.split('/')[0] ?? ''

export interface FormProps {
  submit: string
  /** Rejects with an ApiError. Its details appear beside the fields with their names, all others above the buttons. */
  onSubmit: () => Promise<void>
  onCancel?: () => void
  isComplete?: boolean
  isDangerous?: boolean
  children: ComponentChildren
}

/** The values of a form, what its fields need of them, and what was changed. */
export function useFields<Values extends object>(initial: Values | (() => Values)) {
  const [opened] = useState(initial)
  const [values, setValues] = useState(opened)
  const field = <Name extends keyof Values & string>(name: Name) => ({
    name,
    value: values[name],
    onChange: (value: Values[Name]) => setValues((before) => ({ ...before, [name]: value })),
  })
  /** The fields of the request that differ from those that the form was opened with: what a colleague changes meanwhile stays. */
  const changesOf = <Request extends object>(requestOf: (values: Values) => Request): Partial<Request> => {
    const before = new Map(Object.entries(requestOf(opened)))
    const isChanged = ([name, value]: [string, unknown]) =>
      JSON.stringify(value) !== JSON.stringify(before.get(name))
    return Object.fromEntries(Object.entries(requestOf(values)).filter(isChanged)) as Partial<Request>
  }
  return { values, setValues, field, changesOf }
}

export function FormDialog({
  title,
  isWide = false,
  onClose,
  ...form
}: Omit<FormProps, 'onCancel'> & { title: string; isWide?: boolean; onClose: () => void }) {
  return (
    <Dialog title={title} isWide={isWide} onClose={onClose}>
      <Form {...form} onCancel={onClose} />
    </Dialog>
  )
}

export function Form({
  submit,
  onSubmit,
  onCancel,
  isComplete = true,
  isDangerous = false,
  children,
}: FormProps) {
  const { t } = useLocalized()
  const { isRunning, error, run } = useAction()
  const form = useRef<HTMLFormElement>(null)
  const { current: names } = useRef(new Set<string>())
  useEffect(() => {
    if (!error) return
    if (form.current) unsent.set(form.current, t.common.discard)
    const field = form.current?.querySelector<HTMLInputElement>('[aria-invalid="true"]')
    field?.focus()
    if (field?.type === 'password') field.select()
  }, [error])
  const inLanguage = (message: string) => describeFieldMessage(t, message)
  const others = error?.details.filter(({ path }) => !names.has(fieldOf(path))) ?? []
  return (
    <FieldsContext.Provider value={{ error, names }}>
      <form
        ref={form}
        class="form"
        onInput={(event) => unsent.set(event.currentTarget, t.common.discard)}
        onSubmit={(event) => {
          event.preventDefault()
          if (isRunning || !isComplete) return
          unsent.delete(event.currentTarget)
          run(onSubmit)
        }}
      >
        {children}
        {others.map(({ path, message }) => (
          <p key={path} class="problem" role="alert">
            {path === '' ? inLanguage(message) : `${path}: ${inLanguage(message)}`}
          </p>
        ))}
        {error?.details.length === 0 && <ActionFailure error={error} />}
        <footer class="actions">
          {onCancel && (
            <button type="button" onClick={onCancel}>
              {t.common.cancel}
            </button>
          )}
          <button
            type="submit"
            class={isDangerous ? 'danger' : 'primary'}
            disabled={isRunning || !isComplete}
          >
            {submit}
          </button>
        </footer>
      </form>
    </FieldsContext.Provider>
  )
}

export interface FieldProps {
  /** the field of the request, by which the service reports an error */
  name: string
  label: string
  hint?: string | undefined
  class?: string
}

/** Attributes that connect a control with its label, hint and error. */
interface Control {
  id: string
  name: string
  'aria-invalid': boolean
  'aria-describedby': string | undefined
}

/** A label, a control, its hint and its error. */
export function Field({
  name,
  label,
  hint,
  class: kind = '',
  children,
}: FieldProps & { children: (control: Control) => ComponentChildren }) {
  const problems = useProblems(name)
  const id = useId()
  const isInvalid = problems.length > 0
  const note = hint || isInvalid ? `${id}-note` : undefined
  return (
    <div class={`field ${kind}`}>
      <label for={id}>{label}</label>
      {children({ id, name, 'aria-invalid': isInvalid, 'aria-describedby': note })}
      {note && (
        <div id={note} class="note">
          {hint && <p>{hint}</p>}
          <Problems of={problems} />
        </div>
      )}
    </div>
  )
}

export type Problem = ApiError['details'][number]

/** What the service refused of a field, with the paths of its parts. The field shows it, so that the form does not. */
export function useProblems(name: string): Problem[] {
  const { error, names } = useContext(FieldsContext)
  useEffect(() => {
    names.add(name)
    return () => void names.delete(name)
  }, [name])
  return error?.details.filter(({ path }) => fieldOf(path) === name) ?? []
}

export function Problems({ of, role }: { of: Problem[]; role?: 'alert' }) {
  const { t } = useLocalized()
  return (
    <>
      {of.map(({ message }) => (
        <p key={message} class="problem" role={role}>
          {describeFieldMessage(t, message)}
        </p>
      ))}
    </>
  )
}

interface InputAttributes {
  type?: 'text' | 'search' | 'url' | 'email' | 'password' | 'date' | 'datetime-local' | 'number'
  placeholder?: string
  autocomplete?: 'off' | 'username' | 'current-password' | 'new-password'
  autofocus?: boolean
  minLength?: number
  maxLength?: number
  min?: number
  max?: number
  required?: boolean
}

export function TextField({
  value,
  onChange,
  name,
  label,
  hint,
  class: kind,
  type = 'text',
  ...input
}: FieldProps & InputAttributes & { value: string; onChange: (value: string) => void }) {
  return (
    <Field {...{ name, label, hint, ...(kind && { class: kind }) }}>
      {(control) => (
        <input
          // The types of Preact want one literal.
          type={type as 'text'}
          {...input}
          {...control}
          value={value}
          onInput={(event) => onChange(event.currentTarget.value)}
        />
      )}
    </Field>
  )
}

export function CheckField({
  value,
  onChange,
  ...field
}: FieldProps & { value: boolean; onChange: (value: boolean) => void }) {
  return (
    <Field {...field} class="check">
      {(control) => (
        <input
          type="checkbox"
          {...control}
          checked={value}
          onChange={(event) => onChange(event.currentTarget.checked)}
        />
      )}
    </Field>
  )
}

export function SelectField<Value extends string>({
  value,
  options,
  onChange,
  ...field
}: FieldProps & {
  value: Value
  options: ReadonlyArray<readonly [value: Value, label: string]>
  onChange: (value: Value) => void
}) {
  return (
    <Field {...field}>
      {(control) => (
        <select {...control} value={value} onChange={(event) => onChange(event.currentTarget.value as Value)}>
          {options.map(([option, text]) => (
            <option key={option} value={option}>
              {text}
            </option>
          ))}
        </select>
      )}
    </Field>
  )
}

/** Refuses a submission with a message beside a field. */
export function refuse(path: string, message: string): never {
  throw new ApiError(message, { status: 400, details: [{ path, message }] })
}

/** The items of a text that separates them with commas. Null if there is none. */
export function listOf(text: string): string[] | null {
  const items = itemsOf(text)
  return items.length === 0 ? null : items
}
