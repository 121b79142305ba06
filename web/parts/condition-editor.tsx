/** Edits a condition in words, counts the members for whom it holds, and shows its JSON to those who want it. */
import { useEffect, useId, useRef, useState } from 'preact/hooks'
import { useSettled } from '../hooks.ts'
import { useRead } from '../operations.ts'
import { fill, useLocalized } from '../texts.ts'
import {
  type ConditionField,
  type ConditionRow,
  FIRST,
  jsonOfRows,
  KINDS,
  rowsOfJson,
} from './condition-rows.ts'
import { type Problem, Problems, useProblems } from './form.tsx'
import { TextArea } from './member-form.tsx'
import { ActionFailure } from './states.tsx'

const TYPING_MS = 700
const UNITS = ['m', 'h', 'd', 'w'] as const
const FIELDS = Object.keys(KINDS) as ConditionField[]

interface Props {
  /** the field of the request */
  name: string
  label: string
  hint?: string
  /** JSON; empty: everybody */
  value: string
  onChange: (json: string) => void
  /** whose members are counted and suggested; null: none */
  account: string | null
}

export function ConditionEditor({ name, label, hint, value, onChange, account }: Props) {
  const { t } = useLocalized()
  const [rows, setRows] = useState(() => rowsOfJson(value))
  const problems = useProblems(name)
  const others = problems.filter((problem) => !rows?.some(({ field }) => rowOf(problem) === field))
  const isComplete = rows?.every(({ text }) => text.trim() !== '') ?? false
  const change = (changed: ConditionRow[]) => {
    setRows(changed)
    onChange(jsonOfRows(changed))
  }
  const typeJson = (json: string) => {
    setRows(rowsOfJson(json))
    onChange(json)
  }
  return (
    <fieldset class="condition">
      <legend>{label}</legend>
      {hint && <p class="muted">{hint}</p>}
      {rows && <Rows {...{ rows, change, account, problems }} />}
      <Problems of={others} role="alert" />
      {account !== null && <Matching account={account} json={isComplete ? value : null} />}
      {/* A condition that rows cannot show is edited as JSON. */}
      <details open={rows === null}>
        <summary>{t.condition.json}</summary>
        <TextArea
          name={name}
          label={t.condition.json}
          hint={rows === null ? t.condition.onlyJson : undefined}
          value={value}
          onChange={typeJson}
          class="mono"
          rows={5}
          spellcheck={false}
        />
      </details>
    </fieldset>
  )
}

const rowOf = ({ path }: Problem) => path.split('/')[1]

function Rows({
  rows,
  change,
  account,
  problems,
}: {
  rows: ConditionRow[]
  change: (rows: ConditionRow[]) => void
  account: string | null
  problems: Problem[]
}) {
  const { t } = useLocalized()
  const suggested = useRead('account.suggestions', account, account === null ? null : {})
  const used = new Set(rows.map(({ field }) => field))
  const lists = useId()
  const isAdded = useRef(false)
  const last = useRef<HTMLDivElement>(null)
  const add = (field: ConditionField) => change([...rows, { field, text: FIRST[KINDS[field]] }])
  useEffect(() => {
    if (isAdded.current) last.current?.querySelector<HTMLElement>('input, select')?.focus()
    isAdded.current = false
  }, [rows.length])
  return (
    <>
      {rows.map((row, at) => (
        <div key={row.field} class="condition-row" ref={at === rows.length - 1 ? last : null}>
          <span>{t.condition.fields[row.field]}</span>
          <Value
            row={row}
            list={`${lists}-${row.field === 'sourceAny' ? 'sources' : 'tags'}`}
            onChange={(text) => change(rows.with(at, { ...row, text }))}
          />
          <button
            type="button"
            class="plain"
            aria-label={fill(t.condition.remove, { field: t.condition.fields[row.field] })}
            onClick={() => change(rows.toSpliced(at, 1))}
          >
            ×
          </button>
          <Problems of={problems.filter((problem) => rowOf(problem) === row.field)} role="alert" />
        </div>
      ))}
      {rows.length === 0 && <p class="muted">{t.condition.everybody}</p>}
      <select
        aria-label={t.condition.add}
        value=""
        onChange={(event) => {
          isAdded.current = true
          add(event.currentTarget.value as ConditionField)
          event.currentTarget.value = ''
        }}
      >
        <option value="">{t.condition.add}</option>
        {FIELDS.filter((field) => !used.has(field)).map((field) => (
          <option key={field} value={field}>
            {t.condition.fields[field]}
          </option>
        ))}
      </select>
      {(['tags', 'sources'] as const).map((kind) => (
        <datalist key={kind} id={`${lists}-${kind}`}>
          {suggested.data?.[kind].map((each) => (
            <option key={each} value={each} />
          ))}
        </datalist>
      ))}
    </>
  )
}

/** @param list id of the suggestions */
function Value({
  row,
  list,
  onChange,
}: {
  row: ConditionRow
  list: string
  onChange: (text: string) => void
}) {
  const { t } = useLocalized()
  const { field, text } = row
  const label = t.condition.fields[field]
  const input = (type: 'text' | 'number', hint = '') => (
    <input
      type={type as 'text'}
      aria-label={label}
      placeholder={hint}
      autocomplete="off"
      min={0}
      list={KINDS[field] === 'texts' && field !== 'campaignAny' ? list : undefined}
      value={text}
      onInput={(event) => onChange(event.currentTarget.value)}
    />
  )
  const select = (options: ReadonlyArray<readonly [string, string]>) => (
    <select aria-label={label} value={text} onChange={(event) => onChange(event.currentTarget.value)}>
      {options.map(([value, name]) => (
        <option key={value} value={value}>
          {name}
        </option>
      ))}
    </select>
  )
  switch (KINDS[field]) {
    case 'relationship':
      return select(Object.entries(t.audience.relationships))
    case 'yes':
      return select([
        ['true', t.condition.yes],
        ['false', t.condition.no],
      ])
    case 'count':
      return input('number')
    case 'texts':
      return input('text', 'vip, new')
    case 'attributes':
      return input('text', 'tier=gold')
    case 'duration': {
      const [, count, unit] = /^(\d*)([mhdw])$/.exec(text) ?? []
      // A time, which an operator wrote as JSON.
      if (count === undefined || unit === undefined) return input('text')
      return (
        <span class="duration">
          <input
            type="number"
            min={0}
            max={99_999}
            aria-label={label}
            value={count}
            onInput={(event) => onChange(event.currentTarget.value + unit)}
          />
          <select
            aria-label={t.condition.unit}
            value={unit}
            onChange={(event) => onChange(count + event.currentTarget.value)}
          >
            {UNITS.map((each) => (
              <option key={each} value={each}>
                {t.condition.units[each]}
              </option>
            ))}
          </select>
        </span>
      )
    }
    default:
      return input('text')
  }
}

/** Counts again when nobody has typed for a moment. @param json null: a row is not complete */
function Matching({ account, json }: { account: string; json: string | null }) {
  const { t, number } = useLocalized()
  const condition = useSettled(json === null ? null : json.trim() || '{}', TYPING_MS)
  const { data, error } = useRead('account.matching', account, condition === null ? null : { condition })
  const [shown, setShown] = useState(data)
  useEffect(() => {
    if (data !== undefined) setShown(data)
  }, [data])
  return (
    <div aria-live="polite" class="muted">
      {error ? (
        <ActionFailure error={error} />
      ) : (
        <p>{shown ? fill(t.condition.count, { count: number(shown.count) }) : t.condition.counting}</p>
      )}
      {!error && shown && shown.examples.length > 0 && (
        <p>
          {t.condition.examples}{' '}
          {shown.examples.map(({ userId, displayName }, at) => (
            <span key={userId}>
              {at > 0 && ', '}
              {displayName ?? t.audience.noName}
            </span>
          ))}
        </p>
      )}
    </div>
  )
}
